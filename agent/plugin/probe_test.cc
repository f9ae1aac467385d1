// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/probe.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "agent/plugin/device_board.h"
#include "agent/plugin/plugin_server.h"

namespace gpuloom {
namespace {

class ProbeTest : public ::testing::Test {
 protected:
  ProbeTest() {
    std::string name = ::testing::TempDir() + "probeXXXXXX";
    directory_ = mkdtemp(name.data());
  }
  ~ProbeTest() override { std::filesystem::remove_all(directory_); }

  std::string directory_;
  DeviceBoard board_{{}, 10};
  PluginServer server_{{&board_}};
  PluginServer refusing_{{&board_, nullptr, nullptr, 1, PluginServer::Answers::kNoOptions}};
};

// In which order the sockets are listed is the file system's affair.
TEST_F(ProbeTest, WhatIsToBeMendedIsToldWhateverTheOtherSocketsSay) {
  board_.SetTrouble("policy: mend it");
  const std::string a = directory_ + "/gpuloom-a.sock", b = directory_ + "/gpuloom-b.sock";
  for (const bool is_a : {true, false}) {
    for (const bool is_first : {true, false}) {
      PluginServer& first = is_first ? server_ : refusing_;
      PluginServer& second = is_first ? refusing_ : server_;
      ASSERT_TRUE(first.Start(is_a == is_first ? a : b).ok());
      ASSERT_TRUE(second.Start(is_a == is_first ? b : a).ok());
      EXPECT_EQ(std::string(Probe(directory_, ProbeKind::kReady).message()), "policy: mend it");
      EXPECT_TRUE(Probe(directory_, ProbeKind::kLive).ok());
      server_.Stop();
      refusing_.Stop();
    }
  }
  EXPECT_TRUE(absl::IsUnavailable(Probe(directory_, ProbeKind::kReady)));
}

}  // namespace
}  // namespace gpuloom
