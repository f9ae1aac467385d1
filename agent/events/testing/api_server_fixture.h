// SPDX-License-Identifier: Apache-2.0
// For tests of what talks to the API server: the stand-in for it (tests/fake_api_server), over TLS, with a service
// account.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/node/process.h"

namespace gpuloom {

class ApiServerFixture : public ::testing::Test {
 protected:
  using Json = nlohmann::json;

  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static bool Within(const std::function<bool()>& holds) {
    for (int i = 0; i < 6000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  // `program` starts fake_api_server.py, which reads `state`.
  ApiServerFixture(std::vector<std::string> program, Json state)
      : state_(std::move(state)), program_(std::move(program)) {}

  void SetUp() override {
    std::string name = ::testing::TempDir() + "api-serverXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    WriteState();
    program_.push_back(folder_);
    ASSERT_EQ(StartDetached(program_, environ, folder_ + "/server.log", &server_), 0);
    ASSERT_TRUE(Within([&] { return std::filesystem::exists(folder_ + "/port"); }))
        << Read(folder_ + "/server.log");
  }
  void TearDown() override {
    kill(server_, SIGKILL);
    waitpid(server_, nullptr, 0);
    std::filesystem::remove_all(folder_);
  }

  void WriteState() {
    std::ofstream(folder_ + "/state.new") << state_.dump();
    std::filesystem::rename(folder_ + "/state.new", folder_ + "/state.json");
  }
  std::string Server() const { return "https://127.0.0.1:" + Read(folder_ + "/port"); }

  std::string folder_;  // the server's; `account` is the service account's
  Json state_;

 private:
  std::vector<std::string> program_;
  pid_t server_ = 0;
};

}  // namespace gpuloom
