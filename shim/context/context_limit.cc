// SPDX-License-Identifier: Apache-2.0
// Limits of contexts. The executor's one context serves every tenant of the domain: a limit there only
// grows, as far as the executor allows; what the program is shown is what it has set itself.
#include "proto/cuda/return_if_error.h"
#include "proto/wire/context_limit_commands.h"
#include "shim/context/context.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// What the program has set. 0: not set, so CUDA's default applies.
std::atomic<size_t> limits_set[CU_LIMIT_MAX];

// CUDA's defaults.
CUresult DefaultLimit(CUlimit limit, size_t* value) {
  switch (limit) {
    case CU_LIMIT_STACK_SIZE:
      *value = 1024;
      return CUDA_SUCCESS;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
      *value = size_t{1} << 20;
      return CUDA_SUCCESS;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
      *value = size_t{8} << 20;
      return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
      *value = 2048;
      return CUDA_SUCCESS;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      *value = 128;
      return CUDA_SUCCESS;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED:
    case CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH:
      return CUDA_ERROR_UNSUPPORTED_LIMIT;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Limit(CUlimit limit, size_t* value) {
  CUDA_RETURN_IF_ERROR(DefaultLimit(limit, value));
  const size_t set = limits_set[limit].load(std::memory_order_relaxed);
  if (set != 0) *value = set;
  return CUDA_SUCCESS;
}

// These limits reserve memory in the executor's context.
bool MakesRoom(CUlimit limit) {
  return limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ||
         limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT;
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuCtxGetLimit(size_t* value, CUlimit limit) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Limit(limit, value);
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  size_t usual = 0;
  CUDA_RETURN_IF_ERROR(DefaultLimit(limit, &usual));
  switch (limit) {
    // Hints for the cache, which all tenants share.
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
      return value <= 128 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
      return CUDA_SUCCESS;
    case CU_LIMIT_SHMEM_SIZE:
      return CUDA_ERROR_NOT_PERMITTED;
    default:
      if (MakesRoom(limit)) break;
      return value <= usual ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
  }
  if (value > usual) {
    wire::ContextSetLimit::Reply reply;
    CUDA_RETURN_IF_ERROR(session.Call<wire::ContextSetLimit>(
        {static_cast<uint32_t>(limit), 0, uint64_t{value}}, &reply));
  }
  limits_set[limit].store(value, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

}  // extern "C"
