// SPDX-License-Identifier: Apache-2.0
// For tests: waiting for what another thread or process does.
//
//   EXPECT_TRUE(WaitFor([&] { return kill(pid, 0) != 0; }));
#pragma once

#include <chrono>
#include <thread>

namespace gpuloom {

// Returns whether the condition holds within the limit, which only ends a hanging test. It is looked at often.
template <typename Condition>
[[nodiscard]] bool WaitFor(Condition holds,
                           std::chrono::steady_clock::duration limit = std::chrono::seconds(60)) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!holds()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace gpuloom
