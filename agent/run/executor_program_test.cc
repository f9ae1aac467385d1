// SPDX-License-Identifier: Apache-2.0
#include "agent/run/executor_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(ExecutorProgram, ItsTwoLines) {
  const ExecutorProgram its = ReadExecutorVersion(
      "gpuloom-executor 0.2.0 (abc), wire 1.2, control 3.7\nCUPTI: libcupti.so.1, API 17, /c\n");
  EXPECT_EQ(its.version, "0.2.0 (abc)");
  EXPECT_EQ(its.cupti, "libcupti.so.1, API 17, /c");
  EXPECT_EQ(its.why_no_cupti + its.trouble, "");
  EXPECT_EQ(ReadExecutorVersion("gpuloom-executor 1\nno CUPTI: why").why_no_cupti, "why");
  const ExecutorProgram older = ReadExecutorVersion("gpuloom-executor 0.2.0 (abc), wire 1.3\n");
  EXPECT_EQ(older.version, "0.2.0 (abc)");
  EXPECT_EQ(older.cupti + older.why_no_cupti + older.trouble, "");
}

TEST(ExecutorProgram, AnythingElseSaysNothing) {
  for (const char* said : {"", "\n\n", "usage: gpuloom-executor 1", "CUPTI"}) {
    const ExecutorProgram its = ReadExecutorVersion(said);
    EXPECT_EQ(its.version + its.cupti, "") << said;
    EXPECT_EQ(its.trouble, "it does not say its version") << said;
  }
  EXPECT_EQ(ReadExecutorVersion("gpuloom-executor 1\x1b[2J\n").version, "1\\x1b[2J");
}

TEST(ExecutorProgram, OneThatIsMissingIsNamed) {
  std::string root = ::testing::TempDir() + "executorXXXXXX";
  ASSERT_NE(mkdtemp(root.data()), nullptr);
  EXPECT_THAT(AskExecutorProgram(root + "/bin/gpuloom").trouble,
              HasSubstr("/gpuloom-executor: No such file"));
  fs::remove_all(root);
}

}  // namespace
}  // namespace gpuloom::run
