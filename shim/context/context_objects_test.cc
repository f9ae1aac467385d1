// SPDX-License-Identifier: Apache-2.0
#include "shim/context/context_objects.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using Kind = ContextObjectKind;

TEST(ContextObjects, AContextGivesItsOwnTheNewestFirst) {
  ContextObjects objects;
  Context first{}, second{};
  ContextObjects::Object object;
  EXPECT_FALSE(objects.TakeNewest(&first, &object));
  ASSERT_TRUE(objects.Add({&first, 8, Kind::kStream}));
  ASSERT_TRUE(objects.Add({&second, 16, Kind::kEvent}));
  ASSERT_TRUE(objects.Add({&first, 8, Kind::kEvent}));
  ASSERT_TRUE(objects.Add({&first, 24, Kind::kEvent}));
  EXPECT_EQ(objects.ContextOf(Kind::kEvent, 16), &second);
  EXPECT_EQ(objects.ContextOf(Kind::kStream, 16), nullptr);
  objects.Remove(Kind::kEvent, 8);
  objects.Remove(Kind::kEvent, 8);
  EXPECT_EQ(objects.count(), 3u);
  ASSERT_TRUE(objects.TakeNewest(&first, &object));
  EXPECT_EQ(object.handle, 24u);
  ASSERT_TRUE(objects.TakeNewest(&first, &object));
  EXPECT_EQ(object.kind, Kind::kStream);
  EXPECT_FALSE(objects.TakeNewest(&first, &object));
  objects.Clear();
  EXPECT_FALSE(objects.TakeNewest(&second, &object));
  EXPECT_EQ(objects.count(), 0u);
}

// As memory that several contexts have opened: the latest opening is closed first.
TEST(ContextObjects, OfWhatWasAddedRepeatedlyTheNewestGoes) {
  ContextObjects objects;
  Context contexts[300] = {};
  for (Context& context : contexts) ASSERT_TRUE(objects.Add({&context, 7, Kind::kOpenedMemory}));
  for (size_t i = 300; i-- > 0;) {
    EXPECT_EQ(objects.ContextOf(Kind::kOpenedMemory, 7), &contexts[i]);
    objects.Remove(Kind::kOpenedMemory, 7);
  }
  EXPECT_EQ(objects.count(), 0u);
}

// In every order, and with others' objects between: with a look at each other one this would take hours.
TEST(ContextObjects, MayBeVeryMany) {
  constexpr uint64_t kObjects = 1'000'000;
  static ContextObjects objects;
  static Context first, second;
  for (uint64_t i = 1; i <= kObjects; ++i) {
    ASSERT_TRUE(objects.Add({i % 2 == 0 ? &first : &second, i * 64, Kind::kEvent}));
  }
  for (uint64_t i = 1; i <= kObjects; ++i) objects.Remove(Kind::kStream, i * 64);
  EXPECT_EQ(objects.count(), kObjects);
  for (uint64_t i = 1; i <= kObjects / 2; ++i) objects.Remove(Kind::kEvent, i * 64);
  ContextObjects::Object object;
  for (uint64_t i = kObjects; i > kObjects / 2; i -= 2) {
    ASSERT_TRUE(objects.TakeNewest(&first, &object));
    ASSERT_EQ(object.handle, i * 64);
    objects.Remove(Kind::kEvent, object.handle);
  }
  EXPECT_FALSE(objects.TakeNewest(&first, &object));
  EXPECT_EQ(objects.count(), kObjects / 4);
  EXPECT_EQ(objects.ContextOf(Kind::kEvent, (kObjects - 1) * 64), &second);
}

}  // namespace
}  // namespace gpuloom
