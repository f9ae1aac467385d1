// SPDX-License-Identifier: Apache-2.0
// The oldest symbol version of the C library, which every container has: for functions that newer releases of glibc
// have moved from libpthread into libc under new symbol versions. References to them are weak, because before glibc
// 2.34 a program without threads does not load libpthread.
//
//   extern "C" __attribute__((weak)) int OldPthreadDetach(pthread_t);
//   __asm__(".symver OldPthreadDetach, pthread_detach@" GPULOOM_OLDEST_GLIBC);
#pragma once

#if defined(__x86_64__)
#define GPULOOM_OLDEST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define GPULOOM_OLDEST_GLIBC "GLIBC_2.17"
#endif
