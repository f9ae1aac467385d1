// SPDX-License-Identifier: Apache-2.0
#include "agent/node/set_aside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class SetAsideTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "asideXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ + "/metrics.json";
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string SetAsideAFileOf(int number) {
    std::ofstream(path_) << number;
    return SetAside(path_, path_);
  }
  static std::string ContentOf(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }

  std::string folder_, path_;
};

TEST_F(SetAsideTest, WhatWasSetAsideBeforeStays) {
  EXPECT_EQ(SetAsideAFileOf(1), "set aside as " + path_ + ".bad");
  EXPECT_EQ(SetAsideAFileOf(2), "set aside as " + path_ + ".2.bad");
  EXPECT_EQ(SetAsideAFileOf(3), "set aside as " + path_ + ".3.bad");
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(ContentOf(path_ + ".bad"), "1");
  EXPECT_EQ(ContentOf(path_ + ".2.bad"), "2");
  EXPECT_EQ(ContentOf(path_ + ".3.bad"), "3");
}

// A disk that damages them again and again must not be filled by them, too.
TEST_F(SetAsideTest, OfMoreThanThereMayBeTheFirstAndTheNewestStay) {
  for (int i = 1; i <= kMostSetAside; ++i) EXPECT_THAT(SetAsideAFileOf(i), EndsWith(".bad"));
  EXPECT_THAT(SetAsideAFileOf(100),
              HasSubstr("metrics.json.8.bad, in place of the one before it: 8"));
  EXPECT_EQ(files(), static_cast<size_t>(kMostSetAside));
  EXPECT_EQ(ContentOf(path_ + ".bad"), "1");
  EXPECT_EQ(ContentOf(path_ + ".8.bad"), "100");
}

TEST_F(SetAsideTest, WhatCannotBeSetAsideIsSaid) {
  EXPECT_EQ(SetAside(path_, path_), "it stays there, because it cannot be set aside as " + path_ +
                                        ".bad: No such file or directory");
}

}  // namespace
}  // namespace gpuloom
