// SPDX-License-Identifier: Apache-2.0
// Launches of CUDA 3: a function's block, shared memory and parameters are set one by one, and a
// launch takes what is set. Safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// Call it when the function is unloaded: its handle may be reused for another one.
void ForgetStepwiseLaunch(const void* function);

}  // namespace gpuloom
