// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/slots.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "agent/cat.h"

namespace gpuloom {
namespace {

// In an ID "gpu-" stands for the "GPU-" of the UUID.
constexpr std::string_view kIdPrefix = "gpu-";
constexpr std::string_view kUuidPrefix = "GPU-";

// More resources than that are registered by mistake.
constexpr size_t kMaxShapes = 8;

// GPU → its devices by number, each once. An ID that is not ours is an error, and so are several shapes.
using ByGpu = std::map<std::string, std::map<int, std::string>>;

absl::StatusOr<ByGpu> SortByGpu(const std::vector<std::string>& device_ids) {
  ByGpu by_gpu;
  std::optional<int> shape;
  for (const std::string& id : device_ids) {
    const std::optional<DeviceId> parsed = ParseDeviceId(id);
    if (!parsed.has_value()) {
      return absl::InvalidArgumentError(Cat("kubelet: device ID '", id, "' is not one of ours"));
    }
    if (shape.value_or(parsed->shape) != parsed->shape) {
      return absl::InvalidArgumentError(
          Cat("kubelet: device ID '", id, "' is of another resource"));
    }
    shape = parsed->shape;
    if (!by_gpu[parsed->gpu_uuid].emplace(parsed->number, id).second) {
      return absl::InvalidArgumentError(Cat("kubelet: device ID '", id, "' comes twice"));
    }
  }
  return by_gpu;
}

// The most free slots first, so that people see how much is missing.
absl::Status NoneFits(size_t size, const ByGpu& by_gpu) {
  std::vector<size_t> counts;
  for (const auto& [uuid, devices] : by_gpu) counts.push_back(devices.size());
  std::sort(counts.rbegin(), counts.rend());
  return absl::FailedPreconditionError(
      Cat("no GPU has ", size, " free slots: ", counts.empty() ? "0" : absl::StrJoin(counts, "+")));
}

// A number without sign and leading zeros, and nothing behind it.
std::optional<int> ParseNumber(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 ||
      (text.size() > 1 && text[0] == '0')) {
    return std::nullopt;
  }
  return number;
}

}  // namespace

std::string MakeDeviceId(std::string_view gpu_uuid, int slot) {
  if (gpu_uuid.starts_with(kUuidPrefix)) gpu_uuid.remove_prefix(kUuidPrefix.size());
  return Cat(kIdPrefix, gpu_uuid, "::", slot);
}

std::string MakeDeviceId(const DeviceId& id) {
  if (id.shape == 1) return MakeDeviceId(id.gpu_uuid, id.number);
  std::string_view uuid = id.gpu_uuid;
  if (uuid.starts_with(kUuidPrefix)) uuid.remove_prefix(kUuidPrefix.size());
  return Cat(kIdPrefix, uuid, "::x", id.shape, "-", id.number);
}

std::optional<DeviceId> ParseDeviceId(std::string_view device_id) {
  if (!device_id.starts_with(kIdPrefix)) return std::nullopt;
  device_id.remove_prefix(kIdPrefix.size());
  const size_t colons = device_id.find("::");
  // Whether there is a GPU of that UUID is not asked here: an ID may be of one that the node had.
  if (colons == device_id.npos || colons == 0) return std::nullopt;
  DeviceId id;
  std::string_view rest = device_id.substr(colons + 2);
  if (rest.starts_with('x')) {
    const size_t dash = rest.find('-');
    if (dash == rest.npos) return std::nullopt;
    const std::optional<int> shape = ParseNumber(rest.substr(1, dash - 1));
    if (!shape.has_value() || *shape < 2 || *shape > kMaxSlotsPerGpu) return std::nullopt;
    id.shape = *shape;
    rest.remove_prefix(dash + 1);
  }
  const std::optional<int> number = ParseNumber(rest);
  // ParseNumber accepts only one way to write a number, so that each device has one ID: code that compares texts would
  // take a second one for another device.
  if (!number.has_value() || *number >= kMaxSlotsPerGpu) return std::nullopt;
  id.number = *number;
  id.gpu_uuid = Cat(kUuidPrefix, device_id.substr(0, colons));
  return id;
}

absl::StatusOr<std::vector<int>> ParseShapes(const std::string& text, int slots) {
  std::set<int> shapes;
  if (text.empty()) return std::vector<int>();
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const std::optional<int> shape = ParseNumber(word);
    if (!shape.has_value()) {
      return absl::InvalidArgumentError(Cat(
          "'", word, "' is no number of slots; write numbers with commas between them, like 2,4"));
    }
    if (*shape < 2) {
      return absl::InvalidArgumentError(
          Cat(*shape, " is no shape: one has 2 slots or more, and single ones are there anyway"));
    }
    if (*shape > slots) {
      return absl::InvalidArgumentError(
          Cat(*shape, " slots are on no GPU: each has ", slots, " (--slots)"));
    }
    if (!shapes.insert(*shape).second) {
      return absl::InvalidArgumentError(Cat(*shape, " comes twice"));
    }
  }
  if (shapes.size() > kMaxShapes) {
    return absl::InvalidArgumentError(
        Cat(shapes.size(), " shapes are more than ", kMaxShapes, ", each of which is a resource"));
  }
  return std::vector<int>(shapes.begin(), shapes.end());
}

absl::StatusOr<std::vector<std::string>> PreferOneGpu(const std::vector<std::string>& available,
                                                      const std::vector<std::string>& must_include,
                                                      int size) {
  if (size < 1)
    return absl::InvalidArgumentError(Cat("kubelet: asks to prefer ", size, " devices"));
  absl::StatusOr<ByGpu> free = SortByGpu(available);
  if (!free.ok()) return free.status();
  absl::StatusOr<ByGpu> must = SortByGpu(must_include);
  if (!must.ok()) return must.status();
  for (const auto& [uuid, devices] : *must) {
    // What must be included is available by definition, whether the kubelet lists it again or not.
    (*free)[uuid].insert(devices.begin(), devices.end());
  }
  const size_t wanted = static_cast<size_t>(size);
  const ByGpu::value_type* best = nullptr;
  for (const auto& candidate : *free) {
    if (candidate.second.size() < wanted) continue;
    // What must be included decides the GPU, whether it is the best or not.
    if (!must->empty() && candidate.first != must->begin()->first) continue;
    if (best == nullptr || candidate.second.size() < best->second.size()) best = &candidate;
  }
  // All three are said alike: there is no choice of this size on one GPU.
  if (best == nullptr || must->size() > 1 || must_include.size() > wanted)
    return NoneFits(wanted, *free);

  std::vector<std::string> chosen = must_include;
  for (const auto& [number, id] : best->second) {
    if (chosen.size() == wanted) break;
    if (std::find(chosen.begin(), chosen.end(), id) == chosen.end()) chosen.push_back(id);
  }
  return chosen;
}

absl::StatusOr<std::string> RequireOneGpu(const std::vector<std::string>& device_ids) {
  if (device_ids.empty())
    return absl::InvalidArgumentError("kubelet: a request without device IDs");
  const absl::StatusOr<ByGpu> by_gpu = SortByGpu(device_ids);
  if (!by_gpu.ok()) return by_gpu.status();
  if (by_gpu->size() > 1) return NoneFits(device_ids.size(), *by_gpu);
  return by_gpu->begin()->first;
}

}  // namespace gpuloom
