// SPDX-License-Identifier: Apache-2.0
// Kernels' names for people. Pure; safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpuloom::trace {

// Of a C++ function's name as the linker knows it, the function's with its namespaces and without arguments:
// "_ZN2at6native6vectorILi4EEEvv" gives "at::native::vector". Anything else stays as it is. Reads lengths and letters
// only and takes linear time: the names are chosen by tenants, who must not make an operator's tool work for ever, as
// the full rules would allow.
std::string ShortKernelName(std::string_view name_untrusted);

}  // namespace gpuloom::trace
