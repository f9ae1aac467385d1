// SPDX-License-Identifier: Apache-2.0
#include "agent/node_agent.h"

#include <spdlog/spdlog.h>

#include <set>

#include "agent/cat.h"
#include "agent/inventory/slots.h"
#include "agent/node/size.h"
#include "agent/plugin/plugin_socket.h"
#include "agent/policy/policy_file.h"
#include "agent/supervisor/control_client.h"
#include "agent/supervisor/scheduler_command.h"

namespace gpuloom {
namespace {

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

}  // namespace

Supervisor::Options SupervisorOptions(const CommandLine& line) {
  const SchedulerCommand command = {line.scheduler, line.idle_timeout,   line.drain_timeout,
                                    line.softgpu,   line.executor_users, line.executor_memory};
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
      supervisor_([&] {
        supervisor_options.on_connected = [this](const std::string& uuid, SchedulerClient* client) {
          return allocator_->Restore(uuid, client);
        };
        return std::move(supervisor_options);
      }()) {}

absl::Status NodeAgent::Open() {
  std::vector<Capacity> promised;
  for (const auto& [uuid, capacity] : capacities_) promised.push_back(capacity);
  policy_.SetCapacities(promised);
  const PolicyWatcher::Look policy = policy_.LoadFirst();
  if (!policy.reason.empty()) spdlog::error("{}", policy.reason);
  if (!policy.not_kept.empty()) spdlog::warn("{}", policy.not_kept);

  const absl::StatusOr<std::string> shim_file = shims_.Install(line_.shim, GPULOOM_VERSION);
  if (!shim_file.ok()) return shim_file.status();
  const absl::StatusOr<std::string> nvml_file = shims_.Install(line_.nvml, GPULOOM_VERSION);
  if (!nvml_file.ok()) return nvml_file.status();

  std::vector<std::string> complaints;
  if (absl::Status status = book_.Load(&complaints); !status.ok()) return status;
  for (const std::string& complaint : complaints) spdlog::error("{}", complaint);

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
  options.library_files = {*shim_file, *nvml_file};
  options.policy = &policy_;
  options.pod_resources = pod_resources_.get();
  options.clock = clock_;
  options.capacities = capacities_;
  options.pinned_limit_bytes = *pinned_limit;
  options.scheduler = [this](const std::string& uuid) { return supervisor_.Client(uuid); };
  options.collector_times = {std::chrono::seconds(line_.grace_seconds), missing};
  allocator_.emplace(std::move(options));
  for (const Gpu& gpu : inventory_.gpus) {
    if (absl::Status status = supervisor_.AddGpu(gpu.uuid); !status.ok()) return status;
  }

  board_.emplace(inventory_.gpus, line_.slots);
  server_.emplace(&*board_, &*allocator_);
  refusing_server_.emplace(&*board_, &*allocator_, PluginServer::Answers::kNoOptions);
  registrar_.emplace(
      Registrar::Options{line_.kubelet_directory, MakePluginSocketName(), line_.resource_name,
                         [this](const std::string& id) { allocator_->KubeletSeen(id); }},
      &*server_, &*refusing_server_, clock_);
  upkeep_.emplace(Upkeep::Options{inventory_.gpus, line_.policy,
                                  inventory_.is_unusable ? inventory_.none_because : "", missing,
                                  &supervisor_, &*board_, &*registrar_, &policy_, &*allocator_});
  if (line_.metrics_address.has_value()) {
    Observer::Options observer;
    observer.state_directory = line_.state_directory;
    for (const Gpu& gpu : inventory_.gpus) observer.gpu_uuids.push_back(gpu.uuid);
    observer.connect = ConnectToScheduler;
    observer.node = [this] { return Figures(); };
    exporter_.emplace(*line_.metrics_address, std::move(observer), clock_);
    exporter_->Start();
  }
  return absl::OkStatus();
}

void NodeAgent::Tick(Clock::Time now, bool has_predecessor) {
  upkeep_->Tick(now, has_predecessor);
  if (exporter_.has_value()) exporter_->Ticked(now);
}

void NodeAgent::Rest() {
  if (exporter_.has_value()) exporter_->Stop();
}

void NodeAgent::Resume() {
  upkeep_->Resume();
  if (exporter_.has_value()) exporter_->Start();
}

NodeFigures NodeAgent::Figures() const {
  NodeFigures figures;
  std::map<std::string, std::set<std::string>> given;
  for (const Allocation& allocation : book_.All()) {
    ++figures.allocations;
    figures.bound_allocations += allocation.binding.has_value();
    given[allocation.gpu_uuid].insert(allocation.device_ids.begin(), allocation.device_ids.end());
  }
  std::map<std::string, bool> is_healthy;
  uint64_t version = 0;
  for (const Slot& slot : board_->Slots(&version)) {
    if (const auto id = ParseDeviceId(slot.device_id)) is_healthy[id->gpu_uuid] = slot.is_healthy;
  }
  for (const Gpu& gpu : inventory_.gpus) {
    figures.gpus.push_back(
        {gpu, static_cast<uint64_t>(line_.slots), given[gpu.uuid].size(), is_healthy[gpu.uuid]});
  }
  figures.watches = static_cast<uint64_t>(server_->watchers());
  const Registrar::Counts& counts = registrar_->counts();
  figures.registrations = counts.registrations;
  figures.kubelet_errors = {{"Register", counts.failed_registrations},
                            {"watch", counts.ended_watches},
                            {"List", failed_lists_}};
  figures.refusals = server_->refusals().Counts();
  figures.latest_refusals = server_->refusals().Latest();
  figures.has_policy = policy_.Current() != nullptr;
  figures.policy_generation = policy_.Generation();
  figures.policy_trouble = policy_.Trouble();
  return figures;
}

void NodeAgent::Stop() {
  Rest();
  server_->Stop();
  refusing_server_->Stop();
}

}  // namespace gpuloom
