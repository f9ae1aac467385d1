// SPDX-License-Identifier: Apache-2.0
// Keeps the program's threads from writing to some pages while these are replaced by others with the same content:
// the pages become read-only, and a thread that writes to them waits in our handler of SIGSEGV until the fence is
// lowered. Then it writes to what is there.
//
//   if (!RaiseFence(begin, size_bytes)) …
//   copy the pages and map the copies over them: system calls only, nothing that a waiting thread may hold up
//   LowerFence();
//
// One fence at a time, which is up for the time of a copy. While it is up, the thread that raised it must not touch
// the program's locks (malloc's, for one): their holder may be waiting. System calls that write to the pages meanwhile
// fail with EFAULT: no handler is asked for those.
//
// The handler is installed by the first call and stays. It passes all other faults on to the handler it found. If the
// program has installed another one since then, there are no fences any more.
#pragma once

#include <cstdint>

namespace gpuloom {

// `begin` and `size_bytes`: whole pages that may be written. False, without a fence, if the program's faults do not
// come to us or the kernel has no memory for it.
[[nodiscard]] bool RaiseFence(uint64_t begin, uint64_t size_bytes);
// The pages may be written again, whichever they are now.
void LowerFence();

}  // namespace gpuloom
