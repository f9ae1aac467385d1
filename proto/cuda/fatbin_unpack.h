// SPDX-License-Identifier: Apache-2.0
// Decompresses a fatbin's members (LZ4, zstd), and finds out what an image as a whole contains. Node side only: links
// lz4 and zstd. Pure functions over bytes that a tenant made: nothing outside the given bounds is read, and nothing
// larger than the given limit is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/cuda/fatbin.h"
#include "proto/cuda/system_atomics.h"

namespace gpuloom {

// The most that one member of an image may unpack to. The largest cubins of NVIDIA's own libraries are some tens of
// MiB.
inline constexpr size_t kMaxMemberBytes = size_t{512} << 20;

// Unpacks the payload of `member`: exactly member.uncompressed_bytes, which may not exceed `limit_bytes`. Returns
// false with *error ("zstd: Corrupted block detected") if it cannot be unpacked. *out has room for one byte more, so that
// a NUL behind it costs no copy.
[[nodiscard]] bool UnpackMember(const FatbinMember& member, size_t limit_bytes,
                                std::vector<uint8_t>* out, std::string* error);

// The unpacked size of the largest member of a fatbin that this code can unpack; for other images their own size.
[[nodiscard]] uint64_t LargestMemberBytes(std::span<const uint8_t> image);

// Takes the cubin that a driver chooses from a fatbin for a device of this compute capability (90 for 9.0) if there
// is no doubt: it is the only one compiled for exactly that capability. Returns false otherwise, for all other
// images, and if it cannot be unpacked. A library for many devices is several times as large as what one device
// needs.
[[nodiscard]] bool TakeOnlyCubin(std::span<const uint8_t> image, uint32_t capability,
                                 std::vector<uint8_t>* cubin);

// Returns true if some member of the image (fatbin, ELF or PTX) has a __device__ or __constant__ variable, or a
// texture or surface reference, so that a loaded copy of it has state of its own; also when in doubt. Returns false
// only for images that are pure code, whichever of their members the driver takes: tenants of one trust domain may
// share one loaded copy of those. Tables that a compiler put among the variables (sinf's, printf's formats) count as
// variables: a false positive only costs a load.
[[nodiscard]] bool HasVariables(std::span<const uint8_t> image);

// Returns true if code in some member of the image may call printf (its symbol table or its text names vprintf), or if
// the image cannot be read.
[[nodiscard]] bool MayPrint(std::span<const uint8_t> image);

// Both at once, so that a member is unpacked only once. Also: the most device memory that the image takes
// (device_bytes.h), whether its members are sound (image_check.h), and the atomic operations of the system's scope in any
// of them.
struct ImageContent {
  bool variables;
  bool prints;
  bool is_sound;
  uint64_t device_bytes;
  SystemAtomics system_atomics;
};
[[nodiscard]] ImageContent InspectImage(std::span<const uint8_t> image);

}  // namespace gpuloom
