// SPDX-License-Identifier: Apache-2.0
// Device IDs, and the choice among them. There is one ID for each slot, "gpu-<uuid>::<slot>", and one for each place
// for a shape, "gpu-<uuid>::x<slots>-<number>". Pure functions, safe from any thread. An ID stays below the
// device-plugin API's limit of 63 characters: 4 + 36 + 2 + at most 7.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuloom {

// A larger number of tenants on one GPU is a mistake in the flag; the bound on the ID's length relies on it.
inline constexpr int kMaxSlotsPerGpu = 100;

struct DeviceId {
  std::string gpu_uuid;  // "GPU-…"
  int shape = 1;         // how many slots it has
  int number = 0;  // of a single slot: its number; of a shape: any number, unrelated to its slots
};

std::string MakeDeviceId(std::string_view gpu_uuid, int slot);
std::string MakeDeviceId(const DeviceId& id);
std::optional<DeviceId> ParseDeviceId(std::string_view device_id);

// "2,4" → {2, 4}: shapes that a GPU with `slots` slots can have, in order; "": none. InvalidArgument says what is
// wrong.
absl::StatusOr<std::vector<int>> ParseShapes(const std::string& text, int slots);

// Chooses `size` of the available IDs, all of one GPU and including `must_include`. Best fit: of the GPUs with enough
// free slots the one with the fewest, so that large requests find a GPU later. FailedPrecondition "no GPU has N free
// slots: a+b+c", with the free slots of each GPU, if none has.
absl::StatusOr<std::vector<std::string>> PreferOneGpu(const std::vector<std::string>& available,
                                                      const std::vector<std::string>& must_include,
                                                      int size);

// Returns the GPU of these IDs. The same FailedPrecondition, with the IDs per GPU, if they belong to several;
// InvalidArgument, naming the ID, if one is not ours, is of another shape, or occurs twice.
absl::StatusOr<std::string> RequireOneGpu(const std::vector<std::string>& device_ids);

}  // namespace gpuloom
