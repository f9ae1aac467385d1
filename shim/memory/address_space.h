// SPDX-License-Identifier: Apache-2.0
// The tenant's own part of the device's addresses, and the reservations it has made in it (cuMemAddressReserve).
// shim/memory/memory.h knows what is mapped in them. Safe from any thread; the first call asks the executor where the
// part is.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

inline constexpr uint64_t kGranuleBytes = 2u << 20;  // of physical memory and of reservations

// `alignment_bytes` is a power of two; `wanted` is used if it is free, 0 means any.
[[nodiscard]] CUresult ReserveAddresses(uint64_t size_bytes, uint64_t alignment_bytes,
                                        uint64_t wanted, uint64_t* begin);
// Whether exactly this range has been reserved.
[[nodiscard]] bool IsReserved(uint64_t begin, uint64_t size_bytes);
void FreeAddresses(uint64_t begin);
// The reservation that contains all of these bytes.
[[nodiscard]] bool FindReservation(uint64_t address, uint64_t size_bytes, uint64_t* begin,
                                   uint64_t* reserved_bytes);

}  // namespace gpuloom
