// SPDX-License-Identifier: Apache-2.0
#include "proto/trace/output_file.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace gpuloom::trace {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "output-file-XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/trace.json";
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Read() const {
    std::string text;
    std::getline(std::ifstream(path_), text);
    return text;
  }
  size_t Files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  std::string folder_, path_;
};

TEST_F(OutputFileTest, WhatWasThereStaysUntilTheTraceIsWhole) {
  std::ofstream(path_) << "before";
  {
    OutputFile output;
    ASSERT_TRUE(output.Open(path_));
    fputs("half", output.file());
    EXPECT_EQ(Read(), "before");
  }
  EXPECT_EQ(Read(), "before");
  EXPECT_EQ(Files(), 1u) << "nothing is left";
}

TEST_F(OutputFileTest, OnlyItsOwnerMayReadItWhateverWasThere) {
  std::ofstream(path_) << "before";
  fs::permissions(path_, fs::perms(0644));
  const std::string link = folder_ + "/link";
  fs::create_symlink(path_, link);
  OutputFile output;
  ASSERT_TRUE(output.Open(link));
  fputs("trace", output.file());
  ASSERT_TRUE(output.Finish());
  EXPECT_EQ(Read(), "trace");
  EXPECT_TRUE(fs::is_symlink(link));
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_F(OutputFileTest, WhatIsNoFileStaysWhatItIs) {
  OutputFile output;
  ASSERT_TRUE(output.Open("/dev/null"));
  fputs("trace", output.file());
  EXPECT_TRUE(output.Finish());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  OutputFile nowhere;
  EXPECT_FALSE(nowhere.Open(folder_ + "/none/trace"));
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace gpuloom::trace
