// SPDX-License-Identifier: Apache-2.0
// %tid, %ctaid, %clock64 and their like, and addresses that are known only at run time. Pure;
// called while a module is loaded.
#pragma once

#include <string_view>

#include "agent/softgpu/exec/machine/program.h"

namespace gpuloom::softgpu {

// Sets what ReadSpecialRegister's handler needs; false when there is no such register.
[[nodiscard]] bool FindSpecialRegister(std::string_view name, Instr* in);
// d = the register, as 2, 4 or 8 bytes; nullptr for another size.
[[nodiscard]] Handler ReadSpecialRegister(uint32_t size_bytes);
// d = imm + the start of the running frame, or of dynamic shared memory.
[[nodiscard]] Handler RuntimeAddress(bool frame, uint32_t size_bytes);
// All names, for the test of the documentation; "%envreg" and "%pm" stand for their numbered ones.
[[nodiscard]] std::string_view SpecialRegisterNames();

}  // namespace gpuloom::softgpu
