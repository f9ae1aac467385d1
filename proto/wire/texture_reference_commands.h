// SPDX-License-Identifier: Apache-2.0
// Texture and surface references: variables of a library that its kernels name, and that the
// program binds to memory by its host code (docs/design/texture-references.md).
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/array_commands.h"
#include "proto/wire/commands.h"

namespace gpuloom::wire {

enum class ReferenceId : uint32_t {};
inline constexpr uint32_t kMaxReferences = 1u << 14;
// As many as one kernel could use; bounds what a launch carries with it.
inline constexpr uint32_t kMaxReferencesOfLibrary = 256;

enum class ReferenceKind : uint32_t { kTexture, kSurface };

// Payload: the name. What a texture reference is like before the program changes it. With neither
// library nor reference: what one of cuTexRefCreate is like, of which only the tenant knows.
struct ReferenceGet {
  static constexpr std::string_view kName = "ReferenceGet";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxNameBytes;
  struct Request {
    LibraryId library;
    ReferenceId reference;  // unused so far
    ReferenceKind kind;
  };
  struct Reply {  // of a surface reference without meaning
    uint32_t format;
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
  };
};

// What the reference is bound to for launches that follow in the ring; launches before it see what
// it was bound to then. Of a surface reference only the array counts; there are no views.
struct ReferenceSet {
  static constexpr std::string_view kName = "ReferenceSet";
  static constexpr bool kReply = false;
  struct Request {
    ReferenceId reference;
    uint32_t bound;  // 0: to nothing, and `look` has no meaning
    TextureCreate::Request look;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
