// SPDX-License-Identifier: Apache-2.0
// Lists the GPUs that a CUDA driver library sees; for a library chosen by path, such as softgpu, which NVML does not
// know. Initialises that library in this process but makes no context. Called from one thread, at start. Fails with a
// message that starts "cuda:" and names the library.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/inventory/gpu.h"

namespace gpuloom {

absl::StatusOr<std::vector<Gpu>> ListGpusFromCudaLibrary(const std::string& path);

}  // namespace gpuloom
