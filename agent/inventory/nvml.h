// SPDX-License-Identifier: Apache-2.0
// Lists the GPUs with NVML. Called from one thread at a time; keeps no state between calls (nvml_library.h).
//
// Fails with a message that starts "nvml:" and names the library or the GPU. A GPU in MIG mode is an error that names
// it: its instances are devices of their own, which this agent does not offer.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"
#include "agent/node/nvml_library.h"

namespace gpuloom {

absl::StatusOr<std::vector<Gpu>> ListGpusFromNvml(const std::string& library = kNvmlLibrary);

}  // namespace gpuloom
