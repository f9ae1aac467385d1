// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/module/library_cache.h"

#include <gtest/gtest.h>

#include <cstring>

namespace gpuloom::executor {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

ImageRef ImageOf(uint64_t size_bytes, bool has_variables) {
  auto image = std::make_shared<KnownImage>();
  image->bytes.resize(size_bytes);
  image->has_variables = has_variables;
  image->prints = false;
  return image;
}

std::shared_ptr<DomainBudget> Budget() {
  return std::make_shared<DomainBudget>(DomainBudget::kDefaultBytes);
}

LibraryRef Library() { return std::make_shared<LoadedLibrary>(nullptr, nullptr, nullptr); }

constexpr ImageHash Name(uint64_t number) { return {{number, 0, 0, 0}}; }

TEST(LibraryCache, SharesWhatHoldsNoVariables) {
  LibraryCache cache(Budget());
  const LibraryRef code = Library();
  const LibraryRef state = Library();
  cache.Add(Name(1), ImageOf(100, false), code, 1);
  cache.Add(Name(2), ImageOf(100, true), state, 1);
  EXPECT_EQ(cache.Find(Name(1), 2).library, code);
  EXPECT_EQ(cache.Find(Name(2), 2).library, nullptr);
  EXPECT_NE(cache.Find(Name(2), 2).image, nullptr);
  EXPECT_EQ(cache.Find(Name(3), 2).image, nullptr);
}

TEST(LibraryCache, TheFirstOfTwoThatWereLoadedAtTheSameTimeStays) {
  LibraryCache cache(Budget());
  const LibraryRef first = Library();
  const LibraryRef second = Library();
  cache.Add(Name(1), ImageOf(100, false), first, 1);
  cache.Add(Name(1), ImageOf(100, false), second, 1);
  EXPECT_EQ(cache.Find(Name(1), 2).library, first);
  EXPECT_EQ(cache.bytes(), 100u);
}

TEST(LibraryCache, HoldsNoMoreThanItsBoundAndDropsWhatWasNotUsedForLongest) {
  LibraryCache cache(Budget());
  constexpr uint64_t kThird = LibraryCache::kMaxBytes / 3;
  for (uint64_t i = 1; i <= 3; ++i) cache.Add(Name(i), ImageOf(kThird, true), nullptr, i);
  EXPECT_NE(cache.Find(Name(1), 10).image, nullptr);
  cache.Add(Name(4), ImageOf(kThird, true), nullptr, 11);
  EXPECT_EQ(cache.Find(Name(2), 12).image, nullptr);
  EXPECT_NE(cache.Find(Name(1), 12).image, nullptr);
  EXPECT_NE(cache.Find(Name(4), 12).image, nullptr);
  EXPECT_LE(cache.bytes(), LibraryCache::kMaxBytes);
  cache.Add(Name(5), ImageOf(LibraryCache::kMaxBytes + 1, true), nullptr, 13);
  EXPECT_LE(cache.bytes(), LibraryCache::kMaxBytes);
}

TEST(LibraryCache, LetsGoOfTheLibraryFirstAndOfTheImageLater) {
  LibraryCache cache(Budget());
  LibraryRef library = Library();
  const std::weak_ptr<LoadedLibrary> seen = library;
  cache.Add(Name(1), ImageOf(100, false), library, 1);
  cache.Tick(100 * kSecondNs);
  EXPECT_FALSE(seen.expired()) << "a tenant uses it";
  library.reset();
  cache.Tick(120 * kSecondNs);
  EXPECT_FALSE(seen.expired());
  cache.Tick(140 * kSecondNs);
  EXPECT_TRUE(seen.expired());
  EXPECT_EQ(cache.bytes(), 100u);
  cache.Tick(1000 * kSecondNs);
  EXPECT_EQ(cache.bytes(), 0u);
  EXPECT_EQ(cache.Find(Name(1), 1001 * kSecondNs).image, nullptr);
}

TEST(LibraryCache, HashesOfDifferentBytesDiffer) {
  const LibraryCache cache(Budget());
  const uint8_t one[] = {1, 2, 3};
  const uint8_t two[] = {1, 2, 4};
  EXPECT_EQ(cache.Hash(one), cache.Hash(one));
  EXPECT_NE(cache.Hash(one), cache.Hash(two));
}

// Images that are forgotten and still in use: libraries whose unloading waits for the device, say.
TEST(LibraryCache, Malicious_WhatIsForgottenCountsUntilNobodyUsesIt) {
  const auto budget = Budget();
  LibraryCache cache(budget);
  constexpr uint64_t kThird = LibraryCache::kMaxBytes / 3;
  const auto image_of_a_third = [] {
    auto image = std::make_shared<KnownImage>();
    image->cost_bytes = kThird;
    return image;
  };
  std::vector<ImageRef> used;
  for (uint64_t i = 1; i <= 20; ++i) {
    used.push_back(image_of_a_third());
    cache.Add(Name(i), used.back(), nullptr, i);
  }
  EXPECT_LE(budget->held_bytes(), LibraryCache::kMaxBytes);
  EXPECT_EQ(cache.Find(Name(20), 21).image, nullptr) << "no room beside what is in use";
  used.clear();
  cache.Add(Name(21), image_of_a_third(), nullptr, 22);
  EXPECT_NE(cache.Find(Name(21), 23).image, nullptr);
  cache.Tick(3'600 * kSecondNs);
  EXPECT_EQ(budget->held_bytes(), 0u);
}

TEST(LibraryCache, CountsWhatAnImageCostsAndNotItsBytesAlone) {
  LibraryCache cache(Budget());
  auto image = std::make_shared<KnownImage>();
  image->bytes.resize(100);
  image->cost_bytes = LibraryCache::kMaxBytes / 2 + 1;
  cache.Add(Name(1), std::move(image), nullptr, 1);
  auto another = std::make_shared<KnownImage>();
  another->cost_bytes = LibraryCache::kMaxBytes / 2 + 1;
  cache.Add(Name(2), std::move(another), nullptr, 2);
  EXPECT_EQ(cache.Find(Name(1), 3).image, nullptr);
  EXPECT_NE(cache.Find(Name(2), 3).image, nullptr);
}

TEST(LibraryCache, AnImageThatBecomesShorterHoldsNoMoreThanItsBytes) {
  KnownImage image;
  image.bytes.resize(1u << 20);
  const uint8_t shorter[] = {1, 2, 3};
  image.SetBytes(shorter);
  EXPECT_EQ(image.bytes, (std::vector<uint8_t>{1, 2, 3, 0}));
  EXPECT_LE(image.bytes.capacity(), 64u);
}

TEST(AskedFor, NamesAreFewAndShort) {
  AskedFor asked_for;
  asked_for.Note("k");
  asked_for.Note("k");
  asked_for.Note(std::string(AskedFor::kMostBytes, 'x'));
  EXPECT_EQ(asked_for.names(), std::set<std::string>{"k"});
  for (size_t i = 0; i < 2 * AskedFor::kMostNames; ++i) asked_for.Note(std::to_string(i));
  EXPECT_EQ(asked_for.names().size(), AskedFor::kMostNames);
}

}  // namespace
}  // namespace gpuloom::executor
