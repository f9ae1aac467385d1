// SPDX-License-Identifier: Apache-2.0
// Tensor maps: the 128-byte descriptors of Hopper's bulk copies. They are opaque and hold no
// memory: the driver encodes one from plain numbers, the tenant gets its bytes.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

inline constexpr uint32_t kTensorMapBytes = 128;
inline constexpr uint32_t kMaxTensorRank = 5;

enum class TensorMapKind : uint32_t { kTiled, kIm2col, kIm2colWide };

// Reply payload: kTensorMapBytes.
struct TensorMapEncode {
  static constexpr std::string_view kName = "TensorMapEncode";
  static constexpr bool kReply = true;
  struct Request {
    TensorMapKind kind;
    uint32_t data_type;  // CUtensorMapDataType
    uint32_t rank;       // 1 … kMaxTensorRank
    uint32_t interleave;
    uint64_t address;
    uint64_t dimensions[kMaxTensorRank];
    uint64_t strides_bytes[kMaxTensorRank];  // rank - 1 of them
    uint32_t box[kMaxTensorRank];            // kTiled
    uint32_t element_strides[kMaxTensorRank];
    int32_t lower_corner[kMaxTensorRank];  // kIm2col: rank - 2 of them; kIm2colWide: the first
    int32_t upper_corner[kMaxTensorRank];
    uint32_t channels_per_pixel;
    uint32_t pixels_per_column;
    uint32_t mode;  // kIm2colWide
    uint32_t swizzle;
    uint32_t l2_promotion;
    uint32_t fill;
  };
  struct Reply {};
};

// Reply payload: the map with the new address.
struct TensorMapReplaceAddress {
  static constexpr std::string_view kName = "TensorMapReplaceAddress";
  static constexpr bool kReply = true;
  struct Request {
    uint64_t address;
    uint64_t map[kTensorMapBytes / 8];
  };
  struct Reply {};
};

}  // namespace gpuloom::wire
