// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/device.h"

#include <cstdio>
#include <cstdlib>
#include <string>

namespace gpuloom::executor {

void StartFirst(Device* device) {
  const Driver& driver = device->cuda();
  CUdevice first = 0;
  CUuuid uuid{};
  std::string error = "no first device";
  if (driver.cuInit(0) == CUDA_SUCCESS && driver.cuDeviceGet(&first, 0) == CUDA_SUCCESS &&
      driver.cuDeviceGetUuid_v2(&uuid, first) == CUDA_SUCCESS) {
    std::string text = "GPU-";
    for (int i = 0; i < 16; ++i) {
      char hex[3];
      snprintf(hex, sizeof(hex), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
      text += hex;
      if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
    }
    if (device->Start(text, &error)) return;
  }
  fprintf(stderr, "the test's device: %s\n", error.c_str());
  abort();
}

}  // namespace gpuloom::executor
