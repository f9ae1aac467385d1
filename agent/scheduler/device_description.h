// SPDX-License-Identifier: Apache-2.0
// What the node's NVML reports about a device and CUDA does not: the PCIe link, the maximum clocks, the range of its
// power limit. Tenants' NVML passes it on (docs/nvml.md). Called from main, when the device is opened.
//
// NVML is loaded for this one reading and does not stay in the process. A value that it does not report is 0. A device
// unknown to NVML (the software GPU) or a node without NVML gives an empty description, which is not an error.
#pragma once

#include <string>

#include "proto/wire/query.h"

namespace gpuloom::scheduler {

// `uuid` is "GPU-8d7e6a90-…".
[[nodiscard]] wire::DeviceDescription DescribeDevice(const char* nvml_library,
                                                     const std::string& uuid);

}  // namespace gpuloom::scheduler
