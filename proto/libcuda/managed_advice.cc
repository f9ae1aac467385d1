// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/managed_advice.h"

#include <string.h>

#include "proto/cuda/return_if_error.h"

namespace gpuloom {
namespace {

// As the attributes have it: -1 for the host (CU_DEVICE_CPU), -2 for nowhere (CU_DEVICE_INVALID).
int DeviceOf(const CUmemLocation& location) {
  return IsHostLocation(location) ? int{CU_DEVICE_CPU} : location.id;
}

CUresult Write(void* data, size_t data_bytes, CUmem_range_attribute attribute,
               const ManagedAdvice& said) {
  const auto number = [&](int value) {
    if (data_bytes != sizeof(value)) return CUDA_ERROR_INVALID_VALUE;
    memcpy(data, &value, sizeof(value));
    return CUDA_SUCCESS;
  };
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return number(said.read_mostly ? 1 : 0);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return number(DeviceOf(said.preferred));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return number(DeviceOf(said.prefetched));
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return number(said.preferred.type);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return number(said.prefetched.type);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY: {
      // As many devices as the buffer holds, filled up. Only one can have been advised last.
      if (data_bytes == 0 || data_bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
      int* devices = static_cast<int*>(data);
      for (size_t i = 0; i < data_bytes / sizeof(int); ++i) devices[i] = CU_DEVICE_INVALID;
      devices[0] = said.accessed_by;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult NoteAdvice(CUmem_advise advice, const CUmemLocation& location, bool is_location,
                    ManagedAdvice* said) {
  switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
      said->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
      if (!is_location) return CUDA_ERROR_INVALID_VALUE;
      said->preferred = location;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
      said->preferred = kNowhere;
      return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
      // Advice for the host is judged like any other, and forgotten: it always has access.
      if (!is_location) return CUDA_ERROR_INVALID_VALUE;
      if (!IsHostLocation(location)) {
        said->accessed_by =
            advice == CU_MEM_ADVISE_SET_ACCESSED_BY ? location.id : int{CU_DEVICE_INVALID};
      }
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult WriteRangeAttributes(void* const* data, const size_t* data_bytes,
                              const CUmem_range_attribute* attributes, size_t count,
                              const ManagedAdvice& said) {
  for (size_t i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RETURN_IF_ERROR(Write(data[i], data_bytes[i], attributes[i], said));
  }
  return CUDA_SUCCESS;
}

}  // namespace gpuloom
