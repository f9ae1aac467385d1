// SPDX-License-Identifier: Apache-2.0
// TestingDriver's green contexts, and what they need from the rest of it.
#pragma once

#include <cstdint>

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

void FillGreenTable(Driver* driver);

// testing/driver.cc
CUresult TestingSynchronising(const char* what);
CUresult TestingNewStream(CUstream* stream, const char* kind, uint64_t of);

}  // namespace gpuloom::executor
