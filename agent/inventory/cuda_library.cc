// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/cuda_library.h"

#include "agent/cat.h"
#include "agent/node/gpu_uuid.h"
#include "proto/cuda/driver.h"

namespace gpuloom {
absl::StatusOr<std::vector<Gpu>> ListGpusFromCudaLibrary(const std::string& path) {
  Driver driver;
  std::string error;
  if (!Load(path.c_str(), &driver, &error)) return absl::UnavailableError(error);
  const auto failed = [&](const char* what, CUresult code) {
    return absl::UnavailableError(
        Cat("cuda: ", path, ": ", what, ": error ", static_cast<int>(code)));
  };
  if (const CUresult code = driver.cuInit(0); code != CUDA_SUCCESS) return failed("cuInit", code);
  int count = 0;
  if (const CUresult code = driver.cuDeviceGetCount(&count); code != CUDA_SUCCESS) {
    return failed("cuDeviceGetCount", code);
  }
  std::vector<Gpu> gpus;
  for (int index = 0; index < count; ++index) {
    CUdevice device = 0;
    CUuuid uuid = {};
    // One byte larger than the size given to the driver, so that the text ends whatever it writes.
    char name[256] = {};
    size_t total_bytes = 0;
    CUresult code = driver.cuDeviceGet(&device, index);
    if (code == CUDA_SUCCESS) {
      // cuDeviceGetUuid_v2 came with CUDA 11.4. Without MIG both give the same.
      code = driver.cuDeviceGetUuid_v2 != nullptr ? driver.cuDeviceGetUuid_v2(&uuid, device)
                                                  : driver.cuDeviceGetUuid(&uuid, device);
    }
    if (code == CUDA_SUCCESS) code = driver.cuDeviceGetName(name, sizeof(name) - 1, device);
    if (code == CUDA_SUCCESS) code = driver.cuDeviceTotalMem_v2(&total_bytes, device);
    // One device that fails is a failure of the list: what is left out of it would be taken for a
    // GPU that is no longer there.
    if (code != CUDA_SUCCESS) return failed(Cat("device ", index).c_str(), code);
    Gpu gpu;
    gpu.uuid = FormatUuid(uuid.bytes);
    gpu.name = name;
    gpu.index = index;
    gpu.total_bytes = total_bytes;
    gpus.push_back(gpu);
  }
  return gpus;
}

}  // namespace gpuloom
