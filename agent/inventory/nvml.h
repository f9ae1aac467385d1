// SPDX-License-Identifier: Apache-2.0
// GPUs from NVML, which is loaded at run time: the toolkit ships no nvml.h and a node without a
// driver has no libnvidia-ml.so.1. Called from one thread at a time; keeps nothing between calls,
// so a driver that was reloaded is seen afresh.
//
// Fails with a message that starts "nvml:" and names the library or the GPU. A GPU in MIG mode is
// refused by name: its parts are devices of their own, which this agent does not hand out.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"

namespace gpuloom {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

absl::StatusOr<std::vector<Gpu>> ListGpusFromNvml(const std::string& library = kNvmlLibrary);

}  // namespace gpuloom
