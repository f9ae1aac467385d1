// SPDX-License-Identifier: Apache-2.0
// gpuloom-agent: one per node. Speaks to the kubelet (device plugin, PodResources), reads the
// policy, finds the GPUs and looks after one scheduler per GPU. It holds no tenant's connection and
// no GPU context: it may die and be replaced at any time, and no tenant notices. This thread drives
// everything that repeats; gRPC's threads answer the kubelet. While one agent replaces another, both
// answer it, and one is in charge.
#include <signal.h>
#include <spdlog/spdlog.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "agent/command_line.h"
#include "agent/events/api_client.h"
#include "agent/events/pods_wait.h"
#include "agent/inventory/fault_poll.h"
#include "agent/inventory/gpu_list.h"
#include "agent/inventory/gpu_probe.h"
#include "agent/inventory/inventory_process.h"
#include "agent/log_lines.h"
#include "agent/node/log.h"
#include "agent/node/log_signals.h"
#include "agent/plugin/probe.h"
#include "agent/policy/in_force/policy_watcher.h"
#include "agent/service.h"
#include "agent/steady_clock.h"

namespace gpuloom {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

int Fail(const absl::Status& status) {
  spdlog::error("{}", std::string(status.message()));
  return 1;
}

void HandleTermination() {
  // A write to a closed connection is to fail by its result.
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

// The result of a command that only asks something.
int Answer(const absl::Status& status) {
  if (status.ok()) return 0;
  fprintf(stderr, "gpuloom-agent: %s\n", std::string(status.message()).c_str());
  return 1;
}

absl::Status AwaitPods(const CommandLine& line) {
  HandleTermination();
  const absl::StatusOr<std::string> server =
      line.api_server.empty() ? ApiServerOfCluster() : line.api_server;
  if (!server.ok()) return server.status();
  SteadyClock clock;
  return WaitForPods({*server, line.service_account, line.await_pods, line.await_timeout, &clock},
                     stop_requested);
}

int Main(int argc, char** argv) {
  LogThroughNode();
  int exit_status = 0;
  const std::optional<CommandLine> line = ParseCommandLine(argc, argv, &exit_status);
  if (!line) return exit_status;
  SetLogLevel(ParseLogLevel(line->log_level).value_or(LogLevel::kInfo));
  SetLogFormat(ParseLogFormat(line->log_format).value_or(LogFormat::kText));
  // In a process of its own, which may hang or crash in the driver (agent/inventory/gpu_probe.h).
  // Its output is the answer, so nothing may be logged behind it. The same goes for the list of GPUs.
  if (!line->probe_gpu.empty()) {
    const char* const driver = line->softgpu.empty() ? "libcuda.so.1" : line->softgpu.c_str();
    const std::string trouble = ProbeGpu(driver, line->probe_gpu);
    printf("%s", trouble.empty() ? kGpuIsWell : (trouble + "\n").c_str());
    return trouble.empty() ? 0 : 1;
  }
  if (line->list_gpus) {
    const absl::StatusOr<Inventory> inventory = TakeInventory(SourcesOf(*line));
    if (!inventory.ok()) return Fail(inventory.status());
    printf("%s", PrintInventory(*inventory).c_str());
    return 0;
  }
  if (line->probe) return Answer(Probe(line->kubelet_directory, *line->probe));
  if (line->check_policy) return Answer(CheckPolicyFile(line->policy));
  if (!line->await_pods.empty()) {
    const absl::Status status = AwaitPods(*line);
    // A line for each node.
    const std::vector<std::string> lines =
        absl::StrSplit(status.message(), '\n', absl::SkipEmpty());
    for (const std::string& said : lines) spdlog::error("{}", said);
    return status.ok() ? 0 : 1;
  }
  HandleLogSignals(kAgentProgram);
  HandleTermination();

  if (const absl::Status status = Serve(*line, stop_requested); !status.ok()) return Fail(status);
  return 0;
}

}  // namespace
}  // namespace gpuloom

int main(int argc, char** argv) {
  const int exit_status = gpuloom::Main(argc, argv);
  if (!gpuloom::FaultPoll::IsOneLeftBehind()) return exit_status;
  // A driver that hangs would keep its library's end, too.
  fflush(nullptr);
  _exit(exit_status);
}
