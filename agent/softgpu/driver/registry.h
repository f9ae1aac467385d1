// SPDX-License-Identifier: Apache-2.0
// Which opaque CUDA handles of one kind are alive. A handle is the address of the object; a pointer
// that was never handed out, or whose object is destroyed, is simply not found, so a wrong handle
// is an error code and never a crash. The registry shares ownership: an object found stays valid
// while the caller holds it. Safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

template <typename T>
class Registry {
 public:
  // Never destroyed: threads of this driver may outlive static destructors.
  static Registry& Instance() {
    static auto* registry = new Registry;
    return *registry;
  }

  void Add(std::shared_ptr<T> object) {
    const WriterLock lock(mutex_);
    const void* key = object.get();
    objects_.emplace(key, std::move(object));
  }

  [[nodiscard]] std::shared_ptr<T> Find(const void* handle) const {
    const ReaderLock lock(mutex_);
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }

  // Removes and returns the object; empty when it was not there, so that only one of two destroyers
  // gets it.
  std::shared_ptr<T> Take(const void* handle) {
    const WriterLock lock(mutex_);
    const auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

  // Removes and returns all that satisfy the condition.
  std::vector<std::shared_ptr<T>> TakeIf(const std::function<bool(const T&)>& condition) {
    std::vector<std::shared_ptr<T>> taken;
    const WriterLock lock(mutex_);
    for (auto at = objects_.begin(); at != objects_.end();) {
      if (!condition(*at->second)) {
        ++at;
        continue;
      }
      taken.push_back(std::move(at->second));
      at = objects_.erase(at);
    }
    return taken;
  }

  [[nodiscard]] size_t Size() const {
    const ReaderLock lock(mutex_);
    return objects_.size();
  }

  [[nodiscard]] std::vector<std::shared_ptr<T>> All() const {
    std::vector<std::shared_ptr<T>> all;
    const ReaderLock lock(mutex_);
    for (const auto& [key, object] : objects_) all.push_back(object);
    return all;
  }

 private:
  mutable SharedMutex mutex_;
  std::unordered_map<const void*, std::shared_ptr<T>> objects_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::softgpu
