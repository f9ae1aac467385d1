// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/cuda_library.h"

#include "agent/cat.h"
#include "agent/node/gpu_uuid.h"
#include "proto/cuda/driver.h"

namespace gpuloom {
absl::StatusOr<GpuList> ListGpusFromCudaLibrary(const std::string& path) {
  Driver driver;
  std::string error;
  if (!Load(path.c_str(), &driver, &error)) return absl::UnavailableError(error);
  const auto failed = [&](const std::string& what, CUresult code) {
    return Cat("cuda: ", path, ": ", what, ": error ", static_cast<int>(code));
  };
  if (const CUresult code = driver.cuInit(0); code != CUDA_SUCCESS) {
    // It works, and has none: all may be lost.
    if (code == CUDA_ERROR_NO_DEVICE) return GpuList{};
    return absl::UnavailableError(failed("cuInit", code));
  }
  int count = 0;
  if (const CUresult code = driver.cuDeviceGetCount(&count); code != CUDA_SUCCESS) {
    return absl::UnavailableError(failed("cuDeviceGetCount", code));
  }
  GpuList list;
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
    Gpu gpu;
    gpu.index = index;
    if (code == CUDA_SUCCESS) {
      gpu.uuid = FormatUuid(uuid.bytes);
      code = driver.cuDeviceGetName(name, sizeof(name) - 1, device);
    }
    if (code == CUDA_SUCCESS) code = driver.cuDeviceTotalMem_v2(&total_bytes, device);
    gpu.name = name;
    gpu.total_bytes = total_bytes;
    if (code == CUDA_SUCCESS) {
      list.usable.push_back(std::move(gpu));
    } else {
      list.unusable.push_back({std::move(gpu), failed(Cat("device ", index), code)});
    }
  }
  return list;
}

}  // namespace gpuloom
