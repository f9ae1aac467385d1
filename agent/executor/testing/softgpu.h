// SPDX-License-Identifier: Apache-2.0
// The software GPU's driver, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "agent/executor/device/hardware_queues.h"
#include "proto/cuda/driver.h"

namespace gpuloom::executor {

// Loaded once; the process ends if it cannot be.
inline const Driver& SoftGpu(const char* library) {
  static const Driver kDriver = [library] {
    // As the executor's main does.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", std::to_string(kHardwareQueues).c_str(), 1);
    Driver driver;
    std::string error;
    if (!Load(library, &driver, &error)) {
      ADD_FAILURE() << error;
      abort();
    }
    return driver;
  }();
  return kDriver;
}

}  // namespace gpuloom::executor
