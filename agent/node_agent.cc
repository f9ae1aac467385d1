// SPDX-License-Identifier: Apache-2.0
#include "agent/node_agent.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "agent/cat.h"
#include "agent/identity/state_file.h"
#include "agent/node/list_folder.h"
#include "agent/node/process.h"
#include "agent/node/size.h"
#include "agent/node/whole_file.h"
#include "agent/policy/policy_file.h"
#include "agent/supervisor/control_client.h"
#include "agent/supervisor/gone_gpus.h"
#include "agent/supervisor/scheduler_command.h"
#include "agent/supervisor/scheduler_process.h"

namespace gpuloom {
namespace {

// Below the patience of PreStart (agent/plugin/allocator.h), so that a kubelet that hangs once is
// asked again.
constexpr Clock::Duration kPodResourcesTimeout = std::chrono::seconds(3);

// Counts what goes wrong, and adds nothing else.
class CountedPodResources : public PodResources {
 public:
  CountedPodResources(std::unique_ptr<PodResources> asked, std::atomic<uint64_t>* failures)
      : asked_(std::move(asked)), failures_(failures) {}

  absl::StatusOr<std::vector<ContainerDevices>> List() override {
    absl::StatusOr<std::vector<ContainerDevices>> held = asked_->List();
    if (!held.ok()) ++*failures_;
    return held;
  }

 private:
  const std::unique_ptr<PodResources> asked_;
  std::atomic<uint64_t>* const failures_;
};

// Whatever this container's own /dev has.
bool HasPageFaultDevice() {
  // The kernel's list of misc devices: a number and a name in each line.
  std::ifstream devices("/proc/misc");
  std::string number, name;
  while (devices >> number >> name) {
    if (name == "userfaultfd") return true;
  }
  return false;
}

}  // namespace

Supervisor::Options SupervisorOptions(const CommandLine& line) {
  const SchedulerCommand command = {line.scheduler,       line.idle_timeout,   line.drain_timeout,
                                    line.softgpu,         line.executor_users, line.executor_memory,
                                    line.spare_executors, line.log_level,      line.log_format};
  Supervisor::Options options;
  options.state_directory = line.state_directory;
  options.may_start = line.schedulers != "adopt";
  options.command = [command](const std::string& gpu_uuid, const std::string& directory) {
    return command.For(gpu_uuid, directory);
  };
  options.connect = ConnectToScheduler;
  return options;
}

NodeAgent::NodeAgent(const CommandLine& line, Inventory inventory,
                     std::map<std::string, Capacity> capacities,
                     Supervisor::Options supervisor_options, Clock* clock)
    : line_(line),
      inventory_(std::move(inventory)),
      capacities_(std::move(capacities)),
      clock_(clock),
      policy_(line.policy, line.state_directory + "/" + kKeptPolicyName),
      kubelet_record_(line.state_directory),
      shims_(line.state_directory),
      book_(line.state_directory),
      tenant_watches_(line.state_directory + "/events.json"),
      // allocator_ is made by Open only, but nothing is connected before the first Tick, which is
      // after it.
      supervisor_([&] {
        supervisor_options.on_connected = [this](const std::string& uuid, SchedulerClient* client) {
          return allocator_->Restore(uuid, client);
        };
        return std::move(supervisor_options);
      }()) {}

// Makes the parts in the order of their dependencies. Those that may fail because of an operator's mistake come before
// anything answers the kubelet; the exporter, whose thread reads all the others, comes last.
absl::Status NodeAgent::Open() {
  for (const char* folder : {"", "/records", ShimStore::kLibraries, ShimStore::kPrograms}) {
    // Left by a process that was killed while it wrote; they would accumulate.
    RemoveUnfinishedFiles(line_.state_directory + folder);
  }
  std::error_code none_yet;
  for (const std::filesystem::path& gpu : ListFolder(line_.state_directory + "/gpus", &none_yet)) {
    RemoveUnfinishedFiles(gpu);
  }
  std::vector<Capacity> promised;
  for (const auto& [uuid, capacity] : capacities_) promised.push_back(capacity);
  policy_.SetCapacities(promised);
  // A policy that is refused is no reason to end: what runs goes on, and readiness says what is
  // wrong.
  const PolicyWatcher::LoadResult policy = policy_.LoadFirst();
  if (!policy.reason.empty()) spdlog::error("{}", policy.reason);
  if (!policy.not_kept.empty()) spdlog::warn("{}", policy.not_kept);

  const absl::StatusOr<std::string> shim_file = shims_.Install(line_.shim, GPULOOM_VERSION);
  if (!shim_file.ok()) return shim_file.status();
  const absl::StatusOr<std::string> nvml_file = shims_.Install(line_.nvml, GPULOOM_VERSION);
  if (!nvml_file.ok()) return nvml_file.status();
  const absl::StatusOr<std::string> trace_file = shims_.Install(line_.trace, GPULOOM_VERSION);
  if (!trace_file.ok()) return trace_file.status();

  std::vector<std::string> complaints;
  if (absl::Status status = book_.Load(&complaints); !status.ok()) return status;
  for (const std::string& complaint : complaints) spdlog::error("{}", complaint);

  // The kubelet need not be there yet: the client connects at each call.
  pod_resources_ = std::make_unique<CountedPodResources>(
      MakePodResourcesClient(line_.pod_resources, line_.resource_name, kPodResourcesTimeout),
      &failed_lists_);
  std::string error;
  const std::optional<uint64_t> pinned_limit = ParseSize(line_.pinned_limit, &error);
  if (!pinned_limit) return absl::InvalidArgumentError(Cat("--pinned-limit: ", error));
  // Schedulers parse it; it is checked here so that the error comes at start-up.
  if (!line_.executor_memory.empty() && !ParseSize(line_.executor_memory, &error)) {
    return absl::InvalidArgumentError(Cat("--executor-memory: ", error));
  }

  const std::chrono::seconds missing(line_.missing_seconds);
  Allocator::Options options;
  options.book = &book_;
  options.kubelet_record = &kubelet_record_;
  options.shims = &shims_;
  options.library_files = {*shim_file, *nvml_file, *trace_file};
  options.policy = &policy_;
  options.pod_resources = pod_resources_.get();
  options.clock = clock_;
  options.capacities = capacities_;
  options.resource_name = line_.resource_name;
  options.shapes = line_.shapes;
  options.on_use = [this](const std::string& uuid, const SlotUse& use) {
    board_->ShowUse(uuid, use);
  };
  // The file itself, not the standing, which is a look behind: an order to drain holds at once.
  options.closed = [this](const std::string& uuid) {
    return DrainReason(FolderOfGpu(line_.state_directory, uuid));
  };
  options.pinned_limit_bytes = *pinned_limit;
  options.tells_page_faults = line_.migrate_managed_memory && HasPageFaultDevice();
  if (line_.migrate_managed_memory && !options.tells_page_faults) {
    spdlog::warn(
        "--migrate-managed-memory has no effect: this node's kernel has no {} (Linux 6.1 has it "
        "first)",
        kPageFaultDevice);
  }
  // Called on gRPC's threads; Client is safe from any.
  options.scheduler = [this](const std::string& uuid) { return supervisor_.Client(uuid); };
  options.scheduler_is_gone = [this](const std::string& uuid) {
    return IsSchedulerGone(FolderOfGpu(line_.state_directory, uuid));
  };
  options.collector_times = {std::chrono::seconds(line_.grace_seconds), missing};
  allocator_.emplace(std::move(options));
  for (const Gpu& gpu : inventory_.gpus) {
    if (absl::Status status = supervisor_.AddGpu(gpu.uuid); !status.ok()) return status;
  }

  board_.emplace(inventory_.gpus, line_.slots, line_.shapes);
  plugins_.emplace(Plugins::Options{
      line_.kubelet_directory, line_.resource_name, line_.shapes, &*board_, &*allocator_, &refused_,
      [this](const std::string& id) { allocator_->KubeletSeen(id); }, clock_});
  if (absl::Status status = MakeEvents(); !status.ok()) return status;
  // Events are there only now. The log has it already.
  if (!policy.reason.empty()) {
    events_->Report({true, "", "", "", "GpuPolicyRefused", policy.reason, /*is_said=*/true});
  }
  if (inventory_.is_unusable) {
    events_->Report({true, "", "", "", "GpuUnusable", inventory_.trouble, /*is_said=*/true});
  }
  ReportImpossibleRules(policy_, [this](const Event& event) { events_->Report(event); });
  MakeHealth();
  tenant_watches_.Load();
  MakeStandings();
  refusals_.emplace(line_.state_directory);
  upkeep_.emplace(Upkeep::Options{
      inventory_.gpus, line_.policy, inventory_.is_unusable ? inventory_.trouble : "", missing,
      &supervisor_, &*standings_, &*board_, &*plugins_, &policy_, &*allocator_,
      [this](const Event& event) { events_->Report(event); }, &*health_});
  if (line_.metrics_address.has_value()) {
    Observer::Options observer;
    observer.state_directory = line_.state_directory;
    for (const Gpu& gpu : inventory_.gpus) observer.gpu_uuids.push_back(gpu.uuid);
    // Connections of its own, so that a report never waits for the supervisor's, nor the reverse.
    observer.connect = ConnectToScheduler;
    observer.node = [this] { return Figures(); };
    exporter_.emplace(*line_.metrics_address, AllowedHosts(line_.metrics_hosts),
                      std::move(observer), clock_);
    exporter_->Start();
  }
  return absl::OkStatus();
}

absl::Status NodeAgent::MakeEvents() {
  EventSender::Options options;
  if (line_.tells_events) {
    const absl::StatusOr<std::string> server =
        line_.api_server.empty() ? ApiServerOfCluster() : line_.api_server;
    if (!server.ok()) return server.status();
    options.server = *server;
  }
  options.service_account = line_.service_account;
  options.node = line_.node_name;
  options.clock = clock_;
  events_.emplace(std::move(options));
  events_->Start();
  return absl::OkStatus();
}

void NodeAgent::MakeStandings() {
  GpuStandings::Options options;
  options.gpus = inventory_.gpus;
  options.state_directory = line_.state_directory;
  options.supervisor = &supervisor_;
  options.board = &*board_;
  options.policy = &policy_;
  options.allocator = &*allocator_;
  options.health = &*health_;
  options.on_change = [this](const Gpu& gpu, const GpuStanding&, const GpuStanding& now) {
    // By GpuState.
    constexpr const char* kReasons[] = {"GpuHealthy", "GpuDrained", "GpuSick", "GpuUnavailable"};
    const bool is_bad = now.state == GpuState::kSick || now.state == GpuState::kUnavailable;
    events_->Report({is_bad, "", "", "", kReasons[static_cast<size_t>(now.state)],
                     Cat("GPU ", gpu.uuid, " is ", kGpuStateNames[static_cast<size_t>(now.state)],
                         now.reason.empty() ? "" : ": ", now.reason),
                     /*is_said=*/false, gpu.uuid});
  };
  options.on_report = [this](const Gpu& gpu, const GpuReport& report) {
    const std::vector<Event> events = tenant_watches_.Look(gpu.uuid, report);
    tenant_watches_.Keep();
    for (const Event& event : events) events_->Report(event);
  };
  options.capacities = capacities_;
  standings_.emplace(std::move(options));
}

void NodeAgent::MakeHealth() {
  GpuHealth::Options options;
  for (const Gpu& gpu : inventory_.gpus) options.gpu_uuids.push_back(gpu.uuid);
  if (!inventory_.gpus.empty()) {
    options.nvml_library = line_.health_nvml;
    if (line_.health_nvml.empty() && line_.softgpu.empty()) options.nvml_library = kNvmlLibrary;
  }
  options.probe = [softgpu = line_.softgpu](const std::string& uuid,
                                            const std::atomic<bool>& is_cancelled) {
    // This program again: it is there wherever the agent runs, and main.cc knows the option.
    std::vector<std::string> arguments = {OwnProgram(), "--probe-gpu", uuid};
    if (!softgpu.empty()) arguments.insert(arguments.end(), {"--softgpu", softgpu});
    return RunGpuProbe(arguments, is_cancelled);
  };
  options.clock = clock_;
  for (const Gpu& gpu : inventory_.gpus) {
    std::string unread;
    const auto standing = ReadStanding(FolderOfGpu(line_.state_directory, gpu.uuid), &unread);
    const auto fault = inventory_.faults.find(gpu.uuid);
    const auto source = Sickness::SourceOf(standing ? standing->sickness_source : "");
    const bool was_sick = standing.has_value() && !standing->sickness.empty();
    // What an agent has seen happen says more than how the GPU is now, and that more than what a probe said before.
    if (was_sick && (source == Sickness::Source::kEvent || fault == inventory_.faults.end())) {
      options.known.push_back({gpu.uuid, standing->sickness, source});
    } else if (fault != inventory_.faults.end()) {
      options.known.push_back({gpu.uuid, fault->second, Sickness::Source::kState});
    } else if (!unread.empty()) {
      // It may have been: a probe says whether it is.
      options.known.push_back({gpu.uuid, unread, Sickness::Source::kProbe});
    }
  }
  health_.emplace(std::move(options));
  health_->Start();
}

void NodeAgent::SetAsideFolders(Clock::Time now) {
  const bool has_none = inventory_.gpus.empty();
  if ((has_none && inventory_.is_unusable) || now < next_folder_look_) return;
  next_folder_look_ = now + Upkeep::kSweepPause;
  if (!book_.Unread().empty()) return;  // they may hold any
  std::set<std::string> kept;
  for (const Gpu& gpu : inventory_.gpus) kept.insert(gpu.uuid);
  for (const Allocation& allocation : book_.All()) kept.insert(allocation.gpu_uuid);
  if (has_none) {
    // More often its driver says nothing than that all were taken out: these were drained first.
    std::error_code none_yet;
    for (const std::filesystem::path& gpu :
         ListFolder(line_.state_directory + "/gpus", &none_yet)) {
      if (!ReadDrainOrder(gpu)) kept.insert(gpu.filename());
    }
  }
  for (const std::string& uuid : SetAsideGoneGpus(line_.state_directory, kept)) {
    events_->Report({true, "", "", "", "GpuGone",
                     Cat("GPU ", uuid, " is no longer on this node, and nobody holds it"),
                     /*is_said=*/false, uuid});
  }
}

// On the agent's loop. What may take long is done by the threads of health, events and the
// exporter; kubelet and schedulers are waited for here, with a limit each (exporter.h counts them
// up).
void NodeAgent::Tick(Clock::Time now, bool has_predecessor) {
  upkeep_->Tick(now, has_predecessor);
  SetAsideFolders(now);
  refusals_->Look(refused_.Latest(), now);
  if (exporter_.has_value()) exporter_->Ticked(now);
}

// The plugin's servers stay: until the kubelet has taken the other agent, it asks this one.
void NodeAgent::Rest() {
  if (refusals_.has_value()) refusals_->Flush();
  events_->Stop();
  health_->Stop();
  if (exporter_.has_value()) exporter_->Stop();
}

void NodeAgent::Resume() {
  upkeep_->Resume();
  tenant_watches_.Load();  // the other agent may have told something
  events_->Start();
  health_->Start();
  if (exporter_.has_value()) exporter_->Start();
}

// On the exporter's thread, while the loop goes on: every part that is asked here is safe from any
// thread. The figures are not of one instant.
NodeFigures NodeAgent::Figures() const {
  NodeFigures figures;
  for (const Allocation& allocation : book_.All()) {
    ++figures.allocations;
    figures.bound_allocations += allocation.binding.has_value();
  }
  figures.slots_held = allocator_->SlotsHeld();
  for (const Gpu& gpu : inventory_.gpus) {
    figures.gpus.push_back({gpu, board_->StandingOf(gpu.uuid)});
  }
  const std::string driver_trouble = health_->DriverTrouble();
  figures.node_trouble = inventory_.trouble;
  if (!figures.node_trouble.empty() && !driver_trouble.empty()) figures.node_trouble += "; ";
  figures.node_trouble += driver_trouble;
  figures.has_unusable_gpu = inventory_.is_unusable || !driver_trouble.empty();
  figures.watches = static_cast<uint64_t>(plugins_->watchers());
  const Plugins::Counts counts = plugins_->counts();
  figures.registrations = counts.registrations;
  figures.kubelet_errors = {{"Register", counts.failed_registrations},
                            {"watch", counts.ended_watches},
                            {"List", failed_lists_}};
  // In this order: never more are refused than were asked.
  figures.refusals = refused_.Counts();
  figures.requests = refused_.Requests();
  figures.latest_refusals = refused_.Latest();
  figures.events_posted = events_->posted();
  figures.events_dropped = events_->dropped();
  figures.has_policy = policy_.Current() != nullptr;
  figures.policy_generation = policy_.Generation();
  figures.policy_trouble = policy_.Trouble();
  figures.failed_grants = allocator_->FailedGrants();
  return figures;
}

void NodeAgent::Stop() {
  Rest();
  plugins_->Stop();
}

}  // namespace gpuloom
