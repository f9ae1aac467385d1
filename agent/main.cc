// gpuloom-agent: one per node. Speaks to the kubelet (device plugin, PodResources), reads the
// policy, finds the GPUs and looks after one scheduler per GPU. It holds no tenant's connection and
// no GPU context: it may die and be replaced at any time, and no tenant notices. This thread drives
// everything that repeats; gRPC's threads answer the kubelet.
#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "agent/cat.h"
#include "agent/identity/allocation_book.h"
#include "agent/identity/pod_resources.h"
#include "agent/identity/state_file.h"
#include "agent/inventory/cuda_library.h"
#include "agent/inventory/nvml.h"
#include "agent/inventory/slots.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/device_board.h"
#include "agent/plugin/plugin_server.h"
#include "agent/plugin/probe.h"
#include "agent/plugin/registrar.h"
#include "agent/plugin/runtime_check.h"
#include "agent/plugin/shim_store.h"
#include "agent/policy/policy_watcher.h"
#include "agent/policy/size.h"
#include "agent/supervisor/control_client.h"
#include "agent/supervisor/supervisor.h"
#include "agent/supervisor/unsupported_log.h"
#include "proto/control/version.h"

namespace gpuloom {
namespace {

constexpr Clock::Duration kTick = std::chrono::milliseconds(200);
constexpr Clock::Duration kPolicyPause = std::chrono::seconds(1);
constexpr Clock::Duration kUnsupportedPause = std::chrono::seconds(2);
constexpr Clock::Duration kSweepPause = std::chrono::seconds(15);
// How long a GPU without scheduler still counts as healthy: restarting one takes less.
constexpr Clock::Duration kUnhealthyAfter = std::chrono::seconds(10);
// Below the chart's terminationGracePeriodSeconds for schedulers.
constexpr Clock::Duration kStopTimeout = std::chrono::seconds(25);
constexpr Clock::Duration kPodResourcesTimeout = std::chrono::seconds(3);

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

class RealClock : public Clock {
 public:
  Time Now() override { return std::chrono::system_clock::now(); }
  void SleepFor(Duration duration) override { std::this_thread::sleep_for(duration); }
};

struct Flags {
  std::string state_directory = "/var/lib/gpuloom";
  std::string kubelet_directory = "/var/lib/kubelet/device-plugins";
  std::string pod_resources = "/var/lib/kubelet/pod-resources/kubelet.sock";
  std::string resource_name = "gpuloom.io/gpu";
  std::string policy;
  int slots = 10;
  std::string reserve = "auto";
  std::string pinned_limit = "8GiB";
  std::string shim;
  std::string nvml;
  std::string scheduler;
  std::string softgpu;
  std::string schedulers = "start";
  std::string idle_timeout;
  std::string drain_timeout;
  std::string runtime_config = "/etc/nvidia-container-runtime/config.toml";
  int grace_seconds = 300;
  int missing_seconds = 60;
  bool probe = false;
};

int Fail(const absl::Status& status) {
  spdlog::critical("{}", std::string(status.message()));
  return 1;
}

// Held until the process ends; the second agent of a node is told who the first is.
absl::Status TakeLock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return absl::InternalError(Cat("state: ", path, ": ", strerror(errno)));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    const ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
    close(fd);
    return absl::AlreadyExistsError(
        Cat("state: another gpuloom-agent (pid ", n > 0 ? pid : "unknown", ") holds ", path,
            ": one agent per node; stop the other, or choose another --state-dir"));
  }
  const std::string pid = Cat(getpid());
  if (ftruncate(fd, 0) != 0 ||
      pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return absl::ResourceExhaustedError(Cat("state: ", path, ": ", strerror(errno)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Gpu>> FindGpus(const Flags& flags) {
  absl::StatusOr<std::vector<Gpu>> gpus =
      flags.softgpu.empty() ? ListGpusFromNvml() : ListGpusFromCudaLibrary(flags.softgpu);
  if (gpus.ok() && gpus->empty()) {
    return absl::NotFoundError(
        Cat(flags.softgpu.empty() ? "nvml:" : "cuda:", " this node has no GPU"));
  }
  return gpus;
}

absl::StatusOr<Capacity> CapacityOf(const Gpu& gpu, const Flags& flags) {
  Capacity capacity;
  capacity.gpu = gpu.uuid;
  capacity.total_bytes = gpu.total_bytes;
  capacity.slots = flags.slots;
  capacity.reserve_bytes = AutoReserveBytes(gpu.total_bytes, flags.slots);
  if (flags.reserve != "auto") {
    const absl::StatusOr<uint64_t> reserve = ParseSize(flags.reserve);
    if (!reserve.ok())
      return absl::InvalidArgumentError(
          Cat("--reserve: ", std::string(reserve.status().message())));
    capacity.reserve_bytes = *reserve;
  }
  if (AutoSlotBytes(capacity) == 0) {
    return absl::InvalidArgumentError(Cat("GPU ", gpu.uuid, " has ", FormatSize(gpu.total_bytes),
                                          ", --reserve keeps ", FormatSize(capacity.reserve_bytes),
                                          ": nothing is left for ", flags.slots, " slots"));
  }
  return capacity;
}

Supervisor::Options SupervisorOptions(const Flags& flags) {
  Supervisor::Options options;
  options.state_directory = flags.state_directory;
  options.may_start = flags.schedulers != "adopt";
  options.command = [flags](const std::string& gpu_uuid, const std::string& directory) {
    std::vector<std::string> command = {flags.scheduler, "--gpu",   gpu_uuid,
                                        "--state-dir",   directory, "--early-executors"};
    if (!flags.idle_timeout.empty())
      command.insert(command.end(), {"--idle-timeout", flags.idle_timeout});
    if (!flags.drain_timeout.empty())
      command.insert(command.end(), {"--drain-timeout", flags.drain_timeout});
    if (!flags.softgpu.empty()) command.insert(command.end(), {"--cuda-library", flags.softgpu});
    return command;
  };
  options.connect = ConnectToScheduler;
  return options;
}

// --schedulers only: keeps the schedulers of the node running, in a pod of their own that an
// upgrade of the agent leaves alone.
int RunSchedulersOnly(const Flags& flags, const std::vector<Gpu>& gpus, Clock* clock) {
  Supervisor::Options options = SupervisorOptions(flags);
  options.on_connected = [](const std::string&, SchedulerClient*) { return absl::OkStatus(); };
  Supervisor supervisor(std::move(options));
  for (const Gpu& gpu : gpus) {
    if (absl::Status status = supervisor.AddGpu(gpu.uuid); !status.ok()) return Fail(status);
  }
  while (!stop_requested) {
    supervisor.Tick(clock->Now());
    clock->SleepFor(kTick);
  }
  // The end of this process is the end of its container, and with it of everything there: they may
  // end in order.
  supervisor.RequestStop();
  const Clock::Time deadline = clock->Now() + kStopTimeout;
  while (supervisor.IsAnyRunning() && clock->Now() < deadline) clock->SleepFor(kTick);
  return 0;
}

int RunAgent(const Flags& flags, const std::vector<Gpu>& gpus,
             const std::map<std::string, Capacity>& capacities, Clock* clock) {
  PolicyWatcher policy(flags.policy);
  std::vector<Capacity> promised;
  for (const auto& [uuid, capacity] : capacities) promised.push_back(capacity);
  policy.SetCapacities(promised);
  if (absl::Status status = policy.LoadFirst(); !status.ok()) return Fail(status);

  ShimStore shims(flags.state_directory);
  const absl::StatusOr<std::string> shim_file = shims.Install(flags.shim, GPULOOM_VERSION);
  if (!shim_file.ok()) return Fail(shim_file.status());
  const absl::StatusOr<std::string> nvml_file = shims.Install(flags.nvml, GPULOOM_VERSION);
  if (!nvml_file.ok()) return Fail(nvml_file.status());

  AllocationBook book(flags.state_directory);
  std::vector<std::string> complaints;
  if (absl::Status status = book.Load(&complaints); !status.ok()) return Fail(status);
  for (const std::string& complaint : complaints) spdlog::error("{}", complaint);

  const std::unique_ptr<PodResources> pod_resources =
      MakePodResourcesClient(flags.pod_resources, flags.resource_name, clock, kPodResourcesTimeout);

  const absl::StatusOr<uint64_t> pinned_limit = ParseSize(flags.pinned_limit);
  if (!pinned_limit.ok()) return Fail(pinned_limit.status());

  Allocator* allocator_for_supervisor = nullptr;
  Supervisor::Options supervisor_options = SupervisorOptions(flags);
  supervisor_options.on_connected = [&](const std::string& gpu_uuid, SchedulerClient* scheduler) {
    return allocator_for_supervisor->Restore(gpu_uuid, scheduler);
  };
  Supervisor supervisor(std::move(supervisor_options));

  Allocator::Options allocator_options;
  allocator_options.book = &book;
  allocator_options.shims = &shims;
  allocator_options.library_files = {*shim_file, *nvml_file};
  allocator_options.policy = &policy;
  allocator_options.pod_resources = pod_resources.get();
  allocator_options.clock = clock;
  allocator_options.capacities = capacities;
  allocator_options.pinned_limit_bytes = *pinned_limit;
  allocator_options.scheduler = [&](const std::string& gpu_uuid) {
    return supervisor.Client(gpu_uuid);
  };
  allocator_options.collector_times = {std::chrono::seconds(flags.grace_seconds),
                                       std::chrono::seconds(flags.missing_seconds)};
  Allocator allocator(std::move(allocator_options));
  allocator_for_supervisor = &allocator;
  for (const Gpu& gpu : gpus) {
    if (absl::Status status = supervisor.AddGpu(gpu.uuid); !status.ok()) return Fail(status);
  }

  DeviceBoard board(gpus, flags.slots);
  PluginServer server(&board, &allocator, clock);
  Registrar registrar({flags.kubelet_directory, "gpuloom.sock", flags.resource_name,
                       [&] { allocator.KubeletRestarted(); }},
                      &server, clock);

  std::map<std::string, Clock::Time> last_served;
  Clock::Time next_policy_look = clock->Now();
  Clock::Time next_sweep = clock->Now();
  Clock::Time next_unsupported_look = clock->Now();
  UnsupportedLog unsupported_log;
  std::vector<std::string> last_troubles;
  while (!stop_requested) {
    const Clock::Time now = clock->Now();
    supervisor.Tick(now);
    for (const Gpu& gpu : gpus) {
      if (supervisor.IsServing(gpu.uuid)) last_served[gpu.uuid] = now;
      const auto served = last_served.find(gpu.uuid);
      board.SetHealthy(gpu.uuid,
                       served != last_served.end() && now - served->second < kUnhealthyAfter);
    }
    registrar.Tick();
    if (now >= next_policy_look) {
      next_policy_look = now + kPolicyPause;
      const PolicyWatcher::Look look = policy.LookAgain();
      if (look.outcome == PolicyWatcher::Outcome::kRefused) {
        spdlog::error("{}; the old policy stays in force", std::string(look.reason.message()));
      } else if (look.outcome == PolicyWatcher::Outcome::kReloaded) {
        spdlog::info("policy: {} reloaded", flags.policy);
        for (const std::string& trouble : allocator.Regrant()) spdlog::error("{}", trouble);
      }
    }
    if (now >= next_unsupported_look) {
      next_unsupported_look = now + kUnsupportedPause;
      for (const Gpu& gpu : gpus) {
        const auto scheduler = supervisor.Client(gpu.uuid);
        if (!scheduler.ok()) continue;
        const auto unsupported = (*scheduler)->ListUnsupported();
        if (unsupported.ok()) unsupported_log.Look(gpu.uuid, *unsupported);
      }
    }
    if (now >= next_sweep) {
      next_sweep = now + std::min<Clock::Duration>(kSweepPause,
                                                   std::chrono::seconds(1 + flags.missing_seconds));
      std::vector<std::string> troubles = allocator.Sweep();
      if (troubles != last_troubles) {
        for (const std::string& trouble : troubles) spdlog::warn("{}", trouble);
      }
      last_troubles = std::move(troubles);
    }
    clock->SleepFor(kTick);
  }
  server.Stop();
  spdlog::info("agent: stopped; the schedulers keep running for the next one");
  return 0;
}

int Main(int argc, char** argv) {
  Flags flags;
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  flags.scheduler = here / "gpuloom-scheduler";
  flags.shim = here.parent_path() / "lib" / "libgpuloom.so";
  flags.nvml = here.parent_path() / "lib" / "libgpuloom-nvml.so";

  CLI::App app("gpuloom-agent: shares this node's GPUs with pods that ask for gpuloom.io/gpu");
  app.add_option("--state-dir", flags.state_directory,
                 "what survives restarts; on a file system that allows exec")
      ->capture_default_str();
  app.add_option("--kubelet-dir", flags.kubelet_directory, "the kubelet's device-plugins directory")
      ->capture_default_str();
  app.add_option("--pod-resources-socket", flags.pod_resources, "the kubelet's PodResources socket")
      ->capture_default_str();
  app.add_option("--resource-name", flags.resource_name, "what pods ask for")
      ->capture_default_str();
  app.add_option("--policy", flags.policy, "policy file (YAML); without it the built-in defaults");
  app.add_option("--slots", flags.slots, "slots per GPU")
      ->capture_default_str()
      ->check(CLI::Range(1, kMaxSlotsPerGpu));
  app.add_option("--reserve", flags.reserve,
                 "GPU memory kept for the executors' own contexts: a size, or auto")
      ->capture_default_str();
  app.add_option("--pinned-limit", flags.pinned_limit,
                 "host memory that one tenant process may pin")
      ->capture_default_str();
  app.add_option("--shim", flags.shim, "libgpuloom.so, which containers get as libcuda.so.1")
      ->capture_default_str();
  app.add_option("--nvml", flags.nvml,
                 "libgpuloom-nvml.so, which containers get as libnvidia-ml.so.1")
      ->capture_default_str();
  app.add_option("--scheduler", flags.scheduler, "the gpuloom-scheduler program")
      ->capture_default_str();
  app.add_option("--softgpu", flags.softgpu,
                 "use this CUDA library (the software GPU) instead of NVIDIA's driver");
  app.add_option(
         "--schedulers", flags.schedulers,
         "start: adopt or start them; adopt: never start one; only: run nothing but schedulers")
      ->capture_default_str()
      ->check(CLI::IsMember({"start", "adopt", "only"}));
  app.add_option(
      "--idle-timeout", flags.idle_timeout,
      "how long an executor outlives its last tenant, like 60s; default: the scheduler's");
  app.add_option(
      "--drain-timeout", flags.drain_timeout,
      "how long the work of a tenant that ended may still run, like 10s; default: the scheduler's");
  app.add_option("--nvidia-runtime-config", flags.runtime_config,
                 "where to look whether unprivileged pods can get devices by environment variable")
      ->capture_default_str();
  app.add_option("--grace-seconds", flags.grace_seconds,
                 "nothing is collected in its first seconds")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--missing-seconds", flags.missing_seconds,
                 "how long a pod must be gone to be collected")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--probe", flags.probe, "ask the running agent whether it serves, and exit");
  app.set_version_flag("--version", kVersion);
  CLI11_PARSE(app, argc, argv);

  RealClock clock;
  if (flags.probe) {
    const absl::Status status = Probe(flags.kubelet_directory + "/gpuloom.sock", &clock);
    return status.ok() ? 0 : Fail(status);
  }
  // A write to a peer that has gone is told by its result.
  signal(SIGPIPE, SIG_IGN);
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_requested = true; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);

  std::error_code error;
  std::filesystem::create_directories(flags.state_directory, error);
  if (absl::Status status = MakeStateDirectory(flags.state_directory, 0700); !status.ok())
    return Fail(status);
  const bool is_only = flags.schedulers == "only";
  if (absl::Status status =
          TakeLock(flags.state_directory + (is_only ? "/schedulers.lock" : "/agent.lock"));
      !status.ok()) {
    return Fail(status);
  }
  const absl::StatusOr<std::vector<Gpu>> gpus = FindGpus(flags);
  if (!gpus.ok()) return Fail(gpus.status());
  std::map<std::string, Capacity> capacities;
  for (const Gpu& gpu : *gpus) {
    const absl::StatusOr<Capacity> capacity = CapacityOf(gpu, flags);
    if (!capacity.ok()) return Fail(capacity.status());
    capacities[gpu.uuid] = *capacity;
    spdlog::info("inventory: {} {}: {}, {} slots of {} each unless the policy says otherwise",
                 gpu.uuid, gpu.name, FormatSize(gpu.total_bytes), flags.slots,
                 FormatSize(AutoSlotBytes(*capacity)));
  }
  spdlog::info("agent: {} on {} GPUs", kVersion, gpus->size());
  if (is_only) return RunSchedulersOnly(flags, *gpus, &clock);
  if (flags.softgpu.empty()) {
    if (const std::string warning = CheckNvidiaRuntime(flags.runtime_config); !warning.empty()) {
      spdlog::warn("{}", warning);
    }
  }
  return RunAgent(flags, *gpus, capacities, &clock);
}

}  // namespace
}  // namespace gpuloom

int main(int argc, char** argv) { return gpuloom::Main(argc, argv); }
