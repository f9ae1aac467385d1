// SPDX-License-Identifier: Apache-2.0
// The value of a conditional handle: kernels set it, and a graph's conditional nodes depend on it.
//
// Shared by its graph and by all launches that may use it; ends with the last of them. A handle whose value is gone is
// invalid, and never names another value. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace gpuloom::softgpu {

class Condition {
 public:
  [[nodiscard]] uint64_t handle() const { return handle_; }
  [[nodiscard]] uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void Set(uint32_t value) { value_.store(value, std::memory_order_release); }
  // Call when a graph that has the condition begins.
  void Begin() {
    if (assigns_default_) Set(default_value_);
  }

  static std::shared_ptr<Condition> Make(uint32_t default_value, bool assigns_default);
  // nullptr when there is none.
  static std::shared_ptr<Condition> Find(uint64_t handle);

  ~Condition();
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

 private:
  Condition(uint64_t handle, uint32_t default_value, bool assigns_default)
      : handle_(handle),
        default_value_(default_value),
        assigns_default_(assigns_default),
        value_(default_value) {}

  const uint64_t handle_;
  const uint32_t default_value_;
  const bool assigns_default_;
  std::atomic<uint32_t> value_;
};

}  // namespace gpuloom::softgpu
