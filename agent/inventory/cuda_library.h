// SPDX-License-Identifier: Apache-2.0
// GPUs as one CUDA driver library sees them; for a library chosen by path, such as the software
// GPU, of which NVML knows nothing. Initialises that library in this process but makes no context.
// Called from one thread, at start. Fails with a message that starts "cuda:" and names the library. One GPU that cannot be
// used is no failure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"

namespace gpuloom {

absl::StatusOr<GpuList> ListGpusFromCudaLibrary(const std::string& path);

}  // namespace gpuloom
