// SPDX-License-Identifier: Apache-2.0
// How much device memory code takes once it is loaded: its variables, its constants and the code itself, as far as the
// image shows it. Node side only. Pure functions over bytes that a tenant made; linear in their length, and nothing
// outside of them is read.
//
// Local memory (per thread) and shared memory do not count: they are not part of the image.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "proto/cuda/managed_variables.h"

namespace gpuloom {

// The memory of the code that was chosen from an image.
[[nodiscard]] uint64_t DeviceBytes(const DeviceCode& code);

// The memory of a cubin: everything for the device. UINT64_MAX if sizes do not add up.
[[nodiscard]] uint64_t CubinDeviceBytes(std::span<const uint8_t> cubin);

// Of PTX text: its variables in .global and .const. The size of its code is not known before it is compiled.
// Each is padded to its alignment. UINT64_MAX if sizes do not add up or one is not understood; a type that is not known
// counts as the largest.
[[nodiscard]] uint64_t PtxVariableBytes(std::string_view ptx);

}  // namespace gpuloom
