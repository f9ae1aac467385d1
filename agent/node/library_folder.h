// SPDX-License-Identifier: Apache-2.0
// The name of Debian's and its descendants' folder of libraries, which is the architecture's; glibc there also puts it
// in the place of $LIB. A container's programs are of the node's architecture. A macro, for literals of paths.
#pragma once

#if defined(__x86_64__)
#define GPULOOM_LIBRARY_FOLDER "x86_64-linux-gnu"
#elif defined(__aarch64__)
#define GPULOOM_LIBRARY_FOLDER "aarch64-linux-gnu"
#else
#error "which folder of libraries has Debian for this architecture?"
#endif
