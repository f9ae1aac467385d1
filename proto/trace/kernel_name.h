// SPDX-License-Identifier: Apache-2.0
// Shortens kernels' names for people. Pure; safe from any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpuloom::trace {

// For a mangled C++ name, returns the function's name with its namespaces and without arguments:
// "_ZN2at6native6vectorILi4EEEvv" gives "at::native::vector". Any other name stays as it is. Reads only lengths and
// letters and takes linear time: tenants choose the names, and the full rules of demangling would allow names that
// keep an operator's tool busy for ever.
std::string ShortKernelName(std::string_view name_untrusted);

}  // namespace gpuloom::trace
