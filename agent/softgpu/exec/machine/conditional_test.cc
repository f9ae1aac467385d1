// SPDX-License-Identifier: Apache-2.0
// Conditions where memory is short. The allocation functions of this program can be made to fail.
#include "agent/softgpu/exec/machine/conditional.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

namespace {

// How many more allocations of this thread succeed; negative: all.
thread_local int allocations_left = -1;

}  // namespace

void* operator new(size_t size_bytes) {
  void* const made = allocations_left == 0 ? nullptr : std::malloc(size_bytes);
  if (made == nullptr) throw std::bad_alloc();
  if (allocations_left > 0) --allocations_left;
  return made;
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace gpuloom::softgpu {
namespace {

TEST(Condition, IsNotMadeWithoutMemory) {
  for (int left = 0; left < 3; ++left) {
    allocations_left = left;
    EXPECT_THROW(static_cast<void>(Condition::Make(7, false)), std::bad_alloc) << left;
    allocations_left = -1;
  }
  const auto made = Condition::Make(7, false);
  EXPECT_EQ(Condition::Find(made->handle()), made);
  EXPECT_EQ(made->value(), 7u);
}

}  // namespace
}  // namespace gpuloom::softgpu
