// SPDX-License-Identifier: Apache-2.0
// An allocation's life: it is made in Allocate, bound to its pod in PreStartContainer, added again to a scheduler
// that comes back, granted anew when the policy changes, and removed when its pod is gone. Knows no gRPC. Owns
// nothing that it is given; all of it outlives this object, which lives as long as the agent. Safe from any thread.
// Calls that need a scheduler or the kubelet's PodResources block for their answers: PreStart waits for the pod for
// up to Options::patience, and then as long again for the scheduler.
//
// A refusal is an absl::Status whose message is meant for the pod's events: it names the component that failed, the
// object and the next step.
#pragma once

#include <functional>
#include <map>
#include <optional>
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
#include "agent/plugin/owed_grants.h"
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
    LibraryFiles library_files;  // what new allocations are given
    const PolicyWatcher* policy = nullptr;
    PodResources* pod_resources = nullptr;
    Clock* clock = nullptr;
    std::map<std::string, Capacity> capacities;  // by GPU uuid
    std::string resource_name;                   // of single slots
    std::vector<int> shapes;                     // in slots; each shape is a resource of its own
    // Called when Allocate has changed this GPU's use. May be null.
    std::function<void(const std::string& gpu_uuid, const SlotUse& use)> on_use;
    // Returns why the GPU is not given to new pods; empty: it is. May be null.
    std::function<std::string(const std::string& gpu_uuid)> closed;
    uint64_t pinned_limit_bytes = 0;  // host memory a session may register
    bool tells_page_faults = false;   // see kPageFaultDevice
    std::function<absl::StatusOr<std::shared_ptr<SchedulerClient>>(const std::string& gpu_uuid)>
        scheduler;
    // Whether certainly no process is this GPU's scheduler, be it one that does not answer. May be null: unknown.
    std::function<bool(const std::string& gpu_uuid)> scheduler_is_gone;
    CollectorTimes collector_times;
    // How long PreStartContainer waits for a pod to appear, or for a scheduler to come back; the kubelet's limit for
    // the call is 30 s.
    Clock::Duration patience = std::chrono::seconds(8);
  };

  explicit Allocator(Options options);

  // Chooses which of the available devices of a resource the kubelet should take, all of one GPU.
  absl::StatusOr<std::vector<std::string>> Prefer(std::vector<std::string> available,
                                                  const std::vector<std::string>& must_include,
                                                  int size);
  // Makes the allocation's directory and returns its mounts and environment. A slot for which devices of single slots
  // and of shapes compete is given once: what has been given decides, not what the kubelet believed. Does not need
  // the scheduler, because a pod that is refused here has failed for good, while the kubelet repeats
  // PreStartContainer.
  absl::StatusOr<ContainerSetup> Allocate(const std::vector<std::string>& device_ids);
  // Undoes an Allocate of the same request of the kubelet, when a later container of the request was refused.
  void TakeBack(const ContainerSetup& setup) GPULOOM_EXCLUDES(allocation_mutex_);

  // Finds the pod, applies the policy, and binds the allocation at the scheduler. OK: the container may start.
  // *pod_namespace becomes that of the pod as soon as it is known, for a refusal, too.
  absl::Status PreStart(const std::vector<std::string>& device_ids,
                        std::string* pod_namespace = nullptr);

  // Tells a scheduler that has just been connected everything it must know, and only that. What the
  // policy gives now is granted as by Regrant: it may have changed while no agent was in charge.
  absl::Status Restore(const std::string& gpu_uuid, SchedulerClient* scheduler);

  // Call it after a change of policy: gives every bound allocation its new grant, but more memory only where the GPU
  // has it left, with what others give up; where the new rule is impossible on the GPU, the allocation keeps its
  // memory. Returns one line for each allocation for which that failed, behind the last GPU's. Call it again now and
  // then while OwesGrants.
  std::vector<std::string> Regrant();
  // Whether an allocation lacks what the policy grants it and may have it later, be it only memory that is not left.
  bool OwesGrants() const { return owed_.any(); }
  // One line for each of those allocations whose grant could not be recorded, or was refused by the scheduler.
  std::vector<std::string> FailedGrants() const { return owed_.Failures(); }

  // Ends the allocations whose pods are gone, and deletes the libraries that no allocation uses, unless a predecessor
  // may still hand out its own. Returns one line for each trouble.
  std::vector<std::string> Sweep(bool has_predecessor = false) GPULOOM_EXCLUDES(allocation_mutex_);
  // How many slots each bound allocation's pod holds now, by name. 0: the pod has ended, or the slots have passed to a later
  // one, and the allocation is only not collected yet.
  std::map<std::string, uint64_t> SlotsHeld() const GPULOOM_EXCLUDES(collector_mutex_);
  // The use of each GPU, by UUID.
  std::map<std::string, SlotUse> SlotUses() const;
  // Says which kubelet runs; the id distinguishes its starts. Until it is called, Sweep ends nothing.
  void KubeletSeen(const std::string& kubelet_id);

 private:
  // One GPU, and the lock that is held from counting what has been granted of it until more is granted: of two
  // containers that start or grow at once, the second counts the first. Its scheduler is called with the lock held; one
  // that hangs delays containers of this GPU only.
  struct Gate {
    explicit Gate(const Capacity& of) : capacity(of) {}
    const Capacity& capacity;
    mutable Mutex mutex;
  };

  // The GPU of all these devices.
  absl::StatusOr<std::string> GpuOf(const std::vector<std::string>& device_ids) const;
  // For a request whose devices are on no GPU, or on several: adds what to request instead so that the pod waits.
  absl::Status WithRemedy(const absl::Status& refusal, size_t slots) const;
  // Judges the start of a container and binds its allocation; returns that one's name.
  absl::StatusOr<std::string> Start(const Gate& gate, const std::vector<std::string>& device_ids,
                                    const PodContainer& owner, SchedulerClient* scheduler)
      GPULOOM_EXCLUDES(gate.mutex);
  // What the policy has against the start of this container. OK: nothing.
  absl::Status Admit(const Gate& gate, const Policy& policy,
                     const std::vector<std::string>& device_ids, const PodContainer& owner) const
      GPULOOM_REQUIRES(gate.mutex);
  // Unavailable while records of allocations cannot be read: it is unknown what their containers hold.
  absl::Status KnowsWhatIsHeld() const;
  // Whether the GPU is given to new containers and has the memory for this one.
  absl::Status CheckRoom(const Gate& gate, const Policy& policy, const Allocation& allocation,
                         const PodContainer& owner) const GPULOOM_REQUIRES(gate.mutex);
  absl::Status BindFirst(const Gate& gate, const Policy& policy, Allocation allocation,
                         const PodContainer& owner, SchedulerClient* scheduler) const
      GPULOOM_REQUIRES(gate.mutex);
  // Of an allocation that is bound.
  absl::Status StartAgain(const Gate& gate, const Policy& policy, const Allocation& allocation,
                          SchedulerClient* scheduler) const GPULOOM_REQUIRES(gate.mutex);
  // Other containers of the namespace that the kubelet shows on this GPU and that were admitted.
  // Those that were not may be waiting for a place themselves.
  absl::StatusOr<uint32_t> OtherTenants(const std::string& gpu_uuid,
                                        const std::vector<std::string>& device_ids,
                                        const std::string& pod_namespace) const;
  // All allocations, and last those whose holders the policy gives more memory than they have: what others give up is
  // there for them then. Each part oldest first.
  std::vector<Allocation> GrowingLast(const Policy& policy) const;
  // Gives the bound allocation, and its record, what the policy grants its owner now: more memory
  // only where the GPU has it left, and the same where the rule is impossible on the GPU. One line
  // per trouble. False: nothing has changed.
  bool RenewRecord(const Gate& gate, const Policy& policy, Allocation* allocation,
                   std::vector<std::string>* troubles) const GPULOOM_REQUIRES(gate.mutex);
  // Regrant for these of one GPU, in this order.
  std::vector<std::string> RegrantOn(const Gate& gate, const Policy& policy,
                                     const std::vector<std::string>& names) const
      GPULOOM_EXCLUDES(gate.mutex);
  // Tells what RenewRecord has made of `before`, and if that is refused, sets the record back and tells `before`.
  absl::Status SendRenewed(const Gate& gate, SchedulerClient* scheduler, const Allocation& renewed,
                           const Allocation& before) const GPULOOM_REQUIRES(gate.mutex);
  std::string Closed(const std::string& gpu_uuid) const;
  // Has the GPU's scheduler end the allocation, if there is one.
  absl::Status EndAtScheduler(const Allocation& allocation) const;
  // Makes an allocation of these devices, all of this GPU; fails if they cannot be given.
  absl::StatusOr<Allocation> TakeSlots(const std::string& gpu_uuid,
                                       const std::vector<std::string>& device_ids)
      GPULOOM_EXCLUDES(allocation_mutex_);
  // Removes the record of an allocation that its scheduler does not have, or does not have any more.
  absl::Status GiveBackSlots(const Allocation& allocation) GPULOOM_EXCLUDES(allocation_mutex_);
  // To on_use, after a change of the records.
  void ReportUse(const std::string& gpu_uuid) const GPULOOM_REQUIRES(allocation_mutex_);
  static absl::Status CheckSingleSlots(const SlotUse& use,
                                       const std::vector<std::string>& device_ids);
  // Chooses the slots for a shape's device.
  absl::StatusOr<std::vector<int>> ShapesSlots(const SlotUse& use, const DeviceId& device,
                                               size_t count) const;
  SlotUse UseOf(const Capacity& capacity, const std::vector<Allocation>& allocations) const;
  // Why the GPU cannot keep the promise of this memory to the allocation's holder; empty: it can.
  std::string Shortage(const Capacity& capacity, const Policy& policy, const Allocation& allocation,
                       uint64_t wanted_bytes) const;
  absl::Status SendGrant(SchedulerClient* scheduler, const Allocation& allocation) const;
  absl::StatusOr<std::shared_ptr<SchedulerClient>> WaitForScheduler(
      const std::string& gpu_uuid) const;

  const Options options_;
  Resolver resolver_;
  // Held from checking what has been given until more is given. No other process is asked meanwhile.
  Mutex allocation_mutex_;
  std::map<std::string, Gate> gates_;  // by GPU uuid; the map itself never changes
  mutable OwedGrants owed_;
  mutable Mutex collector_mutex_;
  Collector collector_ GPULOOM_GUARDED_BY(collector_mutex_);
};

}  // namespace gpuloom
