// SPDX-License-Identifier: Apache-2.0
// What happens to an allocation between the kubelet's calls: made in Allocate, bound to its pod in
// PreStartContainer, told to a scheduler that comes back, re-granted when the policy changes, taken
// away when its pod is gone. Knows no gRPC. Owns nothing it is given; lives as long as the agent.
// Safe from any thread.
//
// A refusal is an absl::Status whose message is meant for the pod's events: it names the world that
// failed, the object and the next step.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/clock.h"
#include "agent/identity/allocation_book.h"
#include "agent/identity/collector.h"
#include "agent/identity/kubelet_record.h"
#include "agent/identity/resolver.h"
#include "agent/inventory/slots.h"
#include "agent/plugin/container_setup.h"
#include "agent/plugin/shim_store.h"
#include "agent/plugin/slot_use.h"
#include "agent/policy/in_force/policy_watcher.h"
#include "agent/policy/settings.h"
#include "agent/supervisor/scheduler_client.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class Allocator {
 public:
  struct Options {
    AllocationBook* book = nullptr;
    const KubeletRecord* kubelet_record = nullptr;
    ShimStore* shims = nullptr;
    LibraryFiles library_files;  // what new allocations get
    const PolicyWatcher* policy = nullptr;
    PodResources* pod_resources = nullptr;
    Clock* clock = nullptr;
    std::map<std::string, Capacity> capacities;  // by GPU uuid
    std::string resource_name;                   // of single slots
    std::vector<int> shapes;                     // of several, each a resource of its own
    // Allocate has changed this GPU's use. May be null.
    std::function<void(const std::string& gpu_uuid, const SlotUse& use)> on_use;
    // Why the GPU is not given to new pods; empty: it is. May be null.
    std::function<std::string(const std::string& gpu_uuid)> closed;
    uint64_t pinned_limit_bytes = 0;  // host memory a session may register
    bool tells_page_faults = false;   // see kPageFaultDevice
    std::function<absl::StatusOr<std::shared_ptr<SchedulerClient>>(const std::string& gpu_uuid)>
        scheduler;
    CollectorTimes collector_times;
    // How long PreStartContainer waits for a pod to appear, or a scheduler to come back; the
    // kubelet gives it 30 s.
    Clock::Duration patience = std::chrono::seconds(8);
  };

  explicit Allocator(Options options);

  // Which of the available devices of a resource the kubelet should take, all of one GPU.
  absl::StatusOr<std::vector<std::string>> Prefer(std::vector<std::string> available,
                                                  const std::vector<std::string>& must_include,
                                                  int size);
  // Makes the directory and hands out mounts and environment. Slots that single ones and shapes
  // both ask for are given once: what has been given decides, not what the kubelet believed. Does
  // not need the scheduler: a pod that is refused here has failed for good, while PreStartContainer
  // is tried again.
  absl::StatusOr<ContainerSetup> Allocate(const std::vector<std::string>& device_ids);
  // Takes back what Allocate gave in the same call of the kubelet, when a later container of it was
  // refused.
  void TakeBack(const ContainerSetup& setup);

  // Finds the pod, asks the policy, tells the scheduler. OK: the container may start.
  absl::Status PreStart(const std::vector<std::string>& device_ids);

  // Tells a scheduler that has just been connected everything it must know, and only that.
  absl::Status Restore(const std::string& gpu_uuid, SchedulerClient* scheduler);

  // After a change of policy: every bound allocation gets its new grant, but more memory only where the GPU has it
  // left, and the memory it has where its new rule is impossible on the GPU. One line per allocation that could not.
  std::vector<std::string> Regrant();

  // Ends the allocations whose pods are gone, and deletes the libraries that none was given, unless
  // another agent may still be giving its own. One line per trouble.
  std::vector<std::string> Sweep(bool has_predecessor = false);
  // Of each GPU, by UUID.
  std::map<std::string, SlotUse> SlotUses() const;
  // The kubelet that runs, by what tells one start of it from the next. Without it Sweep ends
  // nothing.
  void KubeletSeen(const std::string& kubelet_id);

 private:
  // The GPU of all these devices.
  absl::StatusOr<std::string> GpuOf(const std::vector<std::string>& device_ids) const;
  // What was asked for is on no GPU, or on several: says what would wait instead, if anything would.
  absl::Status WithRemedy(const absl::Status& refusal, size_t slots) const;
  // What the policy has against the start of this container. OK: nothing.
  absl::Status Admit(const std::string& gpu_uuid, const std::vector<std::string>& device_ids,
                     const PodContainer& owner) const GPULOOM_REQUIRES(admission_mutex_);
  // Other containers of the namespace that the kubelet shows on this GPU and that were admitted.
  // Those that were not may be waiting for a place themselves.
  absl::StatusOr<uint32_t> OtherTenants(const std::string& gpu_uuid,
                                        const std::vector<std::string>& device_ids,
                                        const std::string& pod_namespace) const;
  // Sets what the binding's owner gets for the allocation's slots. Returns false, and changes
  // nothing, while no policy is in force, or the GPU is not there.
  [[nodiscard]] bool SetGrant(const Allocation& allocation, Binding* binding) const;
  // Why the rule of the bound allocation's owner is impossible on its GPU; empty: it is not.
  std::string BrokenPromiseTo(const Allocation& allocation) const;
  std::string Closed(const std::string& gpu_uuid) const;
  // The new allocation of these devices, all of this GPU; or why they cannot be given.
  absl::StatusOr<Allocation> TakeSlots(const std::string& gpu_uuid,
                                       const std::vector<std::string>& device_ids)
      GPULOOM_EXCLUDES(allocation_mutex_);
  static absl::Status CheckSingleSlots(const SlotUse& use,
                                       const std::vector<std::string>& device_ids);
  // The slots that a shape's device is to be.
  absl::StatusOr<std::vector<int>> ShapesSlots(const SlotUse& use, const DeviceId& device,
                                               size_t count) const;
  SlotUse UseOf(const Capacity& capacity, const std::vector<Allocation>& allocations) const;
  // Why the GPU cannot keep the promise of this memory to the holder of these slots; empty: it can.
  std::string Shortage(const std::string& gpu_uuid, const std::vector<int>& slots,
                       uint64_t wanted_bytes) const;
  absl::Status Tell(SchedulerClient* scheduler, const Allocation& allocation) const;
  absl::StatusOr<std::shared_ptr<SchedulerClient>> WaitForScheduler(
      const std::string& gpu_uuid) const;

  const Options options_;
  Resolver resolver_;
  // Held from looking at what has been given until more is. No other process is asked meanwhile.
  Mutex allocation_mutex_;
  // From Admit until the allocation is bound: of two that start at once the second counts the
  // first.
  Mutex admission_mutex_;
  Mutex collector_mutex_;
  Collector collector_ GPULOOM_GUARDED_BY(collector_mutex_);
};

}  // namespace gpuloom
