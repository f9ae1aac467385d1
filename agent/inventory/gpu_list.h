// SPDX-License-Identifier: Apache-2.0
// The GPUs of this node, wherever they are found. Called from one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"
#include "agent/inventory/nvml.h"
#include "agent/node/pci.h"

namespace gpuloom {

// From the CUDA library, when one is named; else from NVML. Fails as nvml.h and cuda_library.h say,
// and NotFound when there is none.
absl::StatusOr<std::vector<Gpu>> ListGpus(const std::string& cuda_library,
                                          const std::string& nvml_library = kNvmlLibrary);

struct Inventory {
  std::vector<Gpu> gpus;
  // Why there are none: what was found instead, and the next step. One line.
  std::string none_because;
  // There are none to share, but the node has an NVIDIA GPU: which must be repaired.
  bool is_unusable = false;
};

// Like ListGpus, for a node that may have no GPU, or none yet. Fails only when a CUDA library is
// named and cannot be used: that is the operator's own choice of GPUs.
absl::StatusOr<Inventory> TakeInventory(const std::string& cuda_library,
                                        const std::string& nvml_library = kNvmlLibrary,
                                        const std::string& pci_devices = kPciDevices);

}  // namespace gpuloom
