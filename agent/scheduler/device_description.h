// SPDX-License-Identifier: Apache-2.0
// What the node's NVML says of a device and CUDA does not: the PCIe link, the fastest clocks, the range of
// its power limit. Tenants' NVML passes it on (docs/nvml.md).
//
// NVML is loaded for this one reading, so nothing of it stays in the process. What it does not say is 0:
// a device that NVML does not know (the software GPU) or a node without NVML is described by nothing, and
// is no error.
#pragma once

#include <string>

#include "proto/wire/query.h"

namespace gpuloom::scheduler {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// `uuid` is "GPU-8d7e6a90-…".
[[nodiscard]] wire::DeviceDescription DescribeDevice(const char* nvml_library,
                                                     const std::string& uuid);

}  // namespace gpuloom::scheduler
