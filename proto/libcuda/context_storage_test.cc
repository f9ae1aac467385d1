// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/context_storage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace gpuloom {
namespace {

struct Call {
  uint64_t context, key, value;
  bool operator==(const Call&) const = default;
};
std::vector<Call> calls;
void Record(uint64_t context, uint64_t key, uint64_t value) {
  calls.push_back({context, key, value});
}

TEST(ContextStorage, KeepsOneValuePerContextAndKey) {
  auto storage = std::make_unique<ContextStorage>();
  uint64_t value = 0;
  EXPECT_FALSE(storage->Get(1, 10, &value));
  EXPECT_TRUE(storage->Put(1, 10, 100, nullptr));
  EXPECT_TRUE(storage->Put(2, 10, 200, nullptr));
  ASSERT_TRUE(storage->Get(1, 10, &value));
  EXPECT_EQ(value, 100u);
  ASSERT_TRUE(storage->Get(2, 10, &value));
  EXPECT_EQ(value, 200u);
  EXPECT_TRUE(storage->Put(1, 10, 101, nullptr));
  ASSERT_TRUE(storage->Get(1, 10, &value));
  EXPECT_EQ(value, 101u);
  EXPECT_TRUE(storage->Delete(1, 10));
  EXPECT_FALSE(storage->Delete(1, 10));
  EXPECT_FALSE(storage->Get(1, 10, &value));
  EXPECT_TRUE(storage->Get(2, 10, &value));
}

TEST(ContextStorage, ResetRunsTheDestructorsOfThatContextOnly) {
  auto storage = std::make_unique<ContextStorage>();
  calls.clear();
  ASSERT_TRUE(storage->Put(1, 10, 100, &Record));
  ASSERT_TRUE(storage->Put(1, 11, 110, nullptr));
  ASSERT_TRUE(storage->Put(2, 10, 200, &Record));
  storage->ResetContext(1);
  EXPECT_EQ(calls, (std::vector<Call>{{1, 10, 100}}));
  uint64_t value = 0;
  EXPECT_FALSE(storage->Get(1, 10, &value));
  EXPECT_FALSE(storage->Get(1, 11, &value));
  EXPECT_TRUE(storage->Get(2, 10, &value));
  storage->ResetContext(1);
  storage->ResetContext(0);
  EXPECT_EQ(calls.size(), 1u);
}

TEST(ContextStorage, FullTableRefusesAndDeletedPlacesAreUsedAgain) {
  auto storage = std::make_unique<ContextStorage>();
  for (uint64_t i = 1; i <= ContextStorage::kCapacity; ++i)
    ASSERT_TRUE(storage->Put(i, 7, i, nullptr));
  EXPECT_FALSE(storage->Put(5000, 7, 1, nullptr));
  uint64_t value = 0;
  EXPECT_FALSE(storage->Get(5000, 7, &value));
  for (uint64_t i = 1; i <= ContextStorage::kCapacity; ++i) {
    ASSERT_TRUE(storage->Get(i, 7, &value));
    ASSERT_EQ(value, i);
  }
  EXPECT_TRUE(storage->Delete(17, 7));
  EXPECT_TRUE(storage->Put(5000, 7, 1, nullptr));
  EXPECT_TRUE(storage->Get(5000, 7, &value));
  for (uint64_t round = 0; round < 5000; ++round) {  // never fills up with deleted entries
    ASSERT_TRUE(storage->Delete(5000, 7 + round));
    ASSERT_TRUE(storage->Put(5000, 8 + round, 1, nullptr));
  }
}

// A reader sees a whole value of its own key or nothing, while others write the same places.
TEST(ContextStorage, ReadersNeverSeeAMixedEntry) {
  auto storage = std::make_unique<ContextStorage>();
  std::atomic<bool> stop{false};
  std::atomic<int> mixed{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < 2; ++t) {
    readers.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
        for (uint64_t key = 1; key <= 4; ++key) {
          uint64_t value = 0;
          if (storage->Get(9, key, &value) && value % 8 != key) mixed.fetch_add(1);
        }
      }
    });
  }
  for (uint64_t round = 0; round < 20000; ++round) {
    const uint64_t key = 1 + round % 4;
    ASSERT_TRUE(storage->Put(9, key, round * 8 + key, nullptr));
    if (round % 3 == 0) {
      ASSERT_TRUE(storage->Delete(9, key));
    }
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(mixed.load(), 0);
}

}  // namespace
}  // namespace gpuloom
