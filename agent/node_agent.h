// SPDX-License-Identifier: Apache-2.0
// The agent between a kubelet and the schedulers: makes its parts from the command line and connects them. Owns all
// of them but the clock, which outlives it. Its functions are called from one thread. Between Open and Stop, gRPC's
// threads answer the kubelet, one thread looks for sick GPUs, one posts events, and with --metrics-address two more
// watch the tenants' use and serve the figures.
//
//   NodeAgent agent(line, inventory, capacities, SupervisorOptions(line), &clock);
//   if (absl::Status status = agent.Open(); !status.ok()) ...  // once it is in charge (handover.h)
//   agent.Tick(clock.Now(), handover.HasPredecessor());        // a few times a second, in charge
//   agent.Rest();                                              // another one is in charge now
//   agent.Resume();                                            // in charge again
//   agent.Stop();
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "agent/clock.h"
#include "agent/command_line.h"
#include "agent/events/event_sender.h"
#include "agent/events/tenant_watches.h"
#include "agent/gpu_standings.h"
#include "agent/identity/allocation_book.h"
#include "agent/identity/kubelet_record.h"
#include "agent/identity/pod_resources.h"
#include "agent/inventory/gpu_health.h"
#include "agent/inventory/gpu_list.h"
#include "agent/metrics/exporter.h"
#include "agent/plugin/allocator.h"
#include "agent/plugin/device_board.h"
#include "agent/plugin/plugins.h"
#include "agent/plugin/refused_requests.h"
#include "agent/plugin/shim_store.h"
#include "agent/policy/in_force/policy_watcher.h"
#include "agent/refusal_log.h"
#include "agent/supervisor/supervisor.h"
#include "agent/upkeep.h"

namespace gpuloom {

// Which schedulers the command line asks for. on_connected is left to the caller.
Supervisor::Options SupervisorOptions(const CommandLine& line);

class NodeAgent {
 public:
  // `capacities`: by GPU UUID, one for each GPU. Without any GPU the agent serves no slots, and reports why.
  NodeAgent(const CommandLine& line, Inventory inventory,
            std::map<std::string, Capacity> capacities, Supervisor::Options supervisor_options,
            Clock* clock);

  // Reads the policy and the allocations, and installs the libraries. Fails with what the operator must mend; a wrong
  // policy file is not a failure (policy_watcher.h).
  absl::Status Open();
  bool is_open() const { return upkeep_.has_value(); }
  // The functions below are called after Open only.
  void Tick(Clock::Time now, bool has_predecessor = false);
  void Rest();
  void Resume();
  // The port of the metrics; 0: nothing is served.
  int metrics_port() const { return exporter_.has_value() ? exporter_->port() : 0; }
  // Ends the service towards the kubelet. The schedulers keep running.
  void Stop();

 private:
  absl::Status MakeEvents();
  void MakeHealth();
  void MakeStandings();
  // Of GPUs that were taken out, once nobody holds them.
  void SetAsideFolders(Clock::Time now);
  // From any thread after Open.
  NodeFigures Figures() const;

  const CommandLine line_;
  const Inventory inventory_;
  const std::map<std::string, Capacity> capacities_;
  Clock* const clock_;
  PolicyWatcher policy_;
  const KubeletRecord kubelet_record_;
  ShimStore shims_;
  AllocationBook book_;
  TenantWatches tenant_watches_;
  Supervisor supervisor_;
  std::atomic<uint64_t> failed_lists_ = 0;  // calls of the kubelet's PodResources that failed
  // Made by Open.
  std::unique_ptr<PodResources> pod_resources_;
  std::optional<Allocator> allocator_;
  std::optional<DeviceBoard> board_;
  RefusedRequests refused_{PluginServer::RefusableCalls()};
  std::optional<Plugins> plugins_;
  std::optional<EventSender> events_;
  std::optional<GpuHealth> health_;
  std::optional<GpuStandings> standings_;
  std::optional<RefusalLog> refusals_;
  std::optional<Upkeep> upkeep_;
  std::optional<Exporter> exporter_;
  Clock::Time next_folder_look_;
};

}  // namespace gpuloom
