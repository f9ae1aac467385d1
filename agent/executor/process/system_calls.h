// SPDX-License-Identifier: Apache-2.0
// The system calls that this process may make: those that CUDA was seen to need, by running all there
// is on a GPU and on the software one. Every other is refused: with an error, because other drivers
// may try other calls, and through the descriptor by which the kernel tells of it, so that it is
// logged. Of all threads, those that run already included. Does nothing in sanitizer builds.
#pragma once

#include <string>

#include "proto/channel/unique_fd.h"

namespace gpuloom::executor {

// With `listener` the kernel asks there what to answer, and the call waits; where it has no such
// descriptor to give, *listener stays invalid and the answer is EPERM, as it is without. False with
// a message.
[[nodiscard]] bool RestrictSystemCalls(channel::UniqueFd* listener, std::string* error);

// For drivers that do not start under that list: refuses what reaches other processes, starts programs,
// changes what the process sees of the machine, or makes a socket that is not Unix's. Says nothing of
// what it has refused.
[[nodiscard]] bool RefuseSystemCalls(std::string* error);

}  // namespace gpuloom::executor
