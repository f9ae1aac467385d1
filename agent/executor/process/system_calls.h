// SPDX-License-Identifier: Apache-2.0
// The system calls that this process may make: those that CUDA was seen to need, by running all there
// is on a GPU and on the software one. All others are refused: with an error, because other drivers
// may try other calls, and through the descriptor by which the kernel reports them, so that they are
// logged. Applies to all threads, including those already running. Does nothing in sanitizer builds.
#pragma once

#include <string>

#include "proto/channel/unique_fd.h"

namespace gpuloom::executor {

// With `listener` the kernel asks there how to answer, and the call waits; if the kernel has no
// such descriptor, *listener stays invalid and the result is EPERM, as it is without. Returns false
// with a message.
[[nodiscard]] bool RestrictSystemCalls(channel::UniqueFd* listener, std::string* error);

// For drivers that do not start under that list: refuses calls that affect other processes, start programs, change
// this process's view of the machine, or create sockets other than Unix sockets. Does not report what it has refused.
[[nodiscard]] bool RefuseSystemCalls(std::string* error);

}  // namespace gpuloom::executor
