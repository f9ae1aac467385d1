// SPDX-License-Identifier: Apache-2.0
#include "shim/process/handle_table.h"

#include <gtest/gtest.h>

#include <thread>

namespace gpuloom {
namespace {

struct Thing {
  std::atomic<uint32_t> alive;
  uint64_t fields[7];  // so that the table grows in several steps
};

constexpr uint32_t kCapacity = 20'000;

struct Things {
  HandleTable<Thing, kCapacity> table;
  Lock lock;
};

TEST(HandleTable, AHandleIsValidUntilItsObjectIsGivenBack) {
  static constinit Things things;
  Holding holding(&things.lock);
  Thing* first = things.table.Take(things.lock);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(things.table.IdOf(first), 1u);
  EXPECT_EQ(things.table.Find(first), first);
  EXPECT_EQ(things.table.At(1), first);
  EXPECT_EQ(things.table.Find(nullptr), nullptr);
  EXPECT_EQ(things.table.Find(reinterpret_cast<char*>(first) + 1), nullptr);
  EXPECT_EQ(things.table.FindGone(first), nullptr);

  things.table.Give(things.lock, first, /*reuse=*/false);
  EXPECT_EQ(things.table.Find(first), nullptr);
  EXPECT_EQ(things.table.FindGone(first), first);
  Thing* second = things.table.Take(things.lock);
  EXPECT_EQ(things.table.IdOf(second), 2u);
  things.table.Reuse(things.lock, 1);
  EXPECT_EQ(things.table.Take(things.lock), first);
  EXPECT_EQ(things.table.used(), 2u);
}

TEST(HandleTable, IsFullWhenAllIdsAreInUse) {
  static constinit Things things;
  Holding holding(&things.lock);
  Thing* last = nullptr;
  for (uint32_t id = 1; id < kCapacity; ++id) {
    last = things.table.Take(things.lock);
    ASSERT_NE(last, nullptr) << id;
  }
  EXPECT_EQ(things.table.Take(things.lock), nullptr);
  EXPECT_EQ(things.table.used(), kCapacity - 1);
  things.table.Give(things.lock, last);
  EXPECT_EQ(things.table.Take(things.lock), last);
}

// As a context that is reset goes through the objects of other threads.
TEST(HandleTable, IsListedWithoutTheLockWhileItGrows) {
  static constinit Things things;
  std::thread maker([] {
    for (uint32_t number = 1; number < kCapacity; ++number) {
      Holding holding(&things.lock);
      ASSERT_NE(things.table.Take(things.lock), nullptr);
    }
  });
  uint32_t listed = 0;
  while (listed != kCapacity - 1) {
    const uint32_t used = things.table.used();
    ASSERT_GE(used, listed);
    for (uint32_t id = listed + 1; id < used; ++id) ASSERT_NE(things.table.At(id), nullptr) << id;
    listed = used;
  }
  maker.join();
}

}  // namespace
}  // namespace gpuloom
