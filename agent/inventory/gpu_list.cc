// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/gpu_list.h"

#include "agent/cat.h"
#include "agent/inventory/cuda_library.h"

namespace gpuloom {

absl::StatusOr<std::vector<Gpu>> ListGpus(const std::string& cuda_library,
                                          const std::string& nvml_library) {
  absl::StatusOr<std::vector<Gpu>> gpus =
      cuda_library.empty() ? ListGpusFromNvml(nvml_library) : ListGpusFromCudaLibrary(cuda_library);
  if (gpus.ok() && gpus->empty()) {
    return absl::NotFoundError(
        Cat(cuda_library.empty() ? "nvml:" : "cuda:", " this node has no GPU"));
  }
  return gpus;
}

absl::StatusOr<Inventory> TakeInventory(const std::string& cuda_library,
                                        const std::string& nvml_library,
                                        const std::string& pci_devices) {
  absl::StatusOr<std::vector<Gpu>> gpus = ListGpus(cuda_library, nvml_library);
  if (gpus.ok()) return Inventory{*std::move(gpus), "", false};
  // A node without GPUs is not a failure, but a library that the operator has named and that does not work is.
  if (!cuda_library.empty()) return gpus.status();
  Inventory inventory;
  // Why NVML fails does not tell: without a GPU there is mostly no driver either.
  inventory.is_unusable = HasNvidiaGpuOnPci(pci_devices);
  inventory.none_because =
      inventory.is_unusable
          ? Cat("inventory: this node has an NVIDIA GPU that cannot be used: ",
                std::string(gpus.status().message()))
          : Cat("inventory: this node has no NVIDIA GPU (", std::string(gpus.status().message()),
                "); keep gpuloom off such nodes by their labels, see docs/installation.md");
  return inventory;
}

}  // namespace gpuloom
