// SPDX-License-Identifier: Apache-2.0
// fma.rn.f32 and fma.rn.f64: the instruction that matrix kernels spend their time in, so it uses
// the processor's own when there is one.
#pragma once

#include "agent/softgpu/exec/machine/program.h"

namespace gpuloom::softgpu {

[[nodiscard]] Handler FmaHandler(size_t size_bytes);

}  // namespace gpuloom::softgpu
