// SPDX-License-Identifier: Apache-2.0
// Extracts PTX text from what cuModuleLoadData and cuLibraryLoadData are given.
//
// An image is a fatbin wrapper (0x466243b1), a fatbin (0xBA55ED50), an ELF cubin or PTX text. Only
// PTX can be executed here: the PTX of a fatbin with the highest target that the device can run is
// taken and decompressed (LZ4, zstd). Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "agent/softgpu/ptx/target.h"

namespace gpuloom::softgpu::ptx {

// Limits what one image may decompress to; the largest PTX of NVIDIA's own libraries is far below
// it.
inline constexpr size_t kMaxPtxBytes = size_t{256} << 20;

// The beginning of *error for images that hold no code for this device.
inline constexpr std::string_view kNoPtx = "fatbin: no PTX for compute_";
inline constexpr std::string_view kOnlyMachineCode = "cubin: machine code without PTX";

// The PTX text in `image`, or an empty string and *error: "fatbin: no PTX for compute_90 or lower
// …". Never reads outside `image`. A wrapper's members are pointers, so a wrapper is not accepted
// here: see ExtractFromProgram.
[[nodiscard]] std::string Extract(std::span<const std::byte> image, const Target& target,
                                  std::string* error);

// True for a fatbin that holds machine code that this device could run, which stands in for PTX
// there.
[[nodiscard]] bool HoldsMachineCode(std::span<const std::byte> image, const Target& target);
// Whether machine code for sm_`sm` runs on the device: the major numbers are equal, and the code's
// is not newer.
[[nodiscard]] bool IsMachineCodeFor(uint32_t sm, const Target& target);

// Extract for what a program in this process passes to the driver: a pointer without a length. The
// headers are trusted, as by the real driver. A wrapper (version 1, or 2 with its NULL-terminated
// list of fatbins) is followed. Of parts that were linked together, those without PTX are left out.
[[nodiscard]] std::string ExtractFromProgram(const void* image, const Target& target,
                                             std::string* error);

}  // namespace gpuloom::softgpu::ptx
