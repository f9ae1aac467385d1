// SPDX-License-Identifier: Apache-2.0
// Lists the GPUs with NVML. Called from one thread at a time; keeps no state between calls (nvml_library.h).
//
// Fails with a message that starts "nvml:" and names the library. One GPU that cannot be used, such as one that is lost, is
// no failure and takes nothing from the others. One in MIG mode is among them: its parts are devices of their own, which
// this agent does not hand out.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"
#include "agent/node/nvml_library.h"

namespace gpuloom {

absl::StatusOr<GpuList> ListGpusFromNvml(const std::string& library = kNvmlLibrary);

}  // namespace gpuloom
