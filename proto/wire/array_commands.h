// SPDX-License-Identifier: Apache-2.0
// Arrays, and the textures and surfaces that view them. The driver chooses an array's memory
// layout, so its address is not exposed; the tenant names it by id. The handles of textures and
// surfaces are the driver's own numbers, because kernels get them as arguments.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

enum class ArrayId : uint32_t {};
inline constexpr uint32_t kMaxArrays = 1u << 16;
// More live ones of a kind than any program makes; limits what a session can make the executor
// hold.
inline constexpr uint32_t kMaxViews = 1u << 20;

// As CUDA_ARRAY3D_DESCRIPTOR. Charged to the quota as the driver lays it out; zeroed.
struct ArrayCreate {
  static constexpr std::string_view kName = "ArrayCreate";
  static constexpr bool kReply = true;
  struct Request {
    ArrayId array;    // unused so far
    uint32_t levels;  // 0: no mipmap
    uint64_t width;
    uint64_t height;
    uint64_t depth;
    uint32_t format;
    uint32_t channels;
    uint32_t flags;
    uint32_t unused;
  };
  struct Reply {
    uint32_t levels;  // that the driver made
    uint32_t unused;
  };
};

// A level of a mipmapped array: an array for copies and views, destroyed with the whole.
struct ArrayLevel {
  static constexpr std::string_view kName = "ArrayLevel";
  static constexpr bool kReply = true;
  struct Request {
    ArrayId whole;
    ArrayId array;  // unused so far
    uint32_t level;
  };
  struct Reply {};
};

// Also destroys its levels. Answered when the session's work so far is done and the quota is
// returned.
struct ArrayDestroy {
  static constexpr std::string_view kName = "ArrayDestroy";
  static constexpr bool kReply = true;
  struct Request {
    ArrayId array;
  };
  struct Reply {};
};

enum class ViewResource : uint32_t { kArray, kMipmap, kLinear, kPitched };

// As CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC and CUDA_RESOURCE_VIEW_DESC; floats as their bits.
struct TextureCreate {
  static constexpr std::string_view kName = "TextureCreate";
  static constexpr bool kReply = true;
  struct Request {
    ViewResource resource;
    ArrayId array;
    uint64_t address;
    uint64_t size_bytes;  // kLinear
    uint64_t width;       // kPitched, in elements
    uint64_t height;
    uint64_t pitch_bytes;
    uint32_t format;  // kLinear, kPitched
    uint32_t channels;
    uint32_t address_mode[3];
    uint32_t filter_mode;
    uint32_t flags;
    uint32_t max_anisotropy;
    uint32_t mipmap_filter_mode;
    uint32_t mipmap_level_bias_bits;
    uint32_t min_mipmap_level_bits;
    uint32_t max_mipmap_level_bits;
    uint32_t border_color_bits[4];
    uint32_t has_view;  // 0: the rest is unused
    uint32_t view_format;
    uint64_t view_width;
    uint64_t view_height;
    uint64_t view_depth;
    uint32_t first_level;
    uint32_t last_level;
    uint32_t first_layer;
    uint32_t last_layer;
  };
  struct Reply {
    uint64_t texture;
  };
};

// Answered when the session's work so far is done.
struct TextureDestroy {
  static constexpr std::string_view kName = "TextureDestroy";
  static constexpr bool kReply = true;
  struct Request {
    uint64_t texture;
  };
  struct Reply {};
};

struct SurfaceCreate {
  static constexpr std::string_view kName = "SurfaceCreate";
  static constexpr bool kReply = true;
  struct Request {
    ArrayId array;
  };
  struct Reply {
    uint64_t surface;
  };
};

// Answered when the session's work so far is done.
struct SurfaceDestroy {
  static constexpr std::string_view kName = "SurfaceDestroy";
  static constexpr bool kReply = true;
  struct Request {
    uint64_t surface;
  };
  struct Reply {};
};

}  // namespace gpuloom::wire
