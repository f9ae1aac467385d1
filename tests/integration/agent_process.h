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

  // Of the agents that are started from now on.
  void SetSlots(int slots) { slots_ = slots; }
  // Instead of 1 GiB; by GPU, with commas between them (docs/softgpu.md).
  void SetMemory(const std::string& memory) { memory_ = memory; }
  void StartAgent(const std::vector<std::string>& more_arguments = {});
  // On what this libnvidia-ml.so.1 tells instead of software GPUs.
  void StartAgentWithNvml(const std::string& library,
                          const std::vector<std::string>& more_arguments = {});
  // What a probe by the agent's program says; empty when all is well.
  std::string RunAgentProbe(const std::string& flag,
                            const std::vector<std::string>& more_arguments = {});
  // Of an agent with --metrics-address 127.0.0.1:0, once it serves.
  int MetricsPort() const;
  void KillAgent(int signal);
  // The node's GPUs have fallen off the bus: whoever loads their driver from now on finds none.
  void LoseGpus(bool are_lost) const;
  // One of them has: the driver goes on without it, and libnvml_faults.so tells of it. Until LoseGpus(false).
  void LoseGpu(int number) const;
  // Whoever opens libnvml_faults.so from now on is not told which GPU this is.
  void TakeNameOfGpu(int number) const;
  // libnvidia-ml.so.1 hangs when it is opened, and when it is asked about this one.
  void HangAtGpu(int number) const;
  // NVML has forgotten all that, as after the driver was loaded again.
  void ForgetNvmlEvents() const;
  // Starts the stand-in for an API server that knows these pods, and returns the agent's arguments for it.
  std::vector<std::string> StartApiServer(const std::string& pods_json);
  // Those that it knows from now on.
  void WritePods(const std::string& pods_json) const;
  // What it was asked, one JSON document a line.
  std::string ApiServerLog() const;
  // A command of the operator's program, with the agent's state folder; its output, and its exit status.
  std::string RunGpuloom(const std::vector<std::string>& arguments, int* exit_status) const;
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
  // Until the condition holds; false when the time is up.
  bool WaitFor(const std::function<bool()>& condition,
               std::chrono::seconds patience = std::chrono::seconds(60)) const;
  bool WaitForLog(const std::string& text) const;

  // All that the schedulers have logged.
  std::string SchedulerLogs() const;
  // How often schedulers have started an executor for a domain, not counting spare ones.
  int ExecutorStarts() const;
  // The process ids of the schedulers that run, by their lock files.
  std::vector<pid_t> SchedulerPids() const;
  std::string state_directory() const { return directory_ + "/state"; }
  std::string PolicyPath() const { return directory_ + "/policy.yaml"; }

  FakeKubelet& kubelet() { return *kubelet_; }

 private:
  std::vector<std::string> Arguments() const;
  std::string LogPath() const;
  std::string LostPath() const;
  std::string NvmlEventsPath() const;
  pid_t Spawn(const std::vector<std::string>& arguments, const std::string& output,
              const std::string& library_path = {}) const;

  const int gpus_;
  int slots_;
  std::string memory_ = "1GiB";
  std::string directory_;
  std::string shim_;
  std::string nvml_;
  std::optional<FakeKubelet> kubelet_;
  pid_t agent_ = 0;
  pid_t api_server_ = 0;
  int agents_ = 0;  // started; each has its own log
};

}  // namespace gpuloom
