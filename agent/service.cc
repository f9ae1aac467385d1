// SPDX-License-Identifier: Apache-2.0
#include "agent/service.h"

#include <spdlog/spdlog.h>

#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/capacities.h"
#include "agent/handover.h"
#include "agent/identity/allocation_book.h"
#include "agent/inventory/inventory_process.h"
#include "agent/inventory/inventory_watch.h"
#include "agent/node/process.h"
#include "agent/node/runtime_check.h"
#include "agent/node_agent.h"
#include "agent/state_lock.h"
#include "agent/steady_clock.h"
#include "agent/supervisor/scheduler_command.h"
#include "agent/supervisor/schedulers_only.h"
#include "proto/control/version.h"

namespace gpuloom {
namespace {

// How soon a signal, a handover or a change on the node is noticed. Each look costs some system
// calls.
constexpr Clock::Duration kTick = std::chrono::milliseconds(200);

// This program again, which lists the GPUs and ends: see inventory_process.h.
std::vector<std::string> ListingProgram(const CommandLine& line) {
  std::vector<std::string> arguments = {OwnProgram(), "--list-gpus", "--state-dir",
                                        line.state_directory};
  if (!line.softgpu.empty()) arguments.insert(arguments.end(), {"--softgpu", line.softgpu});
  return arguments;
}

// What an agent begins with. Nothing where it is to end first: it does not wait for a driver that hangs. A CUDA library that is
// named is the operator's choice of GPUs, and one that cannot be used ends the agent.
std::optional<absl::StatusOr<Inventory>> FindGpus(const CommandLine& line,
                                                  const std::atomic<bool>& stop) {
  if (!line.softgpu.empty()) return TakeInventory(SourcesOf(line));
  spdlog::debug("inventory: asking the driver which GPUs there are");
  std::packaged_task<absl::StatusOr<Inventory>()> search(
      [line] { return RunForFirstInventory(ListingProgram(line), SourcesOf(line)); });
  std::future<absl::StatusOr<Inventory>> found = search.get_future();
  std::thread(std::move(search)).detach();
  while (!stop) {
    if (found.wait_for(kTick) == std::future_status::ready) return found.get();
  }
  return std::nullopt;
}

absl::StatusOr<Inventory> LookForGpusAgain(const CommandLine& line) {
  absl::StatusOr<Inventory> inventory = RunForInventory(ListingProgram(line));
  if (!inventory.ok()) spdlog::warn("{}", std::string(inventory.status().message()));
  return inventory;
}

// Runs until it is to end or, on a node without a GPU to share, until the node's GPUs change.
absl::Status RunSchedulers(const CommandLine& line, const Inventory& inventory, Clock* clock,
                           const std::atomic<bool>& stop) {
  InventoryWatch watch(
      inventory, [line] { return LookForGpusAgain(line); }, clock);
  if (inventory.gpus.empty()) {
    while (!stop && !watch.Change()) clock->SleepFor(kTick);
    return absl::OkStatus();
  }
  Supervisor::Options options = SupervisorOptions(line);
  // The agent in the other pod tells the schedulers what they must know; this one only keeps them
  // alive.
  options.on_connected = [](const std::string&, SchedulerClient*) { return absl::OkStatus(); };
  Supervisor supervisor(std::move(options));
  for (const Gpu& gpu : inventory.gpus) {
    if (absl::Status status = supervisor.AddGpu(gpu.uuid); !status.ok()) return status;
  }
  std::set<std::string> known, gone;
  for (const Gpu& gpu : inventory.gpus) known.insert(gpu.uuid);
  RunSchedulersOnly(
      &supervisor, clock,
      [&] {
        // Again and again: a scheduler that still runs there ends by itself.
        for (const std::string& uuid : gone) supervisor.RemoveGpu(uuid);
        const std::optional<Inventory> change = watch.Change();
        if (!change) return;
        // While a GPU cannot even be named, it may be the one that is missing.
        gone = change->is_unusable ? std::set<std::string>() : known;
        // Those that are there carry tenants, and go on.
        for (const Gpu& gpu : change->gpus) {
          known.insert(gpu.uuid);
          gone.erase(gpu.uuid);
          if (absl::Status status = supervisor.AddGpu(gpu.uuid); !status.ok()) {
            spdlog::error("{}", std::string(status.message()));
          }
        }
      },
      stop);
  return absl::OkStatus();
}

// Until it is to end, or the node's GPUs change. Another agent may be in charge before and after this one.
// *change: the GPUs that there are then.
absl::Status RunAgent(const CommandLine& line, const Inventory& inventory,
                      const std::map<std::string, Capacity>& capacities, Handover* handover,
                      SteadyClock* clock, std::optional<Inventory>* change,
                      const std::atomic<bool>& stop) {
  // It does nothing before Open: until this agent is in charge, another one writes the same files.
  NodeAgent agent(line, inventory, capacities, SupervisorOptions(line), clock);
  InventoryWatch watch(
      inventory, [line] { return LookForGpusAgain(line); }, clock);
  bool was_in_charge = false;
  for (; !stop; clock->SleepFor(kTick)) {
    // An agent that is not in charge has nothing to change, and one that leaves still answers the kubelet.
    if (was_in_charge && (*change = watch.Change())) break;
    const absl::StatusOr<Handover::Role> role = handover->Look();
    if (!role.ok()) return role.status();
    const bool is_in_charge = *role == Handover::Role::kInCharge;
    if (is_in_charge && !agent.is_open()) {
      // Only in charge, and before anything is timed: where this boot began is written by one
      // agent.
      if (absl::Status status = clock->Open(line.state_directory); !status.ok()) {
        spdlog::warn("{}", std::string(status.message()));
      }
      if (absl::Status status = agent.Open(); !status.ok()) return status;
    } else if (is_in_charge && !was_in_charge) {
      agent.Resume();
    }
    // The lock is given up already, and the plugin's servers go on: see
    // docs/design/agent-update.md.
    if (!is_in_charge && was_in_charge) agent.Rest();
    if (is_in_charge) agent.Tick(clock->Now(), handover->HasPredecessor());
    was_in_charge = is_in_charge;
  }
  if (agent.is_open()) agent.Stop();
  return absl::OkStatus();
}

}  // namespace

InventorySources SourcesOf(const CommandLine& line) {
  InventorySources sources;
  sources.cuda_library = line.softgpu;
  sources.state_directory = line.state_directory;
  for (const Allocation& allocation : AllocationBook(line.state_directory).All()) {
    sources.held.insert(allocation.gpu_uuid);
  }
  return sources;
}

absl::Status Serve(const CommandLine& line, const std::atomic<bool>& stop) {
  // Its lock is another one than the agent's: both run on the same node, over the same state
  // directory.
  const bool is_only = line.schedulers == "only";
  absl::StatusOr<channel::UniqueFd> only_lock;  // held until the end
  if (is_only) {
    only_lock = LockState(line.state_directory, "schedulers.lock");
    if (!only_lock.ok()) return only_lock.status();
  }
  if (!is_only && line.softgpu.empty()) {
    if (const std::string warning = CheckNvidiaRuntime(line.runtime_config); !warning.empty()) {
      spdlog::warn("{}", warning);
    }
  }
  // Outside of the loop: an agent that finds other GPUs stays in charge.
  Handover handover(line.state_directory);
  SteadyClock clock;
  // Another round only where GPUs were missing or could not be used, and this has changed (InventoryWatch).
  std::optional<Inventory> change;
  while (!stop) {
    // What changed is known already.
    std::optional<absl::StatusOr<Inventory>> found = std::exchange(change, std::nullopt);
    if (!found) found = FindGpus(line, stop);
    if (!found) break;
    const absl::StatusOr<Inventory>& inventory = *found;
    if (!inventory.ok()) return inventory.status();
    const absl::StatusOr<std::map<std::string, Capacity>> capacities =
        CapacitiesOf(inventory->gpus, line.slots, line.reserve);
    if (!capacities.ok()) return capacities.status();
    spdlog::info("agent: {} on {} GPUs", kVersion, inventory->gpus.size());
    for (const auto& [uuid, fault] : inventory->faults) {
      spdlog::error("inventory: GPU {} cannot be used: {}; its slots wait until it can", uuid,
                    fault);
    }
    if (!inventory->trouble.empty()) {
      spdlog::log(inventory->is_unusable ? spdlog::level::err : spdlog::level::warn,
                  "{}; {}looking again every {} s", inventory->trouble,
                  inventory->gpus.empty() ? "offering no slots, and " : "",
                  InventoryWatch::kPause.count());
    }
    absl::Status status =
        is_only ? RunSchedulers(line, *inventory, &clock, stop)
                : RunAgent(line, *inventory, *capacities, &handover, &clock, &change, stop);
    if (!status.ok()) return status;
  }
  if (!is_only) spdlog::info("agent: stopped; the schedulers keep running for the next one");
  return absl::OkStatus();
}

}  // namespace gpuloom
