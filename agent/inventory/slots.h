// SPDX-License-Identifier: Apache-2.0
// Device IDs: one per slot, "gpu-<uuid>::<slot>", or per place for a shape of several slots,
// "gpu-<uuid>::x<slots>-<number>", and the choice among them. Pure functions, safe from any thread. An ID stays below
// the device-plugin API's 63 characters: 4 + 36 + 2 + at most 7.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuloom {

// More tenants than that on one GPU is a mistake in the flag, and the ID's length rests on it.
inline constexpr int kMaxSlotsPerGpu = 100;

struct DeviceId {
  std::string gpu_uuid;  // "GPU-…"
  int shape = 1;         // how many slots it is
  int number = 0;  // a single slot's own; of a shape any number, which says nothing of its slots
};

std::string MakeDeviceId(std::string_view gpu_uuid, int slot);
std::string MakeDeviceId(const DeviceId& id);
std::optional<DeviceId> ParseDeviceId(std::string_view device_id);

// "2,4" → {2, 4}: shapes that a GPU of so many slots can have, in order; "": none. InvalidArgument says what is wrong.
absl::StatusOr<std::vector<int>> ParseShapes(const std::string& text, int slots);

// `size` of the available IDs, all of one GPU, `must_include` among them. Best fit: of the GPUs
// with enough free slots the one with the fewest, so that large requests find a GPU later.
// FailedPrecondition "no GPU has N free slots: a+b+c" when none has, with the free slots of each
// GPU.
absl::StatusOr<std::vector<std::string>> PreferOneGpu(const std::vector<std::string>& available,
                                                      const std::vector<std::string>& must_include,
                                                      int size);

// The GPU of these IDs. The same FailedPrecondition, with the IDs per GPU, when they are of
// several; InvalidArgument naming an ID that is not one of ours, is of another shape, or comes twice.
absl::StatusOr<std::string> RequireOneGpu(const std::vector<std::string>& device_ids);

}  // namespace gpuloom
