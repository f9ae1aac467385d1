// SPDX-License-Identifier: Apache-2.0
// Machine code whose kernels do nothing: what lets a library without PTX be taken through all it
// asks of a driver (cuBLAS, cuSOLVER, cuFFT …) where nothing can execute it.
//
// Pure functions without state.
#pragma once

#include <string>

#include "agent/softgpu/ptx/target.h"

namespace gpuloom::softgpu::ptx {

// PTX with every kernel of the image's machine code for the device, without parameters and empty, and with
// its variables, zero; an empty string when there is no such code. `image` as for ExtractFromProgram.
[[nodiscard]] std::string HollowFromProgram(const void* image, const Target& target);

}  // namespace gpuloom::softgpu::ptx
