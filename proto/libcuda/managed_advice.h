// SPDX-License-Identifier: Apache-2.0
// What a program says about an allocation of managed memory, and how its attributes report that: the same in the shim and
// in the software driver, each of which keeps it beside the allocation, under a lock of its own. Failures are CUDA's codes.
#pragma once

#include <cstddef>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// What attributes report where nothing was said.
inline constexpr CUmemLocation kNowhere = {CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};

// A value; it holds for all of an allocation.
struct ManagedAdvice {
  bool read_mostly = false;
  CUdevice accessed_by = CU_DEVICE_INVALID;
  CUmemLocation preferred = kNowhere;
  CUmemLocation prefetched = kNowhere;
};

// There is one kind of host memory: NUMA nodes are not told apart.
inline bool IsHostLocation(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

// The older functions name a device, or the CPU, by its number alone.
inline CUmemLocation LocationOfNumber(CUdevice device) {
  if (device == CU_DEVICE_CPU) return {CU_MEM_LOCATION_TYPE_HOST, CU_DEVICE_CPU};
  return {CU_MEM_LOCATION_TYPE_DEVICE, device};
}

// `is_location`: whether there is such a place. INVALID_VALUE for what CUDA refuses.
[[nodiscard]] CUresult NoteAdvice(CUmem_advise advice, const CUmemLocation& location,
                                  bool is_location, ManagedAdvice* said);

// Each is judged by the size that the program says it has. The first that is refused is the last that is looked at.
[[nodiscard]] CUresult WriteRangeAttributes(void* const* data, const size_t* data_bytes,
                                            const CUmem_range_attribute* attributes, size_t count,
                                            const ManagedAdvice& said);

}  // namespace gpuloom
