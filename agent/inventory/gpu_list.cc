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

}  // namespace gpuloom
