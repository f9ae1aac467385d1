// SPDX-License-Identifier: Apache-2.0
// Faults in chosen pages of the program, reported to a thread of ours while the thread that touched the page waits in
// the kernel: userfaultfd's minor faults. System calls that access such a page wait, too; signals and their handlers
// play no part. This needs Linux 5.14 and the kernel's permission: CAP_SYS_PTRACE, vm.unprivileged_userfaultfd=1, or
// access to /dev/userfaultfd. Without it StartPageFaults fails, and the other functions must not be called. After it
// they are safe from any thread, for different pages.
#pragma once

#include <cstdint>

namespace gpuloom {

// Called on our thread with the address that was touched; AdmitPages lets the thread that touched it go on. The handler
// must not touch watched pages, nor take a lock whose holder may touch them.
using PageFaultHandler = void (*)(uint64_t address);

// Call it once, before anything else here. False, with errno, if the kernel offers no such faults to this process.
[[nodiscard]] bool StartPageFaults(PageFaultHandler handler);

// Watches whole pages of one mapping of a memfd, all of which have memory. What is mapped already stays accessible
// until HidePages. False if the kernel has no memory for it.
[[nodiscard]] bool WatchPages(uint64_t begin, uint64_t size_bytes);
// From now on the pages are accessible; threads that wait for them go on.
void UnwatchPages(uint64_t begin, uint64_t size_bytes);

// The next touch of each of these watched pages is a fault. The memory keeps its content. False if the kernel does not
// do it, as before Linux 5.18 for memory that the program has locked.
[[nodiscard]] bool HidePages(uint64_t begin, uint64_t size_bytes);
// Makes these pages accessible again, and lets the threads that wait for them go on.
void AdmitPages(uint64_t begin, uint64_t size_bytes);

}  // namespace gpuloom
