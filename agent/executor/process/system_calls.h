// SPDX-License-Identifier: Apache-2.0
// The system calls that this process may make: those that CUDA was seen to need when all tests and programs ran, on a
// GPU and on the software one. All others are refused with an error, not by killing the process, because other drivers
// may try other calls; the kernel also reports them through a descriptor, so that they are logged. Applies to all
// threads, including those already running. Does nothing in sanitizer builds.
#pragma once

#include <string>

#include "proto/channel/unique_fd.h"

namespace gpuloom::executor {

// With `listener`, the kernel asks through that descriptor how to answer, and the call waits. If the kernel has no such
// descriptor, *listener stays invalid and the result of a refused call is EPERM, as it is without `listener`. Returns
// false with a message.
[[nodiscard]] bool RestrictSystemCalls(channel::UniqueFd* listener, std::string* error);

// For drivers that do not start under that list: refuses calls that affect other processes, start programs, change
// this process's view of the machine, or create sockets other than Unix sockets. Does not report what it has refused.
[[nodiscard]] bool RefuseSystemCalls(std::string* error);

}  // namespace gpuloom::executor
