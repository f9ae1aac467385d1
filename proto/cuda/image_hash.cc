// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/image_hash.h"

#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

// SHA-256 as FIPS 180-4 defines it.
namespace gpuloom {
namespace {

constexpr size_t kBlockBytes = 64;

// The fractional parts of the cube roots of the first 64 primes (section 4.2.2). Aligned for the
// vector loads below.
alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr uint32_t Rotated(uint32_t value, int by) { return value >> by | value << (32 - by); }

}  // namespace

namespace image_hash_internal {

// Section 6.2.2 word for word: a message schedule of 64 words, then a round for each.
void TakeBlocksPlainly(uint32_t (&state)[8], const uint8_t* bytes, size_t blocks) {
  for (; blocks != 0; --blocks, bytes += kBlockBytes) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) {
      uint32_t word;
      std::memcpy(&word, bytes + 4 * i, sizeof(word));
      w[i] = __builtin_bswap32(word);
    }
    for (int i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15];
      const uint32_t b = w[i - 2];
      w[i] = w[i - 16] + (Rotated(a, 7) ^ Rotated(a, 18) ^ a >> 3) + w[i - 7] +
             (Rotated(b, 17) ^ Rotated(b, 19) ^ b >> 10);
    }
    uint32_t s[8];
    std::memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; ++i) {
      const uint32_t first = s[7] + (Rotated(s[4], 6) ^ Rotated(s[4], 11) ^ Rotated(s[4], 25)) +
                             ((s[4] & s[5]) ^ (~s[4] & s[6])) + kRound[i] + w[i];
      const uint32_t second = (Rotated(s[0], 2) ^ Rotated(s[0], 13) ^ Rotated(s[0], 22)) +
                              ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
      for (int k = 7; k > 0; --k) s[k] = s[k - 1];
      s[4] += first;
      s[0] = first + second;
    }
    for (int i = 0; i < 8; ++i) state[i] += s[i];
  }
}

#if defined(__x86_64__)

// The state lives in two registers, in the order that the instructions want: a b e f and c d g h,
// from the highest word down.
__attribute__((target("sha,sse4.1,ssse3"))) void TakeBlocksFast(uint32_t (&state)[8],
                                                                const uint8_t* bytes,
                                                                size_t blocks) {
  // SHA-256 reads big-endian words.
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto* memory = reinterpret_cast<__m128i*>(state);
  const __m128i dcba = _mm_loadu_si128(memory);
  const __m128i hgfe = _mm_loadu_si128(memory + 1);
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);

  for (; blocks != 0; --blocks, bytes += kBlockBytes) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    const auto* block = reinterpret_cast<const __m128i*>(bytes);
    __m128i w[4];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m128i& now = w[i % 4];  // the schedule's words 4 i … 4 i + 3
      if (i < 4) {
        now = _mm_shuffle_epi8(_mm_loadu_si128(block + i), swap);
      } else {
        const __m128i& last = w[(i + 3) % 4];
        const __m128i seventh = _mm_alignr_epi8(last, w[(i + 2) % 4], 4);
        now = _mm_sha256msg2_epu32(
            _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]), seventh), last);
      }
      __m128i sum =
          _mm_add_epi32(now, _mm_load_si128(reinterpret_cast<const __m128i*>(kRound) + i));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      // Each instruction does two rounds, with the two low words of the sum: now those of the high
      // ones.
      sum = _mm_shuffle_epi32(sum, 0x0e);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, sum);
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }

  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  auto* out = reinterpret_cast<__m128i*>(state);
  _mm_storeu_si128(out, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(out + 1, _mm_alignr_epi8(dchg, feba, 8));
}

#else

void TakeBlocksFast(uint32_t (&state)[8], const uint8_t* bytes, size_t blocks) {
  TakeBlocksPlainly(state, bytes, blocks);
}

#endif

}  // namespace image_hash_internal

bool HashesImagesFast() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & bit_SSE4_1) == 0 || (c & bit_SSSE3) == 0) {
    return false;
  }
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_SHA) != 0;
#else
  return false;
#endif
}

ImageHash HashImage(const uint8_t* bytes, size_t size_bytes) {
  using image_hash_internal::TakeBlocksFast;
  using image_hash_internal::TakeBlocksPlainly;
  const auto take = HashesImagesFast() ? TakeBlocksFast : TakeBlocksPlainly;
  // The initial state of section 5.3.3.
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const size_t whole = size_bytes / kBlockBytes;
  take(state, bytes, whole);

  // The rest, a one bit, zeroes, and the length in bits as the last eight bytes.
  uint8_t tail[2 * kBlockBytes] = {};
  const size_t rest = size_bytes % kBlockBytes;
  if (rest != 0) std::memcpy(tail, bytes + whole * kBlockBytes, rest);
  tail[rest] = 0x80;
  const size_t blocks = rest + 1 + sizeof(uint64_t) > kBlockBytes ? 2 : 1;
  const uint64_t bits = __builtin_bswap64(uint64_t{size_bytes} * 8);
  std::memcpy(tail + blocks * kBlockBytes - sizeof(bits), &bits, sizeof(bits));
  take(state, tail, blocks);

  ImageHash hash;
  std::memcpy(hash.words, state, sizeof(hash.words));
  return hash;
}

}  // namespace gpuloom
