// gpuloom-agent: one per node. Speaks to the kubelet (device plugin, PodResources), reads the
// policy, finds the GPUs and looks after one scheduler per GPU. It holds no tenant's connection and
// no GPU context: it may die and be replaced at any time, and no tenant notices. This thread drives
// everything that repeats; gRPC's threads answer the kubelet.
#include <signal.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <thread>

#include "agent/command_line.h"
#include "agent/identity/allocation_book.h"
#include "agent/identity/pod_resources.h"
#include "agent/inventory/gpu_list.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/device_board.h"
#include "agent/plugin/plugin_server.h"
#include "agent/plugin/probe.h"
#include "agent/plugin/registrar.h"
#include "agent/plugin/runtime_check.h"
#include "agent/plugin/shim_store.h"
#include "agent/policy/capacity.h"
#include "agent/policy/policy_watcher.h"
#include "agent/policy/size.h"
#include "agent/state_lock.h"
#include "agent/supervisor/control_client.h"
#include "agent/supervisor/scheduler_command.h"
#include "agent/supervisor/schedulers_only.h"
#include "agent/supervisor/supervisor.h"
#include "agent/upkeep.h"
#include "proto/control/version.h"

namespace gpuloom {
namespace {

constexpr Clock::Duration kTick = std::chrono::milliseconds(200);
constexpr Clock::Duration kPodResourcesTimeout = std::chrono::seconds(3);

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

int RunAgent(const CommandLine& line, const std::vector<Gpu>& gpus,
             const std::map<std::string, Capacity>& capacities,
             Supervisor::Options supervisor_options, Clock* clock) {
  PolicyWatcher policy(line.policy);
  std::vector<Capacity> promised;
  for (const auto& [uuid, capacity] : capacities) promised.push_back(capacity);
  policy.SetCapacities(promised);
  if (absl::Status status = policy.LoadFirst(); !status.ok()) return Fail(status);

  ShimStore shims(line.state_directory);
  const absl::StatusOr<std::string> shim_file = shims.Install(line.shim, GPULOOM_VERSION);
  if (!shim_file.ok()) return Fail(shim_file.status());
  const absl::StatusOr<std::string> nvml_file = shims.Install(line.nvml, GPULOOM_VERSION);
  if (!nvml_file.ok()) return Fail(nvml_file.status());

  AllocationBook book(line.state_directory);
  std::vector<std::string> complaints;
  if (absl::Status status = book.Load(&complaints); !status.ok()) return Fail(status);
  for (const std::string& complaint : complaints) spdlog::error("{}", complaint);

  const std::unique_ptr<PodResources> pod_resources =
      MakePodResourcesClient(line.pod_resources, line.resource_name, clock, kPodResourcesTimeout);

  const absl::StatusOr<uint64_t> pinned_limit = ParseSize(line.pinned_limit);
  if (!pinned_limit.ok()) return Fail(pinned_limit.status());

  Allocator* allocator_for_supervisor = nullptr;
  supervisor_options.on_connected = [&](const std::string& gpu_uuid, SchedulerClient* scheduler) {
    return allocator_for_supervisor->Restore(gpu_uuid, scheduler);
  };
  Supervisor supervisor(std::move(supervisor_options));
  const std::chrono::seconds missing(line.missing_seconds);
  Allocator allocator({.book = &book,
                       .shims = &shims,
                       .library_files = {*shim_file, *nvml_file},
                       .policy = &policy,
                       .pod_resources = pod_resources.get(),
                       .clock = clock,
                       .capacities = capacities,
                       .pinned_limit_bytes = *pinned_limit,
                       .scheduler = [&](const auto& uuid) { return supervisor.Client(uuid); },
                       .collector_times = {std::chrono::seconds(line.grace_seconds), missing}});
  allocator_for_supervisor = &allocator;
  for (const Gpu& gpu : gpus) {
    if (absl::Status status = supervisor.AddGpu(gpu.uuid); !status.ok()) return Fail(status);
  }

  DeviceBoard board(gpus, line.slots);
  PluginServer server(&board, &allocator, clock);
  Registrar registrar({line.kubelet_directory, "gpuloom.sock", line.resource_name,
                       [&] { allocator.KubeletRestarted(); }},
                      &server, clock);
  Upkeep upkeep({gpus, line.policy, missing, &supervisor, &board, &registrar, &policy, &allocator});
  while (!stop_requested) {
    upkeep.Tick(clock->Now());
    clock->SleepFor(kTick);
  }
  server.Stop();
  spdlog::info("agent: stopped; the schedulers keep running for the next one");
  return 0;
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
  std::map<std::string, Capacity> capacities;
  for (const Gpu& gpu : *gpus) {
    const absl::StatusOr<Capacity> capacity =
        MakeCapacity(gpu.uuid, gpu.total_bytes, line->slots, line->reserve);
    if (!capacity.ok()) return Fail(capacity.status());
    capacities[gpu.uuid] = *capacity;
    spdlog::info("inventory: {} {}: {}, {} slots of {} each unless the policy says otherwise",
                 gpu.uuid, gpu.name, FormatSize(gpu.total_bytes), line->slots,
                 FormatSize(AutoSlotBytes(*capacity)));
  }
  spdlog::info("agent: {} on {} GPUs", kVersion, gpus->size());

  const SchedulerCommand command = {line->scheduler, line->idle_timeout, line->drain_timeout,
                                    line->softgpu};
  Supervisor::Options options;
  options.state_directory = line->state_directory;
  options.may_start = line->schedulers != "adopt";
  options.command = [command](const std::string& gpu_uuid, const std::string& directory) {
    return command.For(gpu_uuid, directory);
  };
  options.connect = ConnectToScheduler;
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
  return RunAgent(*line, *gpus, capacities, std::move(options), &clock);
}

}  // namespace
}  // namespace gpuloom

int main(int argc, char** argv) { return gpuloom::Main(argc, argv); }
