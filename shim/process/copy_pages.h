// SPDX-License-Identifier: Apache-2.0
// Copies whole pages of the program, whatever they contain. In a program that is built with AddressSanitizer, our
// memcpy would be the sanitizer's, too, and would abort on the free parts of a page of the heap. Pure; safe from any
// thread.
#pragma once

#include <stdint.h>

namespace gpuloom {

// Like memcpy. Pages are aligned to their size, `size_bytes` is a multiple of it.
__attribute__((no_sanitize("address"))) inline void CopyPages(void* to, const void* from,
                                                              uint64_t size_bytes) {
#if defined(__x86_64__)
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size_bytes) : : "memory");
#else
  auto* words = static_cast<uint64_t*>(to);
  const auto* source = static_cast<const uint64_t*>(from);
  for (uint64_t i = 0; i < size_bytes / sizeof(uint64_t); ++i) {
    words[i] = source[i];
    asm volatile("" : : : "memory");  // no compiler makes a memcpy of it
  }
#endif
}

}  // namespace gpuloom
