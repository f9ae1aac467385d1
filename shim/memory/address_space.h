// SPDX-License-Identifier: Apache-2.0
// The tenant's own part of the device's addresses, and the reservations it has cut from it
// (cuMemAddressReserve). What is mapped in them is shim/memory/memory.h's to know. Safe from any thread;
// the first call asks the executor where the part lies.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

inline constexpr uint64_t kGranuleBytes = 2u << 20;  // of physical memory and of reservations

// `alignment_bytes` is a power of two; `wanted` is taken when it is free, 0 wishes nothing.
[[nodiscard]] CUresult ReserveAddresses(uint64_t size_bytes, uint64_t alignment_bytes,
                                        uint64_t wanted, uint64_t* begin);
// False when exactly this has not been reserved.
[[nodiscard]] bool IsReserved(uint64_t begin, uint64_t size_bytes);
void FreeAddresses(uint64_t begin);
// The reservation around all of these bytes.
[[nodiscard]] bool FindReservation(uint64_t address, uint64_t size_bytes, uint64_t* begin,
                                   uint64_t* reserved_bytes);

}  // namespace gpuloom
