// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/kubelet_record.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using std::chrono::minutes;

const Clock::Time kNow{std::chrono::seconds(1'700'000'000)};

class KubeletRecordTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "kubelet_recordXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
  }
  void TearDown() override { fs::remove_all(state_); }
  Clock::Time FirstSeen(const std::string& id, Clock::Time now) {
    const auto seen = KubeletRecord(state_).FirstSeen(id, now);  // each time another agent
    EXPECT_TRUE(seen.ok()) << seen.status();
    return seen.value_or(Clock::Time());
  }
  std::string state_;
};

TEST_F(KubeletRecordTest, TheSameKubeletIsNotNewToTheNextAgent) {
  EXPECT_EQ(FirstSeen("1:2:3", kNow), kNow);
  EXPECT_EQ(FirstSeen("1:2:3", kNow + minutes(3)), kNow);
  EXPECT_EQ(FirstSeen("1:2:4", kNow + minutes(4)), kNow + minutes(4));
  EXPECT_EQ(FirstSeen("1:2:4", kNow + minutes(9)), kNow + minutes(4));
}

TEST_F(KubeletRecordTest, ARecordThatMakesNoSenseIsNoEvidence) {
  EXPECT_EQ(FirstSeen("a", kNow), kNow);
  // From a time that has not come: the machine lost its date.
  EXPECT_EQ(FirstSeen("a", kNow - minutes(1)), kNow - minutes(1));
  std::ofstream(state_ + "/kubelet.yaml") << "kubelet: [";
  EXPECT_EQ(FirstSeen("a", kNow + minutes(1)), kNow + minutes(1));
}

TEST(KubeletRecordOnNoDisk, SaysSo) {
  EXPECT_FALSE(KubeletRecord("/nonexistent").FirstSeen("a", kNow).ok());
}

}  // namespace
}  // namespace gpuloom
