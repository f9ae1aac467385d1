// SPDX-License-Identifier: Apache-2.0
#include "agent/node/list_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

namespace gpuloom {
namespace {

TEST(ListFolder, HasAllEntries) {
  std::string folder = ::testing::TempDir() + "list_folderXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/a");
  std::filesystem::create_directory(folder + "/b");
  std::error_code error = std::make_error_code(std::errc::io_error);
  EXPECT_THAT(ListFolder(folder, &error),
              ::testing::UnorderedElementsAre(folder + "/a", folder + "/b"));
  EXPECT_FALSE(error) << error.message();
  std::filesystem::remove_all(folder);
}

TEST(ListFolder, SaysThatThereIsNone) {
  std::error_code error;
  EXPECT_THAT(ListFolder(::testing::TempDir() + "no-such-folder", &error), ::testing::IsEmpty());
  EXPECT_EQ(error, std::errc::no_such_file_or_directory);
}

}  // namespace
}  // namespace gpuloom
