// SPDX-License-Identifier: Apache-2.0
// Functions that a PTX text declares and the driver provides: __assertfail, vprintf and cudaGraphSetConditional. Pure;
// called while a module is loaded.
#pragma once

#include "agent/softgpu/exec/machine/program.h"

namespace gpuloom::softgpu {

// The handler for a call of `callee` with the parameters of `site`, which is call `Instr::target` of its function;
// nullptr when the driver has no such function.
//
// vprintf writes to this process's standard output, one call at a time, and returns the number of arguments it printed,
// or -1 when the format cannot be read. cudaGraphSetConditional with a handle that does not exist is an illegal
// address.
[[nodiscard]] Handler FindSystemCall(const Function& callee, const CallSite& site);

}  // namespace gpuloom::softgpu
