// SPDX-License-Identifier: Apache-2.0
// The registry of conditions by handle. It holds weak pointers, so a condition lives as long as the
// graphs and launches that use it; kernels bring handles, which may be any number.
#include "agent/softgpu/exec/machine/conditional.h"

#include <unordered_map>

#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

struct Conditions {
  Mutex mutex;
  std::unordered_map<uint64_t, std::weak_ptr<Condition>> by_handle GPULOOM_GUARDED_BY(mutex);
};

// Outlives every condition: those of graphs that a program leaves behind go last of all.
Conditions& Known() {
  static auto* const conditions = new Conditions;
  return *conditions;
}

}  // namespace

// Handles rise and are never given out again, so a stale one cannot mean another condition. 0 is
// none.
std::shared_ptr<Condition> Condition::Make(uint32_t default_value, bool assigns_default) {
  static std::atomic<uint64_t> last_handle{0};
  Conditions& known = Known();
  // Made before the lock is taken: without memory it goes again, and then takes the lock itself.
  std::shared_ptr<Condition> made(new Condition(++last_handle, default_value, assigns_default));
  const MutexLock lock(known.mutex);
  known.by_handle[made->handle()] = made;
  return made;
}

std::shared_ptr<Condition> Condition::Find(uint64_t handle) {
  Conditions& known = Known();
  const MutexLock lock(known.mutex);
  const auto found = known.by_handle.find(handle);
  // The last owner may be letting go on another thread: then lock() gives null, as if it had gone
  // already.
  return found == known.by_handle.end() ? nullptr : found->second.lock();
}

Condition::~Condition() {
  Conditions& known = Known();
  const MutexLock lock(known.mutex);
  known.by_handle.erase(handle_);
}

}  // namespace gpuloom::softgpu
