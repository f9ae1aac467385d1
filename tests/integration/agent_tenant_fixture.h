// SPDX-License-Identifier: Apache-2.0
// For tests of gpuloom-agent with CUDA programs in pods: kubelet stand-in, agent, scheduler, executor and shim together. The
// node runs from SetUp on. GPULOOM_SHIM_PATH, GPULOOM_PROGRAMS, GPULOOM_TENANT and GPULOOM_RESTING_TENANT say what pods are
// given and run. One thread.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/fake_kubelet/container_process.h"
#include "tests/integration/agent_process.h"
#include "tests/integration/process.h"

namespace gpuloom {

inline constexpr std::chrono::seconds kAgentPatience{60};

struct Ran {
  ProcessResult result;
  std::string output;
};

class AgentTenant : public ::testing::Test {
 protected:
  explicit AgentTenant(int gpus = 1, int slots = 10)
      : node_(gpus, slots, GPULOOM_SHIM_PATH), slots_(gpus * slots) {}
  virtual std::vector<std::string> AgentArguments() const { return {}; }
  void SetUp() override {
    ASSERT_TRUE(node_.kubelet().Start().ok());
    node_.StartAgent(AgentArguments());
    const absl::Status devices =
        node_.kubelet().WaitForDevices(static_cast<size_t>(slots_), kAgentPatience);
    ASSERT_TRUE(devices.ok()) << devices << "\n" << node_.AgentLog();
  }
  FakeContainer Admit(const char* pod_namespace, const char* name) {
    const auto pod = node_.kubelet().Admit({pod_namespace, name, {{"main", 1, false}}});
    EXPECT_TRUE(pod.ok()) << pod.status();
    return Restart(pod_namespace, name);
  }
  FakeContainer Restart(const char* pod_namespace, const char* name) {
    const auto container = node_.kubelet().PrepareStart(pod_namespace, name, "main");
    EXPECT_TRUE(container.ok()) << container.status() << "\n" << node_.AgentLog();
    return container.ok() ? *container : FakeContainer{};
  }
  // Of a testing::Process in the container.
  static std::vector<std::string> Environment(const FakeContainer& container) {
    std::vector<std::string> entries;
    for (const auto& [name, value] : ContainerEnvironment(container, {})) {
      entries.push_back(name + "=" + value);
    }
    return entries;
  }
  Ran Run(const FakeContainer& container, const std::string& program,
          const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> command = {
        program == "gpuloom-tenant" ? GPULOOM_TENANT : GPULOOM_PROGRAMS "/" + program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    const std::string log =
        node_.state_directory() + "-" + program;  // beside it, in the node's own folder
    const auto result = RunProcess(command, ContainerEnvironment(container, {}), log + ".out",
                                   log + ".err", kAgentPatience);
    EXPECT_TRUE(result.ok()) << result.status();
    std::ostringstream text;
    text << std::ifstream(log + ".out").rdbuf() << std::ifstream(log + ".err").rdbuf();
    return {result.ok() ? *result : ProcessResult{}, text.str()};
  }

  // gpuloom-tenant with one of its habits, that runs on beside the test.
  static testing::Process Start(const FakeContainer& container,
                                const std::vector<std::string>& habit) {
    std::vector<std::string> command = {GPULOOM_TENANT};
    command.insert(command.end(), habit.begin(), habit.end());
    return testing::Process(std::move(command), Environment(container));
  }

  // One that wants the GPU all the time, until it is killed.
  static testing::Process Rest(const FakeContainer& container) {
    testing::Process tenant({GPULOOM_RESTING_TENANT}, Environment(container));
    EXPECT_TRUE(tenant.ReadLine("ready")) << tenant.output();
    tenant.WriteLine("600");
    return tenant;
  }

  AgentNode node_;

 private:
  const int slots_;  // of the node
};

}  // namespace gpuloom
