// SPDX-License-Identifier: Apache-2.0
// How much of a device's memory code takes once it is loaded: its variables, its constants and the code
// itself, of the image alone. Node side only. Pure functions over bytes that a tenant made; linear in
// their length, and nothing outside of them is read.
//
// Local memory (a thread's own) and shared memory do not count: they are not the image's.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "proto/cuda/managed_variables.h"

namespace gpuloom {

// Of what was chosen of an image.
[[nodiscard]] uint64_t DeviceBytes(const DeviceCode& code);

// Of a cubin: all that is for the device. UINT64_MAX where sizes do not add up.
[[nodiscard]] uint64_t CubinDeviceBytes(std::span<const uint8_t> cubin);

// Of PTX text: what its variables in .global and .const take. Its code is not known before it is
// compiled. UINT64_MAX where sizes do not add up; a declaration that is none counts nothing, since the
// driver refuses it.
[[nodiscard]] uint64_t PtxVariableBytes(std::string_view ptx);

}  // namespace gpuloom
