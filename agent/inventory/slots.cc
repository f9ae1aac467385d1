// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/slots.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "agent/cat.h"

namespace gpuloom {
namespace {

constexpr std::string_view kIdPrefix = "gpu-";
constexpr std::string_view kUuidPrefix = "GPU-";

// GPU → its slots, each once and in order. An ID that is not ours is an error.
absl::StatusOr<std::map<std::string, std::set<int>>> SortByGpu(
    const std::vector<std::string>& device_ids) {
  std::map<std::string, std::set<int>> by_gpu;
  for (const std::string& id : device_ids) {
    const std::optional<SlotId> slot = ParseDeviceId(id);
    if (!slot.has_value()) {
      return absl::InvalidArgumentError(Cat("kubelet: device ID '", id, "' is not one of ours"));
    }
    if (!by_gpu[slot->gpu_uuid].insert(slot->slot).second) {
      return absl::InvalidArgumentError(Cat("kubelet: device ID '", id, "' comes twice"));
    }
  }
  return by_gpu;
}

absl::Status NoneFits(size_t size, const std::map<std::string, std::set<int>>& by_gpu) {
  std::vector<size_t> counts;
  for (const auto& [uuid, slots] : by_gpu) counts.push_back(slots.size());
  std::sort(counts.rbegin(), counts.rend());
  return absl::FailedPreconditionError(
      Cat("no GPU has ", size, " free slots: ", counts.empty() ? "0" : absl::StrJoin(counts, "+")));
}

}  // namespace

std::string MakeDeviceId(std::string_view gpu_uuid, int slot) {
  if (gpu_uuid.starts_with(kUuidPrefix)) gpu_uuid.remove_prefix(kUuidPrefix.size());
  return Cat(kIdPrefix, gpu_uuid, "::", slot);
}

std::optional<SlotId> ParseDeviceId(std::string_view device_id) {
  if (!device_id.starts_with(kIdPrefix)) return std::nullopt;
  device_id.remove_prefix(kIdPrefix.size());
  const size_t colons = device_id.find("::");
  if (colons == device_id.npos || colons == 0) return std::nullopt;
  const std::string_view number = device_id.substr(colons + 2);
  SlotId id;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), id.slot);
  if (error != std::errc() || end != number.data() + number.size() || id.slot < 0 ||
      id.slot >= kMaxSlotsPerGpu || (number.size() > 1 && number[0] == '0')) {
    return std::nullopt;
  }
  id.gpu_uuid = Cat(kUuidPrefix, device_id.substr(0, colons));
  return id;
}

absl::StatusOr<std::vector<std::string>> PreferOneGpu(const std::vector<std::string>& available,
                                                      const std::vector<std::string>& must_include,
                                                      int size) {
  if (size < 1)
    return absl::InvalidArgumentError(Cat("kubelet: asks to prefer ", size, " devices"));
  absl::StatusOr<std::map<std::string, std::set<int>>> free = SortByGpu(available);
  if (!free.ok()) return free.status();
  absl::StatusOr<std::map<std::string, std::set<int>>> must = SortByGpu(must_include);
  if (!must.ok()) return must.status();
  for (const auto& [uuid, slots] : *must) {
    // What must be included is available by definition, whether the kubelet lists it again or not.
    (*free)[uuid].insert(slots.begin(), slots.end());
  }
  const size_t wanted = static_cast<size_t>(size);
  const std::pair<const std::string, std::set<int>>* best = nullptr;
  for (const auto& candidate : *free) {
    if (candidate.second.size() < wanted) continue;
    if (!must->empty() && candidate.first != must->begin()->first) continue;
    if (best == nullptr || candidate.second.size() < best->second.size()) best = &candidate;
  }
  if (best == nullptr || must->size() > 1 || must_include.size() > wanted)
    return NoneFits(wanted, *free);

  std::vector<std::string> chosen = must_include;
  for (const int slot : best->second) {
    if (chosen.size() == wanted) break;
    const std::string id = MakeDeviceId(best->first, slot);
    if (std::find(chosen.begin(), chosen.end(), id) == chosen.end()) chosen.push_back(id);
  }
  return chosen;
}

absl::StatusOr<std::string> RequireOneGpu(const std::vector<std::string>& device_ids) {
  if (device_ids.empty())
    return absl::InvalidArgumentError("kubelet: a request without device IDs");
  const absl::StatusOr<std::map<std::string, std::set<int>>> by_gpu = SortByGpu(device_ids);
  if (!by_gpu.ok()) return by_gpu.status();
  if (by_gpu->size() > 1) return NoneFits(device_ids.size(), *by_gpu);
  return by_gpu->begin()->first;
}

}  // namespace gpuloom
