// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/allocator.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_join.h"
#include "agent/cat.h"
#include "agent/inventory/slots.h"
#include "agent/node/size.h"
#include "agent/plugin/share_terms.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

constexpr char kSocketMount[] = "/var/run/gpuloom";
// Where loaders of Debian and Red Hat images look, and where NVIDIA's own images expect the driver.
constexpr std::array<const char*, 3> kLibraryDirectories = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64"};
// Programs ask for a library with its number and without.
struct LibraryName {
  const char* name;
  std::string LibraryFiles::*file;
};
constexpr std::array<LibraryName, 4> kLibraryNames = {{
    {"libcuda.so.1", &LibraryFiles::cuda},
    {"libcuda.so", &LibraryFiles::cuda},
    {"libnvidia-ml.so.1", &LibraryFiles::nvml},
    {"libnvidia-ml.so", &LibraryFiles::nvml},
}};
// The loader of glibc, and no other, puts its own folder's name in the place of $LIB: so it finds the
// shim, which needs glibc, while musl's ignores a path that does not exist. All names that there are:
// Debian's, its descendants'; Red Hat's, SUSE's; Arch's, Nix' and who else has only 64-bit programs
// there. glibc complains on standard error about what it cannot load, so 32-bit programs are given
// something, too (but those of distributions that say "lib" for them, see docs/installation.md).
constexpr char kPreload[] = "/usr/local/nvidia/$LIB/libcuda.so.1";
constexpr std::array<const char*, 2> kFurtherPreloads = {
    "/usr/local/nvidia/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/local/nvidia/lib/libcuda.so.1"};
constexpr std::array<const char*, 2> kPreloads32 = {
    "/usr/local/nvidia/lib/i386-linux-gnu/libcuda.so.1", "/usr/local/nvidia/lib32/libcuda.so.1"};
constexpr Clock::Duration kSchedulerPause = std::chrono::milliseconds(200);

std::string Describe(const PodContainer& owner) {
  return Cat("pod ", owner.pod_namespace, "/", owner.pod,
             owner.container.empty() ? " (init container)" : ", container ", owner.container);
}

bool IsSamePod(const PodContainer& a, const PodContainer& b) {
  return a.pod_namespace == b.pod_namespace && a.pod == b.pod;
}

}  // namespace

Allocator::Allocator(Options options)
    : options_(std::move(options)),
      resolver_(options_.pod_resources, options_.clock, options_.patience),
      collector_(options_.collector_times) {}

absl::StatusOr<ContainerSetup> Allocator::Allocate(const std::vector<std::string>& device_ids) {
  const absl::StatusOr<std::string> gpu_uuid = RequireOneGpu(device_ids);
  if (!gpu_uuid.ok()) return gpu_uuid.status();
  if (!options_.capacities.contains(*gpu_uuid)) {
    return absl::NotFoundError(Cat("inventory: GPU ", *gpu_uuid, " is no longer on this node"));
  }
  const int slots = options_.capacities.at(*gpu_uuid).slots;
  for (const std::string& id : device_ids) {
    if (ParseDeviceId(id)->slot < slots) continue;
    return absl::InvalidArgumentError(
        Cat("kubelet: device ID ", id, ": GPU ", *gpu_uuid, " has ", slots, " slots"));
  }
  const absl::StatusOr<Allocation> allocation =
      options_.book->Add(*gpu_uuid, device_ids, options_.library_files, options_.clock->Now());
  if (!allocation.ok()) return allocation.status();
  const std::string directory = options_.book->DirectoryOf(allocation->name);

  if (const auto scheduler = options_.scheduler(*gpu_uuid); scheduler.ok()) {
    const absl::Status added =
        (*scheduler)
            ->AddAllocation(allocation->name, directory, static_cast<int>(device_ids.size()));
    if (!added.ok()) spdlog::warn("allocate: {}", std::string(added.message()));
  }

  ContainerSetup setup;
  setup.mounts.push_back({kSocketMount, directory});
  for (const char* library_directory : kLibraryDirectories) {
    for (const LibraryName& library : kLibraryNames) {
      setup.mounts.push_back({Cat(library_directory, "/", library.name),
                              options_.shims->PathOf(options_.library_files.*library.file)});
    }
  }
  for (const char* preload : kFurtherPreloads) {
    setup.mounts.push_back({preload, options_.shims->PathOf(options_.library_files.cuda)});
  }
  for (const char* preload : kPreloads32) {
    setup.mounts.push_back({preload, options_.shims->PathOf(ShimStore::kEmptyLibrary32)});
  }
  setup.envs["LD_PRELOAD"] = kPreload;
  setup.envs["NVIDIA_VISIBLE_DEVICES"] = "void";
  spdlog::info("allocate: {}: {}", allocation->name, absl::StrJoin(device_ids, ", "));
  return setup;
}

void Allocator::TakeBack(const ContainerSetup& setup) {
  const std::string& directory = setup.mounts.front().host_path;
  const std::string name = directory.substr(directory.rfind('/') + 1);
  const std::optional<Allocation> allocation = options_.book->Find(name);
  if (!allocation.has_value()) return;
  if (const auto scheduler = options_.scheduler(allocation->gpu_uuid); scheduler.ok()) {
    (void)(*scheduler)->RemoveAllocation(name);
  }
  // Sweep retries what cannot be removed now.
  (void)options_.book->Remove(name);
}

absl::Status Allocator::PreStart(const std::vector<std::string>& device_ids) {
  const absl::StatusOr<std::string> gpu_uuid = RequireOneGpu(device_ids);
  if (!gpu_uuid.ok()) return gpu_uuid.status();
  if (!options_.capacities.contains(*gpu_uuid)) {
    return absl::NotFoundError(
        Cat("inventory: GPU ", *gpu_uuid, " is no longer on this node; delete the pod"));
  }
  if (options_.book->FindByDevices(device_ids).empty()) {
    return absl::NotFoundError(Cat("state: no allocation is known for ",
                                   absl::StrJoin(device_ids, ", "),
                                   "; delete the pod, so that the kubelet allocates anew"));
  }
  const absl::StatusOr<PodContainer> owner = resolver_.Resolve(device_ids);
  if (!owner.ok()) return owner.status();
  const auto no_policy = [&] {
    return absl::FailedPreconditionError(
        Cat("policy: ", Describe(*owner), ": ", options_.policy->Trouble()));
  };
  Binding granted;
  granted.owner = *owner;
  if (!SetGrant(*gpu_uuid, device_ids.size(), &granted)) return no_policy();
  if (granted.quota_bytes == 0) {
    return absl::FailedPreconditionError(
        Cat("policy: ", Describe(*owner),
            " would get no GPU memory: the reserve leaves nothing for the slots"));
  }
  const absl::StatusOr<std::shared_ptr<SchedulerClient>> scheduler = WaitForScheduler(*gpu_uuid);
  if (!scheduler.ok()) return scheduler.status();

  const MutexLock lock(admission_mutex_);
  if (absl::Status status = Admit(*gpu_uuid, device_ids, *owner); !status.ok()) return status;
  // The kubelet does not say which of a pod's containers starts. Those with the same IDs are an
  // init container and the app container that takes them over: both are bound, as of one pod they
  // are. An unbound one of an earlier pod may be among them; no container was ever started with it,
  // so binding it gives nobody anything.
  std::string bound_name;
  const PodContainer* other = nullptr;
  const std::vector<Allocation> allocations = options_.book->FindByDevices(device_ids);
  for (const Allocation& allocation : allocations) {
    if (allocation.binding.has_value() && !IsSamePod(allocation.binding->owner, *owner)) {
      other = &allocation.binding->owner;
      continue;
    }
    Allocation bound = allocation;
    if (!bound.binding.has_value()) {
      bound.binding.emplace();
      bound.binding->owner = *owner;
      bound.binding->bound_at = options_.clock->Now();
    }
    if (!SetGrant(*gpu_uuid, device_ids.size(), &*bound.binding)) return no_policy();
    if (absl::Status status = Tell(scheduler->get(), bound); !status.ok()) {
      return absl::Status(status.code(),
                          Cat(Describe(*owner), ": ", std::string(status.message())));
    }
    if (absl::Status status = options_.book->Bind(bound.name, *bound.binding); !status.ok())
      return status;
    bound_name = bound.name;
    spdlog::info("start: {}: {}, {} slots, {}, trust domain {}", bound.name, Describe(*owner),
                 device_ids.size(), FormatSize(bound.binding->quota_bytes),
                 bound.binding->trust_domain);
  }
  if (bound_name.empty()) {
    return absl::FailedPreconditionError(
        Cat("identity: ", absl::StrJoin(device_ids, ", "), " was allocated for ", Describe(*other),
            ", but the kubelet says ", Describe(*owner),
            " holds it now; delete the pod, so that the kubelet ", "allocates anew"));
  }
  // Creates the executor's context while the container starts. Not repeated for a scheduler that is
  // restarted, because most allocations may never be used again.
  if (absl::Status status = (*scheduler)->PrepareExecutor(bound_name); !status.ok()) {
    spdlog::debug("start: {}: {}", bound_name, std::string(status.message()));
  }
  return absl::OkStatus();
}

absl::Status Allocator::Admit(const std::string& gpu_uuid,
                              const std::vector<std::string>& device_ids,
                              const PodContainer& owner) const {
  const std::shared_ptr<const Policy> policy = options_.policy->Current();
  if (policy == nullptr) return absl::OkStatus();
  absl::StatusOr<uint32_t> others = 0;
  if (SettingsOfNamespace(*policy, owner.pod_namespace).max_tenants.value != 0) {
    others = OtherTenants(gpu_uuid, device_ids, owner.pod_namespace);
    if (!others.ok()) return others.status();
  }
  const std::string refusal = Refusal(*policy, options_.capacities.at(gpu_uuid),
                                      {owner.pod_namespace, owner.pod, owner.container, *others});
  if (refusal.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(Cat("policy: ", Describe(owner), ": ", refusal));
}

absl::StatusOr<uint32_t> Allocator::OtherTenants(const std::string& gpu_uuid,
                                                 const std::vector<std::string>& device_ids,
                                                 const std::string& pod_namespace) const {
  const auto share_an_id = [](const std::vector<std::string>& a,
                              const std::vector<std::string>& b) {
    return std::any_of(a.begin(), a.end(), [&](const std::string& id) {
      return std::find(b.begin(), b.end(), id) != b.end();
    });
  };
  const absl::StatusOr<std::vector<ContainerDevices>> held = options_.pod_resources->List();
  if (!held.ok()) return held.status();
  const std::vector<Allocation> allocations = options_.book->All();
  return static_cast<uint32_t>(
      std::count_if(held->begin(), held->end(), [&](const ContainerDevices& container) {
        if (container.owner.pod_namespace != pod_namespace ||
            share_an_id(container.device_ids, device_ids)) {
          return false;
        }
        return std::any_of(
            allocations.begin(), allocations.end(), [&](const Allocation& allocation) {
              return allocation.gpu_uuid == gpu_uuid && allocation.binding.has_value() &&
                     IsSamePod(allocation.binding->owner, container.owner) &&
                     share_an_id(allocation.device_ids, container.device_ids);
            });
      }));
}

absl::Status Allocator::Restore(const std::string& gpu_uuid, SchedulerClient* scheduler) {
  for (Allocation& allocation : options_.book->All()) {
    if (allocation.gpu_uuid != gpu_uuid) continue;
    if (allocation.binding.has_value()) {
      // Without a policy in force what runs keeps what it was granted last.
      (void)SetGrant(gpu_uuid, allocation.device_ids.size(), &*allocation.binding);
    }
    absl::Status told = Tell(scheduler, allocation);
    if (absl::IsUnavailable(told)) return told;
    // One that is refused must not keep the others from their GPU.
    if (!told.ok()) spdlog::error("restore: {}: {}", allocation.name, std::string(told.message()));
  }
  const absl::StatusOr<std::vector<std::string>> known = scheduler->ListAllocations();
  if (!known.ok()) return known.status();
  // Asked after the scheduler was: one that another agent adds now is in the book before.
  std::set<std::string> in_book;
  for (const Allocation& allocation : options_.book->All()) in_book.insert(allocation.name);
  for (const std::string& name : *known) {
    if (in_book.contains(name)) continue;
    if (absl::Status status = scheduler->RemoveAllocation(name); !status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<std::string> Allocator::Regrant() {
  std::vector<std::string> troubles;
  for (Allocation& allocation : options_.book->All()) {
    if (!allocation.binding.has_value() || !options_.capacities.contains(allocation.gpu_uuid))
      continue;
    const Binding before = *allocation.binding;
    if (!SetGrant(allocation.gpu_uuid, allocation.device_ids.size(), &*allocation.binding) ||
        *allocation.binding == before) {
      continue;
    }
    absl::Status status;
    // If its scheduler is away, Restore tells it later.
    if (const auto scheduler = options_.scheduler(allocation.gpu_uuid); scheduler.ok()) {
      status = Tell(scheduler->get(), allocation);
    }
    if (status.ok()) status = options_.book->Bind(allocation.name, *allocation.binding);
    if (!status.ok()) {
      troubles.push_back(Cat("policy: ", Describe(allocation.binding->owner),
                             " keeps its old grant: ", std::string(status.message())));
    }
  }
  return troubles;
}

std::vector<std::string> Allocator::Sweep(bool has_predecessor) {
  const std::vector<Allocation> allocations = options_.book->All();
  std::vector<std::string> troubles;
  if (!allocations.empty()) {
    const absl::StatusOr<std::vector<ContainerDevices>> held = options_.pod_resources->List();
    if (!held.ok()) return {std::string(held.status().message())};
    std::vector<std::string> over;
    {
      const MutexLock lock(collector_mutex_);
      over = collector_.Judge(allocations, *held, options_.clock->Now());
    }
    for (const std::string& name : over) {
      const std::optional<Allocation> allocation = options_.book->Find(name);
      if (!allocation.has_value()) continue;
      absl::Status status;
      // If the GPU is no longer in the inventory, no scheduler has the allocation.
      if (options_.capacities.contains(allocation->gpu_uuid)) {
        const auto scheduler = options_.scheduler(allocation->gpu_uuid);
        status = scheduler.ok() ? (*scheduler)->RemoveAllocation(name) : scheduler.status();
      }
      if (status.ok()) status = options_.book->Remove(name);
      if (status.ok()) {
        spdlog::info("collect: {}: its pod is gone", name);
      } else {
        troubles.push_back(Cat("collect: ", name, ": ", std::string(status.message())));
      }
    }
  }
  if (has_predecessor) return troubles;
  std::set<std::string> used = {options_.library_files.cuda, options_.library_files.nvml};
  for (const Allocation& allocation : options_.book->All()) {
    used.insert({allocation.library_files.cuda, allocation.library_files.nvml});
  }
  if (const absl::Status status = options_.shims->Prune(used); !status.ok()) {
    troubles.push_back(std::string(status.message()));
  }
  return troubles;
}

void Allocator::KubeletSeen(const std::string& kubelet_id) {
  const Clock::Time now = options_.clock->Now();
  const absl::StatusOr<Clock::Time> since = options_.kubelet_record->FirstSeen(kubelet_id, now);
  if (!since.ok()) spdlog::warn("{}", std::string(since.status().message()));
  const MutexLock lock(collector_mutex_);
  collector_.KubeletSeen(since.value_or(now));
}

bool Allocator::SetGrant(const std::string& gpu_uuid, size_t slots, Binding* binding) const {
  const std::shared_ptr<const Policy> policy = options_.policy->Current();
  const auto capacity = options_.capacities.find(gpu_uuid);
  if (policy == nullptr || capacity == options_.capacities.end()) return false;
  const PodContainer& owner = binding->owner;
  const Grant grant = Decide(*policy, capacity->second, owner.pod_namespace, owner.pod);
  binding->trust_domain = grant.trust_domain;
  binding->quota_bytes = grant.slot_bytes * slots;
  binding->shares = ShareTermsOf(*policy, owner);
  binding->kernels = KernelTermsOf(*policy, owner);
  binding->partition = PartitionTermsOf(*policy, owner);
  binding->memory_wait_ms =
      1000 *
      SettingsOfPod(*policy, owner.pod_namespace, owner.pod, owner.container).memory_wait_s.value;
  return true;
}

absl::Status Allocator::Tell(SchedulerClient* scheduler, const Allocation& allocation) const {
  if (absl::Status status =
          scheduler->AddAllocation(allocation.name, options_.book->DirectoryOf(allocation.name),
                                   static_cast<int>(allocation.device_ids.size()));
      !status.ok()) {
    return status;
  }
  if (!allocation.binding.has_value()) return absl::OkStatus();
  const Binding& binding = *allocation.binding;
  BindOrder order;
  order.name = allocation.name;
  order.pod_namespace = binding.owner.pod_namespace;
  order.pod = binding.owner.pod;
  order.container = binding.owner.container;
  order.trust_domain = binding.trust_domain;
  order.memory_quota_bytes = binding.quota_bytes;
  order.pinned_limit_bytes = options_.pinned_limit_bytes;
  order.shares = binding.shares;
  order.memory_wait_ms = binding.memory_wait_ms;
  order.kernels = binding.kernels;
  order.partition = binding.partition;
  return scheduler->BindAllocation(order);
}

absl::StatusOr<std::shared_ptr<SchedulerClient>> Allocator::WaitForScheduler(
    const std::string& gpu_uuid) const {
  const Clock::Time start = options_.clock->Now();
  for (;;) {
    absl::StatusOr<std::shared_ptr<SchedulerClient>> scheduler = options_.scheduler(gpu_uuid);
    if (scheduler.ok() || options_.clock->Now() + kSchedulerPause >= start + options_.patience)
      return scheduler;
    options_.clock->SleepFor(kSchedulerPause);
  }
}

}  // namespace gpuloom
