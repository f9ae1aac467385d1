// gpuloom-agent: one per node. Speaks to the kubelet (device plugin, PodResources), reads the
// policy, finds the GPUs and looks after one scheduler per GPU. It holds no tenant's connection and
// no GPU context: it may die and be replaced at any time, and no tenant notices. This thread drives
// everything that repeats; gRPC's threads answer the kubelet.
#include <signal.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <thread>

#include "agent/capacities.h"
#include "agent/command_line.h"
#include "agent/inventory/gpu_list.h"
#include "agent/node_agent.h"
#include "agent/plugin/probe.h"
#include "agent/plugin/runtime_check.h"
#include "agent/state_lock.h"
#include "agent/supervisor/schedulers_only.h"
#include "proto/control/version.h"

namespace gpuloom {
namespace {

constexpr Clock::Duration kTick = std::chrono::milliseconds(200);

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

class RealClock : public Clock {
 public:
  Time Now() override { return std::chrono::system_clock::now(); }
  void SleepFor(Duration duration) override { std::this_thread::sleep_for(duration); }
};

int Fail(const absl::Status& status) {
  spdlog::critical("{}", std::string(status.message()));
  return 1;
}

int Main(int argc, char** argv) {
  int exit_status = 0;
  const std::optional<CommandLine> line = ParseCommandLine(argc, argv, &exit_status);
  if (!line) return exit_status;
  RealClock clock;
  if (line->probe) {
    const absl::Status status = Probe(line->kubelet_directory + "/gpuloom.sock", &clock);
    return status.ok() ? 0 : Fail(status);
  }
  // A write to a peer that has gone is told by its result.
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);

  const bool is_only = line->schedulers == "only";
  if (absl::Status status =
          LockState(line->state_directory, is_only ? "schedulers.lock" : "agent.lock");
      !status.ok()) {
    return Fail(status);
  }
  const absl::StatusOr<std::vector<Gpu>> gpus = ListGpus(line->softgpu);
  if (!gpus.ok()) return Fail(gpus.status());
  const absl::StatusOr<std::map<std::string, Capacity>> capacities =
      CapacitiesOf(*gpus, line->slots, line->reserve);
  if (!capacities.ok()) return Fail(capacities.status());
  spdlog::info("agent: {} on {} GPUs", kVersion, gpus->size());

  Supervisor::Options options = SupervisorOptions(*line);
  if (is_only) {
    options.on_connected = [](const std::string&, SchedulerClient*) { return absl::OkStatus(); };
    Supervisor supervisor(std::move(options));
    for (const Gpu& gpu : *gpus) {
      if (absl::Status status = supervisor.AddGpu(gpu.uuid); !status.ok()) return Fail(status);
    }
    RunSchedulersOnly(&supervisor, &clock, stop_requested);
    return 0;
  }
  if (line->softgpu.empty()) {
    if (const std::string warning = CheckNvidiaRuntime(line->runtime_config); !warning.empty()) {
      spdlog::warn("{}", warning);
    }
  }
  NodeAgent agent(*line, *gpus, *capacities, std::move(options), &clock);
  if (absl::Status status = agent.Open(); !status.ok()) return Fail(status);
  while (!stop_requested) {
    agent.Tick(clock.Now());
    clock.SleepFor(kTick);
  }
  agent.Stop();
  spdlog::info("agent: stopped; the schedulers keep running for the next one");
  return 0;
}

}  // namespace
}  // namespace gpuloom

int main(int argc, char** argv) { return gpuloom::Main(argc, argv); }
