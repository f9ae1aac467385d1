// SPDX-License-Identifier: Apache-2.0
// What TestingDriver does for tests of who gets how much of what there is once. For testing/driver.cc only.
#pragma once

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

// Over what is in the table already.
void FillShareTable(Driver* driver);
void ForgetShares();

// testing/driver.cc
void TestingTakeLong(const char* what);

}  // namespace gpuloom::executor
