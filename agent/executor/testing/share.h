// SPDX-License-Identifier: Apache-2.0
// TestingDriver's part for tests of how scarce resources are shared. For testing/driver.cc only.
#pragma once

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

// Overrides what is in the table already.
void FillShareTable(Driver* driver);
void ForgetShares();

// testing/driver.cc
void TestingTakeLong(const char* what);

}  // namespace gpuloom::executor
