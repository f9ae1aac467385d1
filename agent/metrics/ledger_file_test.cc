// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/ledger_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "agent/identity/kept_text.h"
#include "agent/metrics/exposition.h"
#include "agent/metrics/testing/reports.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class LedgerFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "ledgerXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = directory_ / "metrics.json";
    control::AllocationState a = AllocationOf("a1", "red", "p");
    Use(&a, 3);
    a.memory_used_bytes = 5000;
    control::SetText(a.unsupported, "cuGraphicsMapResources\nx\n");
    ledger_.Add(kGpu, ReportOf({a}, 100), true, now_);
    now_ += std::chrono::milliseconds(1234);
    ledger_.Add(kGpu, ReportOf({a}, 101.234), false, now_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  fs::path directory_;
  std::string path_;
  Clock::Time now_{std::chrono::seconds(1'700'000'000)};
  Ledger ledger_;
};

TEST_F(LedgerFile, WhatWasCountedComesBackToTheFigure) {
  const absl::StatusOr<Ledger> read = ParseLedger(FormatLedger(ledger_));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(FormatLedger(*read), FormatLedger(ledger_));
  // And counts on from there as if nobody had been away.
  Ledger after = *read;
  control::AllocationState a = AllocationOf("a1", "red", "p");
  Use(&a, 5);
  a.memory_used_bytes = 1;
  now_ += std::chrono::seconds(10);
  for (Ledger* ledger : {&ledger_, &after}) {
    ledger->Add(kGpu, ReportOf({a}, 111.234), true, now_);
  }
  EXPECT_EQ(FormatMetrics(after, {}, {}, {}), FormatMetrics(ledger_, {}, {}, {}));
  EXPECT_EQ(after.namespaces["red"].counts.kernels, 50u);
}

TEST_F(LedgerFile, NoFileIsAnEmptyLedger) {
  std::string complaint;
  EXPECT_TRUE(LoadLedger(path_, now_, &complaint)->namespaces.empty());
  EXPECT_EQ(complaint, "");
}

// The date was wrong when it was written, by a year, and is right now.
TEST_F(LedgerFile, WhatWasSeenInTheFutureIsForgottenAsIfItWereSeenNow) {
  now_ += std::chrono::hours(24 * 365);
  control::AllocationState a = AllocationOf("a1", "red", "p");
  ledger_.Add(kGpu, ReportOf({a}, 110), false, now_);
  ASSERT_TRUE(KeepText(path_, FormatLedger(ledger_)).ok());
  now_ -= std::chrono::hours(24 * 365);
  std::string complaint;
  Ledger loaded = *LoadLedger(path_, now_, &complaint);
  EXPECT_EQ(complaint, "");
  EXPECT_EQ(loaded.namespaces["red"].last_seen, now_);
  EXPECT_EQ(loaded.gpus[kGpu].reported_at, now_);
  loaded.Forget(now_ + Ledger::kLinger);
  EXPECT_EQ(loaded.tenants.size(), 1u);
  EXPECT_FALSE(loaded.gpus[kGpu].domains.empty());
  loaded.Forget(now_ + Ledger::kLinger + std::chrono::seconds(1));
  EXPECT_TRUE(loaded.tenants.empty());
  EXPECT_TRUE(loaded.gpus[kGpu].domains.empty());
  EXPECT_EQ(loaded.namespaces.size(), 1u) << "which charge-back needs";
}

TEST_F(LedgerFile, ADamagedFileIsSaidSetAsideAndBegunAnew) {
  ASSERT_TRUE(KeepText(path_, FormatLedger(ledger_)).ok());
  std::string complaint;
  EXPECT_EQ(LoadLedger(path_, now_, &complaint)->namespaces.size(), 1u);
  EXPECT_EQ(complaint, "");
  for (const std::string text : {"", "{", "half a ledger"}) {
    std::ofstream(path_) << text;
    EXPECT_TRUE(LoadLedger(path_, now_, &complaint)->namespaces.empty());
    EXPECT_THAT(complaint,
                AllOf(HasSubstr(path_ + " is damaged"), HasSubstr("counting from 0 again"),
                      HasSubstr("set aside as " + path_ + ".")));
    EXPECT_FALSE(fs::exists(path_));
    EXPECT_TRUE(fs::exists(path_ + ".bad"));
  }
  EXPECT_TRUE(fs::exists(path_ + ".2.bad")) << "the first one shows best how it began";
  EXPECT_TRUE(fs::exists(path_ + ".3.bad"));
}

// As of a disk's error, or a process without file descriptors.
TEST_F(LedgerFile, AFileThatCannotBeReadNowIsKept) {
  fs::create_symlink(path_, path_);
  std::string complaint;
  EXPECT_FALSE(LoadLedger(path_, now_, &complaint).has_value());
  EXPECT_THAT(complaint, AllOf(HasSubstr("metrics: state: " + path_ + ": open: "),
                               HasSubstr("read again"), HasSubstr("move that file away")));
  EXPECT_TRUE(fs::is_symlink(path_));
  // What lies there instead will never be one.
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_TRUE(LoadLedger(path_, now_, &complaint)->namespaces.empty());
  EXPECT_THAT(complaint, HasSubstr("is not a file; counting from 0 again; set aside as "));
  EXPECT_TRUE(fs::is_directory(path_ + ".bad"));
}

TEST_F(LedgerFile, Malicious_WhatIsNoLedgerIsNotTaken) {
  const std::string good = FormatLedger(ledger_);
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    EXPECT_NE(at, text.npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const std::string& text :
       {std::string("[]"), std::string("{}"), with("\"format\":1", "\"format\":2"),
        with("\"slots\":2", "\"slots\":\"two\""), with("\"slots\":2", "\"lots\":2"),
        with("\"counts\":[", "\"counts\":[1,"),
        with("\"memory_byte_seconds\":", "\"memory_byte_seconds\":-")}) {
    EXPECT_FALSE(ParseLedger(text).ok()) << text;
    ASSERT_TRUE(KeepText(path_, text).ok());
    std::string complaint;
    EXPECT_TRUE(LoadLedger(path_, now_, &complaint)->namespaces.empty());
    EXPECT_THAT(complaint,
                AllOf(HasSubstr("metrics: " + path_), HasSubstr("counting from 0 again")));
  }
}

}  // namespace
}  // namespace gpuloom
