// SPDX-License-Identifier: Apache-2.0
// A GPU of this node, as NVML or a CUDA library describes it. Plain value.
#pragma once

#include <cstdint>
#include <string>

namespace gpuloom {

struct Gpu {
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi -L prints it
  std::string name;
  int index = 0;
  uint64_t total_bytes = 0;
  int numa_node = -1;  // -1: unknown or none
};

}  // namespace gpuloom
