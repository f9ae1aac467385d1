// SPDX-License-Identifier: Apache-2.0
// GPUs from NVML. Called from one thread at a time; keeps nothing between calls (nvml_library.h).
//
// Fails with a message that starts "nvml:" and names the library or the GPU. A GPU in MIG mode is
// refused by name: its parts are devices of their own, which this agent does not hand out.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"
#include "agent/node/nvml_library.h"

namespace gpuloom {

absl::StatusOr<std::vector<Gpu>> ListGpusFromNvml(const std::string& library = kNvmlLibrary);

}  // namespace gpuloom
