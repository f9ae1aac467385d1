// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() {
    std::string name = ::testing::TempDir() + "stateXXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~StateFileTest() override { fs::remove_all(directory_); }
  std::string directory_;
};

TEST_F(StateFileTest, WhatWasWrittenIsReadThroughALinkToo) {
  ASSERT_TRUE(WriteStateFile(directory_ + "/file", "content").ok());
  fs::create_symlink("file", directory_ + "/link");
  EXPECT_EQ(*ReadStateFile(directory_ + "/link"), "content");
}

// Whoever reads them would wait for ever, or take memory without end.
TEST_F(StateFileTest, Malicious_WhatIsNoFileIsNotRead) {
  ASSERT_EQ(mkfifo((directory_ + "/fifo").c_str(), 0600), 0);
  for (const std::string& path : {directory_ + "/fifo", std::string("/dev/zero"), directory_}) {
    const auto content = ReadStateFile(path);
    EXPECT_EQ(content.status().code(), absl::StatusCode::kDataLoss) << path;
    EXPECT_THAT(content.status().message(), HasSubstr(path));
  }
}

TEST_F(StateFileTest, Malicious_AFileLargerThanAnyOfOursIsNotRead) {
  ASSERT_TRUE(WriteStateFile(directory_ + "/file", "content").ok());
  fs::resize_file(directory_ + "/file", uint64_t{1} << 40);
  EXPECT_THAT(ReadStateFile(directory_ + "/file").status().message(), HasSubstr("larger"));
}

}  // namespace
}  // namespace gpuloom
