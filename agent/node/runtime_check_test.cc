// SPDX-License-Identifier: Apache-2.0
#include "agent/node/runtime_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

TEST(RuntimeCheck, TheNvidiaRuntimesSettingIsRead) {
  std::string folder = ::testing::TempDir() + "runtimeXXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/config.toml";
  EXPECT_EQ(CheckNvidiaRuntime(path), "");
  EXPECT_EQ(ReadRuntimeConfig(path), RuntimeConfig::kMissing);
  std::ofstream(path) << "#accept-nvidia-visible-devices-envvar-when-unprivileged = false\n[x]\n";
  EXPECT_THAT(CheckNvidiaRuntime(path),
              HasSubstr("accept-nvidia-visible-devices-envvar-when-unprivileged = false"));
  std::ofstream(path) << "accept-nvidia-visible-devices-envvar-when-unprivileged = true\n";
  EXPECT_EQ(ReadRuntimeConfig(path), RuntimeConfig::kAllows);
  std::ofstream(path) << "accept-nvidia-visible-devices-envvar-when-unprivileged = false # ours\n";
  EXPECT_EQ(CheckNvidiaRuntime(path), "");
  std::ofstream(path) << "  accept-nvidia-visible-devices-envvar-when-unprivileged=false\r\n";
  EXPECT_EQ(ReadRuntimeConfig(path), RuntimeConfig::kForbids);
  // The runtime does not look there.
  std::ofstream(path) << "disable-require = false\n  [nvidia-container-cli]\n"
                         "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n";
  EXPECT_EQ(ReadRuntimeConfig(path), RuntimeConfig::kAllows);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gpuloom
