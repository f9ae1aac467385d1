// SPDX-License-Identifier: Apache-2.0
// Copies to memory that the device, not a processor, reads next, or that exceeds the cache. Uses stores that bypass
// the cache: the device reads such memory faster from main memory than from the cache of a processor that has just
// written it (measured in docs/design/pageable-copies.md). Pure; safe from any thread.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace gpuloom {

// Like memcpy. A thread that sees a later store of this thread sees the data, too.
inline void StreamingCopy(uint8_t* to, const uint8_t* from, uint64_t size_bytes) {
#if defined(__x86_64__)
  constexpr uint64_t kLineBytes = 64;
  // Worthwhile only for stores that fill lines.
  if (size_bytes >= 8 * kLineBytes) {
    const uint64_t before = -reinterpret_cast<uintptr_t>(to) % kLineBytes;
    memcpy(to, from, before);
    to += before;
    from += before;
    size_bytes -= before;
    for (; size_bytes >= kLineBytes; size_bytes -= kLineBytes) {
      const auto* source = reinterpret_cast<const __m128i*>(from);
      auto* line = reinterpret_cast<__m128i*>(to);
      const __m128i a = _mm_loadu_si128(source);
      const __m128i b = _mm_loadu_si128(source + 1);
      const __m128i c = _mm_loadu_si128(source + 2);
      const __m128i d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(line, a);
      _mm_stream_si128(line + 1, b);
      _mm_stream_si128(line + 2, c);
      _mm_stream_si128(line + 3, d);
      to += kLineBytes;
      from += kLineBytes;
    }
    _mm_sfence();
  }
#endif
  memcpy(to, from, size_bytes);
}

}  // namespace gpuloom
