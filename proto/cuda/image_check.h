// SPDX-License-Identifier: Apache-2.0
// Checks whether an image that a driver is to load or link is consistent. NVIDIA's driver trusts what an image says
// about itself: of damaged cubins, fatbins and object files, one in 19 crashed driver 580.159.04 or made it hang
// (docs/design/module-loading.md). In an executor that would affect the whole trust domain.
//
// Pure functions over bytes that a tenant made: nothing outside the given bounds is read, and nothing larger than a
// member's unpacked size is allocated. They do not judge what the code does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "proto/cuda/fatbin.h"

namespace gpuloom {

// Returns true if every offset, size, index and name in a cubin (a CUDA ELF file) refers to something in it: sections,
// symbols, relocations, segments, attributes of kernels (.nv.info).
[[nodiscard]] bool IsSoundCubin(std::span<const uint8_t> cubin);

// Whether this many more bytes may be used, asked before a member is unpacked into them; false ends the check, and the
// input then counts as not sound.
using Afford = std::function<bool(uint64_t bytes)>;

// Whether the check understands a fatbin's member: a cubin or text in a known encoding. The driver has to refuse
// others.
[[nodiscard]] bool IsJudged(const FatbinMember& member);

// Returns true if an unpacked member is sound: a cubin as above, or NUL-terminated text. True for other kinds.
[[nodiscard]] bool IsSoundMember(FatbinMemberKind kind, std::span<const uint8_t> unpacked);

// The same for all link inputs but text: a cubin; a fatbin and its members, which are unpacked one at a time; a host's
// object file (ELF) and the fatbins in it; an archive of such, as ar makes it. False for anything else.
[[nodiscard]] bool IsSoundLinkInput(std::span<const uint8_t> input, const Afford& afford);

// The same for input passed as text. It may contain any errors; but if it begins like a binary input, the driver
// reads it as one, so it must then be a sound one.
[[nodiscard]] bool IsSoundLinkText(std::span<const uint8_t> text, const Afford& afford);

}  // namespace gpuloom
