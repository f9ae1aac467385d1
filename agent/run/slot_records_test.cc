// SPDX-License-Identifier: Apache-2.0
#include "agent/run/slot_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SlotRecordsTest : public ::testing::Test {
 protected:
  SlotRecordsTest() {
    state_ = ::testing::TempDir() + "slot-records-XXXXXX";
    EXPECT_NE(mkdtemp(state_.data()), nullptr);
  }
  ~SlotRecordsTest() override { fs::remove_all(state_); }

  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories(state_ + "/records");
    std::ofstream(state_ + "/records/" + name) << text;
  }

  std::string state_;
};

// As agent/identity/allocation_record.cc writes them.
TEST_F(SlotRecordsTest, WhoHoldsSlotsIsReadFromTheAgentsRecords) {
  Write("b.yaml",
        "format: 1\nname: \"b\"\ngpu: \"GPU-1\"\nshim: \"s\"\nnvml: \"n\"\ntrace: \"\"\n"
        "autoSlotBytes: 10\ncreatedAtMs: 1000\ndevices:\n  - \"GPU-1::0\"\n  - \"GPU-1::1\"\n"
        "binding:\n  namespace: \"team-a\"\n  pod: \"train-7\\x1b[2J\"\n  container: \"main\"\n"
        "  trustDomain: \"team-a\"\n  quotaBytes: 20\n  boundAtMs: 1700000000123\n");
  // A device of a shape is as many slots as are written down, and its pod has not started.
  Write("a.yaml",
        "format: 1\nname: \"a\"\ngpu: \"GPU-2\"\nshim: \"s\"\ncreatedAtMs: 1000\ndevices:\n  - "
        "\"GPU-2::4x0\"\nslots: [6, 7, 8, 9]\n");
  Write("c.bad", "set aside");
  const SlotRecords all = ReadSlotRecords(state_);
  EXPECT_THAT(all.troubles, IsEmpty());
  ASSERT_EQ(all.records.size(), 2u);
  const SlotRecord& waiting = all.records[0];
  EXPECT_EQ(waiting.allocation, "a");
  EXPECT_FALSE(waiting.is_bound);
  EXPECT_EQ(waiting.slots, 4u);
  EXPECT_EQ(waiting.folder, state_ + "/gpus/GPU-2");
  const SlotRecord& runs = all.records[1];
  EXPECT_TRUE(runs.is_bound);
  EXPECT_EQ(runs.slots, 2u);
  EXPECT_EQ(runs.pod_namespace, "team-a");
  EXPECT_EQ(runs.pod, "train-7\\x1b[2J");
  EXPECT_EQ(runs.container, "main");
  EXPECT_EQ(runs.trust_domain, "team-a");
  EXPECT_EQ(runs.quota_bytes, 20u);
  EXPECT_EQ(runs.since_unix_s, 1'700'000'000);
  EXPECT_THAT(runs.libraries, ElementsAre("s", "n"));
}

TEST_F(SlotRecordsTest, WhatCannotBeReadIsSaidAndCostsNoOther) {
  EXPECT_THAT(ReadSlotRecords(state_).troubles, IsEmpty()) << "no agent has given any";
  for (const char* text : {"", "[]", "{", "name: \"a\"\n"}) {
    Write("wrong.yaml", text);
    Write("good.yaml", "name: \"good\"\ngpu: \"GPU-1\"\ndevices: [\"x\"]\n");
    const SlotRecords all = ReadSlotRecords(state_);
    EXPECT_EQ(all.records.size(), 1u) << text;
    EXPECT_THAT(all.troubles, ElementsAre(HasSubstr("wrong.yaml cannot be read: "))) << text;
    EXPECT_FALSE(ReadSlotRecord(state_, "wrong").has_value());
  }
  EXPECT_TRUE(ReadSlotRecord(state_, "good").has_value());
  fs::remove_all(state_ + "/records");
  std::ofstream(state_ + "/records") << "no folder";
  EXPECT_THAT(ReadSlotRecords(state_).troubles, ElementsAre(HasSubstr("/records cannot be read")));
}

}  // namespace
}  // namespace gpuloom::run
