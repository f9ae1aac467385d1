// SPDX-License-Identifier: Apache-2.0
// Makes PTX whose kernels do nothing out of machine code. With it a library without PTX can run through everything that
// it asks of a driver (cuBLAS, cuSOLVER, cuFFT …) where nothing can execute its code.
//
// Pure functions.
#pragma once

#include <string>

#include "agent/softgpu/ptx/target.h"

namespace gpuloom::softgpu::ptx {

// PTX with every kernel of the image's machine code for the device, empty and without parameters, and with its
// variables, zeroed; an empty string when there is no such code. `image` as for ExtractFromProgram.
[[nodiscard]] std::string HollowFromProgram(const void* image, const Target& target);

}  // namespace gpuloom::softgpu::ptx
