// SPDX-License-Identifier: Apache-2.0
// The name by which tenant and executor know an image without sending it: SHA-256 of its bytes.
// Cryptographic, because who could make two images of one name could have a neighbour run code that
// the neighbour never loaded.
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

// True when the processor has instructions for it: then an image's hash costs less than sending the
// image (1.9 GB/s and 0.6 GB/s were measured). Without them it costs more.
bool HashesImagesFast();

namespace image_hash_internal {

// The two ways to take in whole blocks of 64 bytes, for their tests.
void TakeBlocksPlainly(uint32_t (&state)[8], const uint8_t* bytes, size_t blocks);
void TakeBlocksFast(uint32_t (&state)[8], const uint8_t* bytes, size_t blocks);

}  // namespace image_hash_internal
}  // namespace gpuloom
