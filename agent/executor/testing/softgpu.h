// SPDX-License-Identifier: Apache-2.0
// The software GPU's driver, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

// Loaded once; the process ends if it cannot be.
inline const Driver& SoftGpu(const char* library) {
  static const Driver kDriver = [library] {
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
