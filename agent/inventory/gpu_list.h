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

// Lists the GPUs from the CUDA library if one is named, otherwise from NVML. Fails as nvml.h and cuda_library.h say,
// and with NotFound if there is no GPU.
absl::StatusOr<std::vector<Gpu>> ListGpus(const std::string& cuda_library,
                                          const std::string& nvml_library = kNvmlLibrary);

struct Inventory {
  std::vector<Gpu> gpus;
  // Why there are none: what was found instead, and the next step. One line.
  std::string none_because;
  // The node has an NVIDIA GPU, but none that can be shared: it must be repaired.
  bool is_unusable = false;
};

// Like ListGpus, for a node that may have no GPU, or none yet. Fails only if a CUDA library is named and cannot be
// used, because the operator has chosen it.
absl::StatusOr<Inventory> TakeInventory(const std::string& cuda_library,
                                        const std::string& nvml_library = kNvmlLibrary,
                                        const std::string& pci_devices = kPciDevices);

}  // namespace gpuloom
