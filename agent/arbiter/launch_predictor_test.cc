// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/launch_predictor.h"

#include <gtest/gtest.h>

namespace gpuloom::arbiter {
namespace {

LaunchKey Key(uint64_t function, uint32_t owner = 0) {
  return {.function = function,
          .grid = {1, 1, 1},
          .block = {32, 1, 1},
          .owner = owner,
          .allocation = owner};
}

Duration Took(uint64_t ns) { return {ns, ns}; }

TEST(LaunchPredictor, TheUnknownCountsAsLongUntilItWasSeen) {
  LaunchPredictor predictor;
  EXPECT_EQ(predictor.Predict(Key(1)).ns, LaunchPredictor::kUnknownNs);
  EXPECT_EQ(predictor.Predict(Key(1)).samples, 0u);
  predictor.Learn(Key(1), Took(700));
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 700u);
  EXPECT_FALSE(predictor.Predict(Key(1)).sure()) << "once is not enough";
}

TEST(LaunchPredictor, EveryDimensionAndTheOwnerTellLaunchesApart) {
  LaunchPredictor predictor;
  const LaunchKey key = Key(1);
  predictor.Learn(key, Took(700));
  LaunchKey other = key;
  const auto unknown = [&](const LaunchKey& it) { return predictor.Predict(it).samples == 0; };
  for (size_t i = 0; i < 3; ++i) {
    other = key;
    other.grid[i] = 9;
    EXPECT_TRUE(unknown(other));
    other = key;
    other.block[i] = 9;
    EXPECT_TRUE(unknown(other));
  }
  other = key;
  other.shared_bytes = 9;
  EXPECT_TRUE(unknown(other));
  EXPECT_TRUE(unknown(Key(1, 9)));
  EXPECT_TRUE(unknown(Key(2)));
}

// No two launches of it have the same shape, as those of a model whose cache grows.
TEST(LaunchPredictor, TheUnknownTakesAsLongAsWhatIsLikeItDid) {
  LaunchPredictor predictor;
  const auto shape = [](uint32_t shared_bytes, uint32_t owner = 0, uint64_t group = 7) {
    LaunchKey key = Key(1, owner);
    key.shared_bytes = shared_bytes;
    key.group = group;
    return key;
  };
  for (uint32_t i = 0; i < 10'000; ++i)
    predictor.Learn(shape(i), Took(i < 9'000 ? 50'000 : 80'000));
  const Prediction prediction = predictor.Predict(shape(20'000));
  EXPECT_EQ(prediction.ns, 80'000u);
  EXPECT_FALSE(prediction.sure()) << "it may be another";
  EXPECT_FALSE(prediction.alone);
  EXPECT_EQ(predictor.errors().unknown, 10'000u);
  EXPECT_EQ(predictor.Predict(shape(20'000, /*owner=*/1)).ns, LaunchPredictor::kUnknownNs);
  EXPECT_EQ(predictor.Predict(shape(20'000, 0, /*group=*/8)).ns, LaunchPredictor::kUnknownNs);
  // What is known of a launch itself is not its group's.
  for (int i = 0; i < 5; ++i) predictor.Learn(shape(20'000), Took(300'000));
  EXPECT_EQ(predictor.Predict(shape(20'000)).ns, 300'000u);
  EXPECT_EQ(predictor.Predict(shape(20'001)).ns, 80'000u);
}

TEST(LaunchPredictor, TwoOutliersOfFiveMoveNothingAndAChangeIsFollowed) {
  LaunchPredictor predictor;
  for (int i = 0; i < 5; ++i) predictor.Learn(Key(1), Took(1000 + i));
  EXPECT_TRUE(predictor.Predict(Key(1)).sure());
  predictor.Learn(Key(1), Took(900'000));
  predictor.Learn(Key(1), Took(1));
  EXPECT_NEAR(double(predictor.Predict(Key(1)).ns), 1003, 3);
  for (int i = 0; i < 3; ++i) predictor.Learn(Key(1), Took(5000));
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 5000u);
}

TEST(LaunchPredictor, WhatVariesIsNotSure) {
  LaunchPredictor predictor;
  for (int i = 0; i < 20; ++i) predictor.Learn(Key(1), Took(i % 2 == 0 ? 100 : 10'000));
  EXPECT_FALSE(predictor.Predict(Key(1)).sure());
  EXPECT_GT(predictor.Predict(Key(1)).spread_permille, 250u);
}

TEST(LaunchPredictor, OneWhoseEveryLaunchIsNewDoesNotPushOthersOut) {
  LaunchPredictor predictor;
  for (uint64_t function = 0; function < 500; ++function) {
    predictor.Learn(Key(function, 1), Took(1000));
    predictor.Learn(Key(function, 1), Took(1000));
  }
  for (uint64_t function = 0; function < 200'000; ++function) {
    predictor.Learn(Key(function, 2), Took(5));
    if (function % 2 == 0) predictor.Learn(Key(function, 2), Took(5));
  }
  int known = 0;
  for (uint64_t function = 0; function < 500; ++function) {
    known += predictor.Predict(Key(function, 1)).samples != 0 ? 1 : 0;
  }
  EXPECT_GE(known, 495);
}

TEST(LaunchPredictor, Malicious_NorDoManyProcessesOfOneContainer) {
  LaunchPredictor predictor;
  for (uint64_t function = 0; function < 500; ++function)
    predictor.Learn(Key(function, 1), Took(1000));
  for (uint64_t function = 0; function < 200'000; ++function) {
    LaunchKey key = Key(function, 2 + function % 64);
    key.allocation = 2;
    for (int i = 0; i < 3; ++i) predictor.Learn(key, Took(5));
  }
  int known = 0;
  for (uint64_t function = 0; function < 500; ++function) {
    known += predictor.Predict(Key(function, 1)).samples != 0 ? 1 : 0;
  }
  EXPECT_GE(known, 495);
}

TEST(LaunchPredictor, ErrorsAreThoseOfWhatHadBeenPredicted) {
  LaunchPredictor predictor;
  predictor.Learn(Key(1), Took(1000));
  predictor.Learn(Key(1), Took(1200));
  EXPECT_EQ(predictor.errors().launches, 2u);
  EXPECT_EQ(predictor.errors().unknown, 1u);
  EXPECT_EQ(predictor.errors().measured_ns, 1200u);
  EXPECT_EQ(predictor.errors().absolute_error_ns, 200u);
}

TEST(LaunchPredictor, ErrorsOfWhatWasMeasuredAloneAreCountedByTheirSize) {
  LaunchPredictor predictor;
  EXPECT_EQ(predictor.errors().AlonePercent(0.5), 0u);
  predictor.Learn(Key(1), Took(1000));
  EXPECT_EQ(predictor.errors().alone_count(), 0u) << "nothing had been predicted";
  for (int i = 0; i < 8; ++i) predictor.Learn(Key(1), Took(1000));
  predictor.Learn(Key(1), Took(1250));
  predictor.Learn(Key(1), Took(100));
  // Beside others.
  predictor.Learn(Key(1), {2000, 4000});
  EXPECT_EQ(predictor.errors().alone_count(), 10u);
  EXPECT_EQ(predictor.errors().AlonePercent(0.5), 0u);
  EXPECT_EQ(predictor.errors().AlonePercent(0.9), 20u);
  EXPECT_EQ(predictor.errors().AlonePercent(1), 100u) << "and more";
}

// Full kernels of two tenants in turn: each is seen to end two lengths after the one before it of its stream.
TEST(LaunchPredictor, WhereOthersWereInTheWayTheLeastCounts) {
  LaunchPredictor predictor;
  for (int i = 0; i < 20; ++i) predictor.Learn(Key(1), {50'000, 100'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 50'000u);
}

TEST(LaunchPredictor, WhatWasMeasuredAloneIsBelievedAsLongAsItIsPossible) {
  LaunchPredictor predictor;
  for (int i = 0; i < 3; ++i) predictor.Learn(Key(1), Took(80'000));
  for (int i = 0; i < 20; ++i) predictor.Learn(Key(1), {i % 8 == 7 ? 75'000u : 20'000u, 100'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 80'000u);
  // It takes less now.
  for (int i = 0; i < 5; ++i) predictor.Learn(Key(1), {20'000, 60'000});
  EXPECT_LE(predictor.Predict(Key(1)).ns, 60'000u);
  for (int i = 0; i < 5; ++i) predictor.Learn(Key(1), {20'000, 60'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 20'000u);
}

// It loads code, and an idle device takes longer to begin.
TEST(LaunchPredictor, TheFirstLaunchIsNotBelievedAgainstBounds) {
  LaunchPredictor predictor;
  predictor.Learn(Key(1), Took(8'500'000));
  EXPECT_FALSE(predictor.Predict(Key(1)).alone);
  for (int i = 0; i < 2; ++i) predictor.Learn(Key(1), {200'000, 8'000'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 200'000u);
  EXPECT_FALSE(predictor.Predict(Key(1)).alone);
  for (int i = 0; i < 3; ++i) predictor.Learn(Key(1), Took(210'000));
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 210'000u);
  EXPECT_TRUE(predictor.Predict(Key(1)).alone);
}

// Full kernels of many tenants, of which the first ran before the others came: an idle device takes longer to begin, and no
// later one is ever alone.
TEST(LaunchPredictor, WhatBoundsNeverComeNearToIsNotBelievedForEver) {
  for (const int alone : {3, 5}) {
    SCOPED_TRACE(alone);
    LaunchPredictor predictor;
    for (int i = 0; i < alone; ++i) predictor.Learn(Key(1), Took(300'000));
    for (int i = 0; i < 15; ++i) predictor.Learn(Key(1), {200'000, 8'000'000});
    EXPECT_EQ(predictor.Predict(Key(1)).ns, 300'000u);
    for (int i = 0; i < 60; ++i) predictor.Learn(Key(1), {200'000, 8'000'000});
    EXPECT_EQ(predictor.Predict(Key(1)).ns, 200'000u);
    // From then on as if it had never been alone.
    for (int i = 0; i < 3; ++i) predictor.Learn(Key(1), {190'000, 8'000'000});
    EXPECT_EQ(predictor.Predict(Key(1)).ns, 190'000u);
  }
}

// The driver kept the thread for a millisecond while it loaded the kernel, and the end was seen then.
TEST(LaunchPredictor, WhatIsSeenLateWasNotMeasuredAlone) {
  LaunchPredictor predictor;
  for (int i = 0; i < 3; ++i)
    predictor.Learn(Key(1), {1'000'000, 1'000'000, /*late_ns=*/1'000'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 1'000'000u) << "nothing else is known";
  for (int i = 0; i < 3; ++i) predictor.Learn(Key(1), {200'000, 8'000'000, 10'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 200'000u);
}

// The device had done it some time before, on average half of the time in which nobody looked.
TEST(LaunchPredictor, WhatIsSeenALittleLateIsTakenToHaveEndedInBetween) {
  LaunchPredictor predictor;
  for (int i = 0; i < 3; ++i) predictor.Learn(Key(1), {220'000, 220'000, /*late_ns=*/20'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 210'000u);
}

TEST(LaunchPredictor, WhatIsSeenLateCastsNoDoubtOnWhatWasMeasuredAlone) {
  LaunchPredictor predictor;
  for (int i = 0; i < 6; ++i) predictor.Learn(Key(1), Took(300'000));
  for (int i = 0; i < 100; ++i) predictor.Learn(Key(1), {100'000, 900'000, 100'000});
  for (int i = 0; i < 100; ++i) predictor.Learn(Key(1), {400'000, 900'000, 200'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 300'000u);
  // But it certainly took no longer than until then.
  for (int i = 0; i < 3; ++i) predictor.Learn(Key(1), {50'000, 200'000, 50'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 200'000u);
}

// A kernel beside which others end, sometimes right before it: how long it takes alone is not forgotten.
TEST(LaunchPredictor, WhatABoundComesNearToNowAndThenIsBelieved) {
  LaunchPredictor predictor;
  for (int i = 0; i < 3; ++i) predictor.Learn(Key(1), Took(300'000));
  for (int i = 0; i < 200; ++i)
    predictor.Learn(Key(1), {i % 10 == 0 ? 280'000u : 40'000u, 900'000});
  EXPECT_EQ(predictor.Predict(Key(1)).ns, 300'000u);
}

TEST(LaunchPredictor, AnOwnerThatHasGoneIsForgotten) {
  LaunchPredictor predictor;
  predictor.Learn(Key(1, 1), Took(10));
  predictor.Learn(Key(1, 2), Took(20));
  predictor.Forget(1);
  EXPECT_EQ(predictor.Predict(Key(1, 1)).samples, 0u);
  EXPECT_EQ(predictor.Predict(Key(1, 2)).ns, 20u);
}

}  // namespace
}  // namespace gpuloom::arbiter
