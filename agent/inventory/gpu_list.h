// The GPUs of this node, wherever they are found. Called from one thread, at start. Fails as
// nvml.h and cuda_library.h say, and NotFound when there is none.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"
#include "agent/inventory/nvml.h"

namespace gpuloom {

// From the CUDA library, when one is named; else from NVML.
absl::StatusOr<std::vector<Gpu>> ListGpus(const std::string& cuda_library,
                                          const std::string& nvml_library = kNvmlLibrary);

}  // namespace gpuloom
