// SPDX-License-Identifier: Apache-2.0
// Faults in chosen pages of the program, told to a thread of ours while the thread that touched the page waits in the
// kernel: userfaultfd's minor faults. System calls that are given such a page wait, too, and signals and their handlers
// play no part. That needs Linux 5.14 and the kernel's permission: CAP_SYS_PTRACE, vm.unprivileged_userfaultfd=1, or
// access to /dev/userfaultfd; where it is missing, nothing here does anything.
#pragma once

#include <cstdint>

namespace gpuloom {

// Called on our thread with the address that was touched; lets the toucher go on by AdmitPages. It must not touch
// watched pages, nor take a lock whose holder may.
using PageFaultHandler = void (*)(uint64_t address);

// Once, before anything else here. False, with errno, where the kernel has no such faults for this process.
[[nodiscard]] bool StartPageFaults(PageFaultHandler handler);

// Whole pages of one mapping of a memfd, all of which have memory. What is mapped already stays accessible until
// HidePages. False if the kernel has no memory for it.
[[nodiscard]] bool WatchPages(uint64_t begin, uint64_t size_bytes);
// All of it is accessible from now on, and whoever waits goes on.
void UnwatchPages(uint64_t begin, uint64_t size_bytes);

// The next touch of each of these watched pages is a fault. The memory keeps its content. False if the kernel does not
// do it, as before Linux 5.18 for memory that the program has locked.
[[nodiscard]] bool HidePages(uint64_t begin, uint64_t size_bytes);
// These may be touched again.
void AdmitPages(uint64_t begin, uint64_t size_bytes);

}  // namespace gpuloom
