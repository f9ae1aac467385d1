// SPDX-License-Identifier: Apache-2.0
// GPUs' UUIDs as text. Pure functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace gpuloom {

// "GPU-8d7e6a90-…", as NVML, nvidia-smi and the kubelet's device lists write it.
std::string FormatUuid(const uint8_t (&uuid)[16]);
// The bytes of a CUuuid.
std::string FormatUuid(const char (&uuid)[16]);

}  // namespace gpuloom
