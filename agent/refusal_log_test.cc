// SPDX-License-Identifier: Apache-2.0
#include "agent/refusal_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace gpuloom {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RefusalLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "refusalsXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<KnownRefusal> Kept() const {
    std::string ignored;
    return ReadRefusals(folder_, &ignored).value_or(std::vector<KnownRefusal>());
  }

  std::string folder_;
  const Clock::Time now_{seconds(1'700'000'000)};
};

TEST_F(RefusalLogTest, WhatWasRefusedOutlivesTheAgent) {
  {
    RefusalLog log(folder_);
    log.Look({}, now_);
    EXPECT_THAT(Kept(), IsEmpty());
    log.Look({{"PreStartContainer", "policy: no", 2}}, now_);
    log.Look({{"Allocate", "no GPU has 4", 1}, {"PreStartContainer", "policy: no", 2}},
             now_ + seconds(5));
    log.Look({{"Allocate", "no GPU has 4", 1}, {"PreStartContainer", "policy: no", 2}},
             now_ + seconds(6));
  }
  EXPECT_THAT(Kept(),
              ElementsAre(KnownRefusal{"Allocate", "no GPU has 4", 1, 1'700'000'005},
                          KnownRefusal{"PreStartContainer", "policy: no", 2, 1'700'000'000}));
  RefusalLog log(folder_);
  log.Look({{"PreStartContainer", "policy: no", 3}}, now_ + seconds(60));
  EXPECT_THAT(Kept(), ElementsAre(KnownRefusal{"PreStartContainer", "policy: no", 5, 1'700'000'060},
                                  KnownRefusal{"Allocate", "no GPU has 4", 1, 1'700'000'005}));
}

// Each write is an fsync on the agent's loop.
TEST_F(RefusalLogTest, Malicious_PodsWithoutEndAreWrittenNowAndThen) {
  RefusalLog log(folder_);
  std::set<uint64_t> files;
  Clock::Time now = now_;
  for (int i = 1; i <= 50; ++i) {
    log.Look({{"PreStartContainer", "policy: no", static_cast<uint64_t>(i)}}, now);
    const auto kept = Kept();
    ASSERT_EQ(kept.size(), 1u) << "the first at once";
    files.insert(kept.front().times);
    now += std::chrono::milliseconds(200);
  }
  EXPECT_EQ(files.size(), 2u) << "of 10 s";
  // Nothing more comes, and what came last is written.
  now += RefusalLog::kPause;
  log.Look({{"PreStartContainer", "policy: no", 50}}, now);
  EXPECT_EQ(Kept().front().times, 50u);
}

TEST_F(RefusalLogTest, Malicious_OneNamespacesPodsLeaveTheOthers) {
  const KnownRefusal other{"PreStartContainer", "pod b/p", 1, 1'700'000'000, "b"};
  RefusalLog(folder_).Look({{"PreStartContainer", "pod b/p", 1, "b"}},
                           Clock::Time(seconds(other.last_unix_s)));
  RefusalLog log(folder_);
  for (int i = 1; i < 500; ++i) {
    log.Look({{"PreStartContainer", "pod a/" + std::to_string(i), 1, "a"}},
             Clock::Time(seconds(other.last_unix_s + 5 * i)));
  }
  const auto kept = Kept();
  EXPECT_EQ(kept.size(), RefusalLog::kMostKept);
  EXPECT_EQ(kept.front().reason, "pod a/499");
  EXPECT_EQ(kept.back(), other);
}

TEST_F(RefusalLogTest, Malicious_PodsWithoutEndAreBounded) {
  RefusalLog log(folder_);
  for (int i = 0; i < 500; ++i) {
    log.Look({{"PreStartContainer", "pod " + std::to_string(i), 1}}, now_ + seconds(5 * i));
  }
  const auto kept = Kept();
  EXPECT_EQ(kept.size(), RefusalLog::kMostKept);
  EXPECT_EQ(kept.front().reason, "pod 499");
}

// As of a disk's error.
TEST_F(RefusalLogTest, WhatCannotBeReadForAMomentIsNotWrittenOver) {
  RefusalLog(folder_).Look({{"PreStartContainer", "policy: no", 2}}, now_);
  const std::string file = RefusalPath(folder_);
  std::filesystem::rename(file, file + ".there");
  std::filesystem::create_directory(file);
  RefusalLog log(folder_);
  log.Look({{"PreStartContainer", "policy: no", 1}}, now_ + seconds(10));
  EXPECT_TRUE(std::filesystem::is_directory(file));
  EXPECT_THAT(Kept(), IsEmpty());
  std::filesystem::remove(file);
  std::filesystem::rename(file + ".there", file);
  log.Look({{"Allocate", "no GPU has 4", 1}, {"PreStartContainer", "policy: no", 1}},
           now_ + seconds(20));
  EXPECT_THAT(Kept(),
              ElementsAre(KnownRefusal{"Allocate", "no GPU has 4", 1, 1'700'000'020},
                          KnownRefusal{"PreStartContainer", "policy: no", 3, 1'700'000'010}));
}

TEST_F(RefusalLogTest, WhatCannotBeReadIsNone) {
  for (const char* text : {"", "{", "{}", "[1, {}, {\"call\": 1, \"reason\": \"\"}]"}) {
    std::ofstream(RefusalPath(folder_)) << text;
    EXPECT_THAT(Kept(), IsEmpty()) << text;
  }
}

}  // namespace
}  // namespace gpuloom
