// SPDX-License-Identifier: Apache-2.0
// What lies in a fatbin's members, decompressed (LZ4, zstd), and what an image as a whole has. Node
// side only: links lz4 and zstd. Pure functions over bytes that a tenant made: nothing outside the
// given bounds is read, and nothing larger than the given limit is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/cuda/fatbin.h"

namespace gpuloom {

// What one member of an image may unpack to here. The largest cubins of NVIDIA's own libraries are
// some tens of MiB.
inline constexpr size_t kMaxMemberBytes = size_t{512} << 20;

// The payload of `member`, unpacked: exactly member.uncompressed_bytes, which may not exceed
// `limit_bytes`. False and *error ("zstd: Corrupted block detected") when it cannot be.
[[nodiscard]] bool UnpackMember(const FatbinMember& member, size_t limit_bytes,
                                std::vector<uint8_t>* out, std::string* error);

// What the largest member of a fatbin unpacks to, of those that this unpacks at all; of another image
// its own size.
[[nodiscard]] uint64_t LargestMemberBytes(std::span<const uint8_t> image);

// True when some member of the image (fatbin, ELF or PTX) has a __device__ or __constant__ variable, or
// a texture or surface reference, so that a loaded copy of it has state of its own; also when that is
// not certain. False only for images that are nothing but code, whichever of their members the driver
// takes: tenants of one trust domain may share one loaded copy of those. Tables that a compiler put
// among the variables (sinf's, printf's formats) count as variables: being wrong on that side only costs
// a load.
[[nodiscard]] bool HasVariables(std::span<const uint8_t> image);

// True when code in some member of the image may call printf (its symbol table or its text names
// vprintf), or when the image cannot be read.
[[nodiscard]] bool MayPrint(std::span<const uint8_t> image);

// Both at once: a member is unpacked only once. Further: what the image takes of a device's memory at most
// (device_bytes.h), and whether its members are sound (image_check.h).
struct ImageContent {
  bool variables;
  bool prints;
  bool is_sound;
  uint64_t device_bytes;
};
[[nodiscard]] ImageContent LookInto(std::span<const uint8_t> image);

}  // namespace gpuloom
