// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/work_counts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "agent/executor/stream/stream_command.h"
#include "agent/executor/stream/tally.h"

namespace gpuloom::executor {
namespace {

void Count(const StreamCommand& command, control::WorkCounts* counts) {
  CountCopy(command, EngineOf(command).value(), counts);
}

TEST(WorkCounts, AHistogramHasABoundInTheBucketThatItEnds) {
  control::Histogram histogram{};
  uint64_t sum_ns = 0;
  for (size_t i = 0; i < std::size(control::kHistogramBoundsNs); ++i) {
    for (const uint64_t ns : {control::kHistogramBoundsNs[i], control::kHistogramBoundsNs[i] + 1}) {
      Observe(ns, &histogram);
      sum_ns += ns;
    }
    EXPECT_EQ(histogram.counts[i], i == 0 ? 1u : 2u);
    EXPECT_EQ(histogram.counts[i + 1], 1u);
  }
  EXPECT_EQ(histogram.sum_ns, sum_ns);
  Observe(0, &histogram);
  EXPECT_EQ(histogram.counts[0], 2u);
  Observe(UINT64_MAX / 2, &histogram);
  EXPECT_EQ(histogram.counts[control::kHistogramCounts - 1], 2u);
}

TEST(WorkCounts, CopiesAreCountedByDirection) {
  control::WorkCounts counts{};
  const auto copy = [&counts](wire::CopyKind kind, uint64_t bytes) {
    StreamCommand command{};
    wire::Copy::Request request{};
    request.kind = kind;
    request.size_bytes = bytes;
    command.work = CopyWork{request};
    Count(command, &counts);
  };
  copy(wire::CopyKind::kHostToDevice, 1);
  copy(wire::CopyKind::kHostToDevice, 2);
  copy(wire::CopyKind::kDeviceToHost, 30);
  copy(wire::CopyKind::kDeviceToDevice, 400);
  copy(wire::CopyKind::kHostToHost, 5000);
  EXPECT_EQ(counts.copies_to_device, 2u);
  EXPECT_EQ(counts.bytes_to_device, 3u);
  EXPECT_EQ(counts.copies_from_device, 1u);
  EXPECT_EQ(counts.bytes_from_device, 30u);
  EXPECT_EQ(counts.copies_on_device, 1u);
  EXPECT_EQ(counts.bytes_on_device, 400u);
}

TEST(WorkCounts, BlocksAreCountedByWhatTheyCopy) {
  control::WorkCounts counts{};
  StreamCommand command{};
  CopyBlockWork block;
  block.copy = {};
  block.copy.width_bytes = 10;
  block.copy.height = 3;
  block.copy.depth = 2;
  block.copy.from.space = wire::GraphCopySpace::kHost;
  block.copy.to.space = wire::GraphCopySpace::kDevice;
  command.work = block;
  Count(command, &counts);
  std::swap(block.copy.from, block.copy.to);
  command.work = block;
  Count(command, &counts);
  EXPECT_EQ(counts.bytes_to_device, 60u);
  EXPECT_EQ(counts.bytes_from_device, 60u);
  command.work = FillWork{};
  Count(command, &counts);
  EXPECT_EQ(counts.copies_to_device + counts.copies_from_device + counts.copies_on_device, 2u);
}

}  // namespace
}  // namespace gpuloom::executor
