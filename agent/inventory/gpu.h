// SPDX-License-Identifier: Apache-2.0
// A GPU of this node, as NVML or a CUDA library describes it. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuloom {

struct Gpu {
  std::string uuid;  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", as nvidia-smi -L prints it
  std::string name;
  int index = 0;
  uint64_t total_bytes = 0;
  int numa_node = -1;  // -1: unknown or none
  bool operator==(const Gpu&) const = default;
};

// One that the library counts and that cannot be used now.
struct UnusableGpu {
  Gpu gpu;             // as far as it could be asked: the UUID may be empty, too
  std::string reason;  // one line, with the next step
};

// What a library says of its GPUs, each list in its order.
struct GpuList {
  std::vector<Gpu> usable;
  std::vector<UnusableGpu> unusable;
};

}  // namespace gpuloom
