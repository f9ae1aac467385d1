// SPDX-License-Identifier: Apache-2.0
// For the agent's integration tests: a directory of its own, the kubelet stand-in, and
// gpuloom-agent as a process with the real scheduler on the software GPU. Everything that was
// started is ended by the destructor, the schedulers too, which outlive their agents. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/control/messages.h"
#include "tests/fake_kubelet/fake_kubelet.h"

namespace gpuloom {

class AgentNode {
 public:
  // `gpus` software GPUs of 1 GiB, `slots` slots each. An empty `shim` is one that no container
  // loads.
  explicit AgentNode(int gpus = 2, int slots = 10, std::string shim = {},
                     FakeKubelet::Takeover takeover = FakeKubelet::Takeover::kByName);
  ~AgentNode();

  void StartAgent(const std::vector<std::string>& more_arguments = {});
  // On what this libnvidia-ml.so.1 tells instead of software GPUs.
  void StartAgentWithNvml(const std::string& library);
  // What a probe of the running agent says; empty when all is well.
  std::string RunAgentProbe(const std::string& flag);
  void KillAgent(int signal);
  // Another one on the same state, with its own log; the caller waits for its end.
  pid_t StartFurtherAgent(const std::vector<std::string>& more_arguments) const;
  // Runs a further agent on the same state to its end; its exit status, -1 for a signal.
  int RunSecondAgent(std::string* output);
  // As an update does: starts another agent beside the one that runs, ends that one when the new one
  // is ready. False when it does not become ready.
  bool ReplaceAgent(const std::vector<std::string>& more_arguments = {});

  void WritePolicy(const std::string& text) const;
  // Of the one that StartAgent or ReplaceAgent started last.
  std::string AgentLog() const;
  // Until the condition holds; false after a minute.
  bool WaitFor(const std::function<bool()>& condition) const;
  bool WaitForLog(const std::string& text) const;

  // How often schedulers have started an executor.
  int ExecutorStarts() const;
  // The process ids of the schedulers that run, by their lock files.
  std::vector<pid_t> SchedulerPids() const;
  std::string state_directory() const { return directory_ + "/state"; }
  std::string PolicyPath() const { return directory_ + "/policy.yaml"; }

  FakeKubelet& kubelet() { return *kubelet_; }

 private:
  std::vector<std::string> Arguments() const;
  std::string LogPath() const;
  pid_t Spawn(const std::vector<std::string>& arguments, const std::string& output,
              const std::string& library_path = {}) const;

  const int gpus_;
  const int slots_;
  std::string directory_;
  std::string shim_;
  std::string nvml_;
  std::optional<FakeKubelet> kubelet_;
  pid_t agent_ = 0;
  int agents_ = 0;  // started; each has its own log
};

}  // namespace gpuloom
