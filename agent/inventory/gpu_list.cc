// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/gpu_list.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "agent/cat.h"
#include "agent/inventory/cuda_library.h"
#include "agent/node/gpu_standing.h"
#include "agent/node/list_folder.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;

std::string NotListed(const std::string& uuid) {
  return Cat(
      "the driver does not list it: it has fallen off the bus, see dmesg for Xid lines; if it was "
      "taken out, `gpuloom drain ",
      uuid, "` has it forgotten");
}

// One that an agent has had here, as it has written it down.
struct KnownGpu {
  Gpu gpu;
  // It was sick when it was seen last, and no operator has given it up: it is missed.
  bool is_missed = false;
};
using KnownGpus = std::map<std::string, KnownGpu>;  // by UUID

KnownGpus ReadKnownGpus(const std::string& state_directory) {
  KnownGpus known;
  if (state_directory.empty()) return known;
  std::error_code error;
  for (const fs::path& folder : ListFolder(state_directory + "/gpus", &error)) {
    std::string unread;
    std::optional<GpuStanding> standing = ReadStanding(folder, &unread);
    if (!unread.empty()) {
      // It may have been sick.
      standing.emplace();
      standing->sickness = unread;
    }
    if (!standing.has_value()) continue;
    KnownGpu one;
    one.is_missed = !standing->sickness.empty() && DrainReason(folder).empty();
    Gpu& gpu = one.gpu;
    gpu.uuid = folder.filename();
    gpu.name = standing->name;
    gpu.index = static_cast<int>(standing->index);
    // An older agent has not written down how much it has, only how much of it is for slots.
    gpu.total_bytes =
        standing->memory_bytes != 0 ? standing->memory_bytes : standing->available_bytes;
    gpu.numa_node = static_cast<int>(standing->numa_node);
    known.emplace(folder.filename(), std::move(one));
  }
  return known;
}

KnownGpus::iterator FindNumber(int index, KnownGpus* known) {
  return std::find_if(known->begin(), known->end(),
                      [&](const auto& one) { return one.second.gpu.index == index; });
}

void AddFaulty(KnownGpus::iterator found, std::string reason, KnownGpus* unlisted,
               Inventory* inventory) {
  inventory->faults[found->first] = std::move(reason);
  inventory->gpus.push_back(std::move(found->second.gpu));
  unlisted->erase(found);
}

void AddUnusable(std::vector<UnusableGpu> gpus, KnownGpus* unlisted, Inventory* inventory) {
  // Those with a UUID first: the others may be identified by the numbers that are left.
  std::stable_partition(gpus.begin(), gpus.end(),
                        [](const UnusableGpu& one) { return !one.gpu.uuid.empty(); });
  for (UnusableGpu& one : gpus) {
    // A GPU that is lost may have only its number left.
    const auto found =
        one.gpu.uuid.empty() ? FindNumber(one.gpu.index, unlisted) : unlisted->find(one.gpu.uuid);
    if (found != unlisted->end()) {
      AddFaulty(found, std::move(one.reason), unlisted, inventory);
      continue;
    }
    inventory->is_unusable = true;
    inventory->trouble += Cat(inventory->trouble.empty()
                                  ? "inventory: this node has an NVIDIA GPU that cannot be used: "
                                  : "; ",
                              one.reason);
  }
}

}  // namespace

absl::StatusOr<GpuList> ListGpus(const std::string& cuda_library, const std::string& nvml_library) {
  absl::StatusOr<GpuList> list =
      cuda_library.empty() ? ListGpusFromNvml(nvml_library) : ListGpusFromCudaLibrary(cuda_library);
  if (list.ok() && list->usable.empty() && list->unusable.empty()) {
    return absl::NotFoundError(
        Cat(cuda_library.empty() ? "nvml:" : "cuda:", " this node has no GPU"));
  }
  return list;
}

absl::StatusOr<Inventory> TakeInventory(const InventorySources& sources) {
  return MakeInventory(ListGpus(sources.cuda_library, sources.nvml_library), sources);
}

absl::StatusOr<Inventory> MakeInventory(absl::StatusOr<GpuList> list,
                                        const InventorySources& sources) {
  const bool is_named = !sources.cuda_library.empty();
  if (is_named && !list.ok() && !absl::IsNotFound(list.status())) return list.status();
  Inventory inventory;
  KnownGpus unlisted = ReadKnownGpus(sources.state_directory);
  if (list.ok()) {
    for (const Gpu& gpu : list->usable) {
      if (unlisted.erase(gpu.uuid) != 0) continue;
      // A new GPU has replaced the one with that number, which therefore does not count as missing.
      const auto replaced = FindNumber(gpu.index, &unlisted);
      if (replaced != unlisted.end()) replaced->second.is_missed = false;
    }
    inventory.gpus = std::move(list->usable);
    AddUnusable(std::move(list->unusable), &unlisted, &inventory);
  } else if (!is_named && HasNvidiaGpuOnPci(sources.pci_devices)) {
    const std::string reason(list.status().message());
    inventory.is_unusable = true;
    inventory.trouble = Cat("inventory: this node has an NVIDIA GPU that cannot be used: ", reason);
    while (!unlisted.empty()) AddFaulty(unlisted.begin(), reason, &unlisted, &inventory);
  }
  for (auto next = unlisted.begin(); next != unlisted.end();) {
    const auto found = next++;
    if (found->second.is_missed || sources.held.contains(found->first)) {
      AddFaulty(found, NotListed(found->first), &unlisted, &inventory);
    }
  }
  std::stable_sort(inventory.gpus.begin(), inventory.gpus.end(),
                   [](const Gpu& a, const Gpu& b) { return a.index < b.index; });
  if (list.ok() || inventory.is_unusable) return inventory;
  if (is_named && inventory.gpus.empty()) return list.status();
  if (is_named) return inventory;
  inventory.trouble =
      Cat("inventory: this node has no NVIDIA GPU (", std::string(list.status().message()),
          "); keep gpuloom off such nodes by their labels, see docs/installation.md");
  return inventory;
}

}  // namespace gpuloom
