// SPDX-License-Identifier: Apache-2.0
// The name by which tenant and executor identify an image without sending it: SHA-256 of its bytes.
// Cryptographic, because anybody able to make two images with the same name could have a neighbour
// run code that the neighbour never loaded.
//
// Pure functions, safe from any thread; no allocation, no libc but memcpy.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>

namespace gpuloom {

struct ImageHash {
  uint64_t words[4];

  friend bool operator==(const ImageHash&, const ImageHash&) = default;
  friend auto operator<=>(const ImageHash&, const ImageHash&) = default;
};

ImageHash HashImage(const uint8_t* bytes, size_t size_bytes);

// Returns true if the processor has instructions for it: then hashing an image costs less than
// sending it (1.9 GB/s and 0.6 GB/s were measured). Without them it costs more.
bool HashesImagesFast();

namespace image_hash_internal {

// The two implementations for whole blocks of 64 bytes, for their tests.
void TakeBlocksPlainly(uint32_t (&state)[8], const uint8_t* bytes, size_t blocks);
void TakeBlocksFast(uint32_t (&state)[8], const uint8_t* bytes, size_t blocks);

}  // namespace image_hash_internal
}  // namespace gpuloom
