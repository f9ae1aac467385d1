// SPDX-License-Identifier: Apache-2.0
// Whether what a driver is to load or link hangs together. NVIDIA's driver believes what an image says of
// itself: of damaged cubins, fatbins and object files one in 19 crashed driver 580.159.04 or never came
// back (docs/design/module-loading.md). In an executor that costs the whole trust domain.
//
// Pure functions over bytes that a tenant made: nothing outside the given bounds is read, and nothing
// larger than a member's unpacked size is allocated. They say nothing about what the code does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "proto/cuda/fatbin.h"

namespace gpuloom {

// True when every offset, size, index and name in a cubin (an ELF file of CUDA's) leads to something in
// it: sections, symbols, relocations, segments, attributes of kernels (.nv.info).
[[nodiscard]] bool IsSoundCubin(std::span<const uint8_t> cubin);

// Whether so many bytes more may be taken, asked before a member is unpacked into as many; false ends the
// check, and what was checked is not sound.
using Afford = std::function<bool(uint64_t bytes)>;

// Whether anything is known of a fatbin's member: that it is a cubin or text, written in a way that is known
// here. Others are the driver's to refuse.
[[nodiscard]] bool IsJudged(const FatbinMember& member);

// Of a member, unpacked: a cubin as above, or text that ends. True of other kinds.
[[nodiscard]] bool IsSoundMember(FatbinMemberKind kind, std::span<const uint8_t> unpacked);

// The same of whatever may be linked but text: a cubin; a fatbin and its members, which are unpacked one at a
// time; a host's object file (ELF) and the fatbins in it; an archive of such, as ar makes it. False for
// anything else.
[[nodiscard]] bool IsSoundLinkInput(std::span<const uint8_t> input, const Afford& afford);

// The same of what is called text: it may be as wrong as it likes, but when it begins as one of those does,
// the driver reads it as one, and it has to be a sound one.
[[nodiscard]] bool IsSoundLinkText(std::span<const uint8_t> text, const Afford& afford);

}  // namespace gpuloom
