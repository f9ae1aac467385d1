// SPDX-License-Identifier: Apache-2.0
// Texture and surface references: variables of a library that its kernels use, and that the
// program's host code binds to memory (docs/design/texture-references.md).
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/array_commands.h"
#include "proto/wire/command.h"
#include "proto/wire/library_commands.h"

namespace gpuloom::wire {

enum class ReferenceId : uint32_t {};
inline constexpr uint32_t kMaxReferences = 1u << 14;
// As many as one kernel could use; limits what a launch carries with it.
inline constexpr uint32_t kMaxReferencesOfLibrary = 256;

enum class ReferenceKind : uint32_t { kTexture, kSurface };

// Payload: the name. Returns a texture reference's state before the program changes it. With
// neither library nor reference: that of one from cuTexRefCreate, which only the tenant knows.
struct ReferenceGet {
  static constexpr std::string_view kName = "ReferenceGet";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxNameBytes;
  struct Request {
    LibraryId library;
    ReferenceId reference;  // unused so far
    ReferenceKind kind;
  };
  struct Reply {  // meaningless for a surface reference
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

// Binds the reference for launches that follow in the ring; earlier launches keep the earlier
// binding. For a surface reference only the array counts; there are no views.
struct ReferenceSet {
  static constexpr std::string_view kName = "ReferenceSet";
  static constexpr bool kReply = false;
  struct Request {
    ReferenceId reference;
    uint32_t bound;  // 0: unbound, and `look` is unused
    TextureCreate::Request look;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
