// SPDX-License-Identifier: Apache-2.0
// A kubelet's directory in which anything may lie. Registering with a kubelet that answers: tests/integration.
#include "agent/plugin/registrar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>

#include "agent/plugin/device_board.h"
#include "agent/plugin/plugin_socket.h"
#include "agent/testing/clock.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

class RegistrarTest : public ::testing::Test {
 protected:
  RegistrarTest() {
    std::string name = ::testing::TempDir() + "kubeletXXXXXX";
    directory_ = mkdtemp(name.data());
    registrar_.emplace(Registrar::Options{directory_, "gpuloom-00000001.sock", "gpuloom.io/gpu",
                                          [this](const std::string&) { ++kubelets_; }},
                       &server_, &refusing_, &clock_);
  }
  ~RegistrarTest() override {
    server_.Stop();
    fs::remove_all(directory_);
  }

  std::string Kubelet() const { return directory_ + "/kubelet.sock"; }
  void Tick() {
    clock_.Advance(Registrar::kRetryPause);
    registrar_->Tick(/*may_register=*/true, /*has_predecessor=*/false);
  }

  std::string directory_;
  TestingClock clock_;
  DeviceBoard board_{{}, 1};
  RefusedRequests refusals_{{}};
  PluginServer server_{{&board_, nullptr, &refusals_}};  // nobody allocates
  PluginServer refusing_{{&board_, nullptr, &refusals_, 1, PluginServer::Answers::kNoOptions}};
  std::optional<Registrar> registrar_;
  int kubelets_ = 0;
};

TEST_F(RegistrarTest, Malicious_WhatIsNoSocketIsNoKubelet) {
  const std::function<void()> make[] = {[this] { ASSERT_EQ(mkfifo(Kubelet().c_str(), 0600), 0); },
                                        [this] { std::ofstream(Kubelet()) << "a file"; },
                                        [this] { fs::create_directory(Kubelet()); },
                                        [this] { fs::create_symlink("/dev/zero", Kubelet()); },
                                        [this] { fs::create_symlink(Kubelet(), Kubelet()); }};
  for (const auto& one : make) {
    one();
    Tick();
    EXPECT_FALSE(registrar_->is_registered());
    fs::remove_all(Kubelet());
  }
  EXPECT_EQ(kubelets_, 0);
}

TEST_F(RegistrarTest, Malicious_ADirectoryThatIsGoneOrAFileIsWaitedFor) {
  Tick();
  fs::remove_all(directory_);
  Tick();
  std::ofstream(directory_) << "a file";
  Tick();
  fs::remove(directory_);
  fs::create_directory(directory_);
  Tick();
  EXPECT_TRUE(fs::is_socket(directory_ + "/gpuloom-00000001.sock"));
}

TEST_F(RegistrarTest, Malicious_AKubeletThatNeverAnswersCostsTheTimeoutOnly) {
  const channel::UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  Kubelet().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(fd.get(), 4), 0);
  Tick();
  EXPECT_EQ(kubelets_, 1);
  EXPECT_FALSE(registrar_->is_registered());
}

TEST_F(RegistrarTest, Malicious_WhatLiesUnderOurNamesIsTakenAwayOrLeft) {
  const std::string target = directory_ + "/target";
  std::ofstream(target) << "of somebody else";
  ASSERT_EQ(mkfifo((directory_ + "/gpuloom-fifo.sock").c_str(), 0600), 0);
  fs::create_symlink(target, directory_ + "/gpuloom-link.sock");
  fs::create_directory(directory_ + "/gpuloom-folder.sock");
  Tick();
  // The link, not what it leads to.
  EXPECT_TRUE(fs::exists(target));
  EXPECT_FALSE(fs::is_symlink(directory_ + "/gpuloom-link.sock"));
  EXPECT_TRUE(fs::is_socket(directory_ + "/gpuloom-00000001.sock"));
}

}  // namespace
}  // namespace gpuloom
