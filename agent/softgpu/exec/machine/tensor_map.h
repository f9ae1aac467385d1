// SPDX-License-Identifier: Apache-2.0
// The contents of a CUtensorMap that softgpu made: the driver writes it, the machine reads it from
// wherever a kernel has put it. Plain data without padding.
#pragma once

#include <cstdint>

namespace gpuloom::softgpu {

inline constexpr uint32_t kMaxTensorRank = 5;

struct TensorMap {
  static constexpr uint32_t kMagic = 0x70616d54;  // "Tmap"
  enum Mode : uint8_t { kTiled, kIm2col };
  // The type of the elements, and thereby how two are added. In the order of CUtensorMapDataType.
  enum Type : uint8_t {
    kU8,
    kU16,
    kU32,
    kS32,
    kU64,
    kS64,
    kF16,
    kF32,
    kF64,
    kBf16,
    kF32Flushed,
    kTf32,
    kTf32Flushed,
  };

  uint32_t magic;
  uint8_t mode;
  uint8_t type;
  uint8_t rank;
  uint8_t interleave;  // 0: none
  uint64_t address;
  uint64_t dimensions[kMaxTensorRank];   // elements
  uint64_t strides[kMaxTensorRank - 1];  // bytes, from the second dimension on
  uint16_t box[kMaxTensorRank];          // elements
  uint8_t element_strides[kMaxTensorRank];
  uint8_t swizzle;         // 0: none; 1, 2, 3: spans of 32, 64, 128 bytes
  uint8_t fills_with_nan;  // what lies outside is not-a-number; otherwise 0
  uint8_t alignment;       // the alignment that the address must have
  uint8_t rest[6];
};
static_assert(sizeof(TensorMap) == 112, "a CUtensorMap has 128 bytes");

}  // namespace gpuloom::softgpu
