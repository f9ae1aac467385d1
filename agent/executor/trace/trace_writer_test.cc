// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/trace/trace_writer.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "proto/channel/region.h"

namespace gpuloom::executor {
namespace {

using wire::TraceHeader;
using wire::TraceRecord;

class TraceWriterTest : public ::testing::Test {
 protected:
  TraceWriterTest() {
    EXPECT_TRUE(writer_.Map(memory_.get()));
    EXPECT_TRUE(
        mapping_.Map(memory_.get(), wire::kTraceRegionBytes, channel::Mapping::Access::kReadOnly));
    writer_.Begin(wire::TraceSource::kOwn, "no CUPTI", 5);
  }
  const TraceHeader& header() const {
    return *reinterpret_cast<const TraceHeader*>(mapping_.data());
  }
  const TraceRecord& record(uint64_t index) const {
    return reinterpret_cast<const TraceRecord*>(mapping_.data() + wire::kTraceRecordsAt)[index];
  }
  const char* name(uint32_t place) const {
    return reinterpret_cast<const char*>(mapping_.data()) + wire::kTraceNamesAt + place;
  }

  channel::UniqueFd memory_ = channel::MakeSealedMemory("trace", wire::kTraceRegionBytes);
  channel::Mapping mapping_;
  TraceWriter writer_;
};

TEST_F(TraceWriterTest, RecordsAndNamesAreInTheRegion) {
  EXPECT_STREQ(header().source_reason, "no CUPTI");
  EXPECT_EQ(header().begin_ns, 5u);
  TraceRecord one{};
  one.session_id = 7;
  one.name = writer_.Name("vadd");
  writer_.Write(one);
  EXPECT_EQ(header().records, 1u);
  EXPECT_EQ(record(0).session_id, 7u);
  EXPECT_STREQ(name(record(0).name), "vadd");
  EXPECT_EQ(writer_.Name("vadd"), one.name) << "each name once";
  EXPECT_NE(writer_.Name("other"), one.name);
  EXPECT_EQ(writer_.Name(""), 0u);
}

TEST_F(TraceWriterTest, WhatHasNoRoomIsDroppedAndCounted) {
  for (uint64_t i = 0; i < wire::kTraceRecords + 3; ++i) {
    TraceRecord one{};
    one.begin_ns = i;
    writer_.Write(one);
  }
  EXPECT_EQ(header().records, wire::kTraceRecords);
  EXPECT_EQ(header().dropped, 3u);
  EXPECT_EQ(record(wire::kTraceRecords - 1).begin_ns, wire::kTraceRecords - 1);
}

TEST_F(TraceWriterTest, Malicious_NamesWithoutEndHaveABound) {
  const std::string longest(wire::kTraceLongestName, 'x');
  EXPECT_STREQ(name(writer_.Name(longest + "y")), longest.c_str());
  uint32_t last = 1;
  for (int i = 0; last != 0; ++i) {
    ASSERT_LT(i, 2000);
    last = writer_.Name(std::to_string(i) + longest);
  }
  EXPECT_LE(header().name_bytes, wire::kTraceNameBytes);
  TraceRecord one{};
  one.name = last;
  writer_.Write(one);
  EXPECT_EQ(header().records, 1u) << "a record without a name is one";
}

TEST(TraceWriter, Malicious_MemoryThatCouldShrinkIsNotMapped) {
  const channel::UniqueFd file(memfd_create("trace", 0));
  ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(wire::kTraceRegionBytes)), 0);
  TraceWriter writer;
  EXPECT_FALSE(writer.Map(file.get()));
  EXPECT_FALSE(writer.mapped());
}

}  // namespace
}  // namespace gpuloom::executor
