// SPDX-License-Identifier: Apache-2.0
// Device IDs: one per slot, "gpu-<uuid>::<slot>", and the choice among them. Pure functions, safe
// from any thread. An ID stays below the device-plugin API's 63 characters: 4 + 36 + 2 + at most 3.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuloom {

// More tenants than that on one GPU is a mistake in the flag, and the ID's length rests on it.
inline constexpr int kMaxSlotsPerGpu = 100;

struct SlotId {
  std::string gpu_uuid;  // "GPU-…"
  int slot = 0;
};

std::string MakeDeviceId(std::string_view gpu_uuid, int slot);
std::optional<SlotId> ParseDeviceId(std::string_view device_id);

// `size` of the available IDs, all of one GPU, `must_include` among them. Best fit: of the GPUs
// with enough free slots the one with the fewest, so that large requests find a GPU later.
// FailedPrecondition "no GPU has N free slots: a+b+c" when none has, with the free slots of each
// GPU.
absl::StatusOr<std::vector<std::string>> PreferOneGpu(const std::vector<std::string>& available,
                                                      const std::vector<std::string>& must_include,
                                                      int size);

// The GPU of these IDs. The same FailedPrecondition, with the IDs per GPU, when they are of
// several; InvalidArgument naming an ID that is not one of ours, or comes twice.
absl::StatusOr<std::string> RequireOneGpu(const std::vector<std::string>& device_ids);

}  // namespace gpuloom
