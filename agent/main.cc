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
#include "agent/inventory/inventory_watch.h"
#include "agent/node_agent.h"
#include "agent/plugin/probe.h"
#include "agent/plugin/runtime_check.h"
#include "agent/policy/policy_watcher.h"
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

// Until the end is requested, or the node, which had no GPU to share, is another one.
absl::Status RunSchedulers(const CommandLine& line, const Inventory& inventory, Clock* clock) {
  InventoryWatch watch(
      inventory, [] { return TakeInventory(""); }, clock);
  if (inventory.gpus.empty()) {
    while (!stop_requested && !watch.IsOutdated()) clock->SleepFor(kTick);
    return absl::OkStatus();
  }
  Supervisor::Options options = SupervisorOptions(line);
  options.on_connected = [](const std::string&, SchedulerClient*) { return absl::OkStatus(); };
  Supervisor supervisor(std::move(options));
  for (const Gpu& gpu : inventory.gpus) {
    if (absl::Status status = supervisor.AddGpu(gpu.uuid); !status.ok()) return status;
  }
  RunSchedulersOnly(&supervisor, clock, stop_requested);
  return absl::OkStatus();
}

// The same.
absl::Status RunAgent(const CommandLine& line, const Inventory& inventory,
                      const std::map<std::string, Capacity>& capacities, Clock* clock) {
  NodeAgent agent(line, inventory, capacities, SupervisorOptions(line), clock);
  if (absl::Status status = agent.Open(); !status.ok()) return status;
  InventoryWatch watch(
      inventory, [] { return TakeInventory(""); }, clock);
  while (!stop_requested && !watch.IsOutdated()) {
    agent.Tick(clock->Now());
    clock->SleepFor(kTick);
  }
  agent.Stop();
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  int exit_status = 0;
  const std::optional<CommandLine> line = ParseCommandLine(argc, argv, &exit_status);
  if (!line) return exit_status;
  RealClock clock;
  if (line->probe) {
    const absl::Status status =
        Probe(line->kubelet_directory + "/gpuloom.sock", *line->probe, &clock);
    return status.ok() ? 0 : Fail(status);
  }
  if (line->check_policy) {
    const absl::Status status = CheckPolicyFile(line->policy);
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
  if (!is_only && line->softgpu.empty()) {
    if (const std::string warning = CheckNvidiaRuntime(line->runtime_config); !warning.empty()) {
      spdlog::warn("{}", warning);
    }
  }
  while (!stop_requested) {
    const absl::StatusOr<Inventory> inventory = TakeInventory(line->softgpu);
    if (!inventory.ok()) return Fail(inventory.status());
    const absl::StatusOr<std::map<std::string, Capacity>> capacities =
        CapacitiesOf(inventory->gpus, line->slots, line->reserve);
    if (!capacities.ok()) return Fail(capacities.status());
    spdlog::info("agent: {} on {} GPUs", kVersion, inventory->gpus.size());
    if (inventory->gpus.empty()) {
      spdlog::log(inventory->is_unusable ? spdlog::level::err : spdlog::level::warn,
                  "{}; offering no slots, and looking again every {} s", inventory->none_because,
                  InventoryWatch::kPause.count());
    }
    const absl::Status status = is_only ? RunSchedulers(*line, *inventory, &clock)
                                        : RunAgent(*line, *inventory, *capacities, &clock);
    if (!status.ok()) return Fail(status);
  }
  if (!is_only) spdlog::info("agent: stopped; the schedulers keep running for the next one");
  return 0;
}

}  // namespace
}  // namespace gpuloom

int main(int argc, char** argv) { return gpuloom::Main(argc, argv); }
