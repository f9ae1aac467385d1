// SPDX-License-Identifier: Apache-2.0
// Kernels with atomic operations of the system's scope (docs/design/managed-memory.md). On managed memory that the device
// reaches in host memory, over a link that has no such operations, updates are lost if host threads change the same words
// while the kernel runs. Such launches are not refused: few programs do that, and nothing else goes wrong.
#pragma once

#include "shim/module/kernel.h"

namespace gpuloom {

// Call it behind each launch of a kernel that has such operations (Kernel::system_atomics), which has placed the memory
// that migrates: tells the program, once, if such memory and such a link are there. Safe from any thread; takes the locks of
// managed memory.
void ReportSystemAtomics(const Kernel& kernel);

}  // namespace gpuloom
