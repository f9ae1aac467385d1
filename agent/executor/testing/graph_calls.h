// SPDX-License-Identifier: Apache-2.0
// TestingDriver's graphs. For testing/driver.cc only.
#pragma once

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

void FillGraphTable(Driver* driver);

}  // namespace gpuloom::executor
