// SPDX-License-Identifier: Apache-2.0
#include "agent/run/tenant_since.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace gpuloom::run {
namespace {

TEST(SinceOf, TheAgentsRecordOrTheFolderOfTheCommand) {
  std::string state = ::testing::TempDir() + "sinceXXXXXX";
  ASSERT_NE(mkdtemp(state.data()), nullptr);
  const std::string folder = state + "/gpus/GPU-1";
  std::filesystem::create_directories(folder + "/run-1");
  std::filesystem::create_directories(state + "/records");
  std::ofstream(state + "/records/a.yaml")
      << "name: \"boundAtMs: 7\"\ngpu: g\ndevices: []\nbinding:\n  pod: \"boundAtMs: 8\"\n  "
         "boundAtMs: 1700000000123\n";
  std::ofstream(state + "/records/b.yaml") << "name: \"b\"\ngpu: g\ndevices: []\n";
  EXPECT_EQ(SinceOf(folder, "a"), 1'700'000'000);
  EXPECT_EQ(SinceOf(folder, "b"), 0) << "not bound";
  EXPECT_EQ(SinceOf(folder, "c"), 0);
  EXPECT_GT(SinceOf(folder, "run-1"), 1'700'000'000);
  for (const char* wrong : {"", "..", "../records", "/etc/passwd"}) {
    EXPECT_EQ(SinceOf(folder, wrong), 0) << wrong;
  }
  // It is the time of the agent's clock, which began this boot in 1970.
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::ofstream(state + "/clock.yaml") << "boot: \"" << boot << "\"\nsinceBootMs: 0\ntimeMs: 0\n";
  EXPECT_GT(SinceOf(folder, "a"), 3'000'000'000);
  std::filesystem::remove_all(state);
}

TEST(TimeText, IsUtc) { EXPECT_EQ(TimeText(1'700'000'000), "2023-11-14 22:13:20"); }

}  // namespace
}  // namespace gpuloom::run
