// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/device.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "agent/executor/device/device.h"
#include "agent/node/gpu_uuid.h"

namespace gpuloom::executor {

void StartFirst(Device* device) {
  const Driver& driver = device->cuda();
  CUdevice first = 0;
  CUuuid uuid{};
  std::string error = "no first device";
  if (driver.cuInit(0) == CUDA_SUCCESS && driver.cuDeviceGet(&first, 0) == CUDA_SUCCESS &&
      driver.cuDeviceGetUuid_v2(&uuid, first) == CUDA_SUCCESS) {
    if (device->Start(FormatUuid(uuid.bytes), &error) == CUDA_SUCCESS) return;
  }
  fprintf(stderr, "the test's device: %s\n", error.c_str());
  abort();
}

}  // namespace gpuloom::executor
