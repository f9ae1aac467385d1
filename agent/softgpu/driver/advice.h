// SPDX-License-Identifier: Apache-2.0
// What a program said about an allocation of managed memory; it holds for all of it, and goes with
// it. Safe from any thread, by `mutex`.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

// What CUDA reports where nothing was said.
inline constexpr CUmemLocation kNowhere = {CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};

struct Advice {
  Mutex mutex;
  bool read_mostly GPULOOM_GUARDED_BY(mutex) = false;
  int accessed_by GPULOOM_GUARDED_BY(mutex) = CU_DEVICE_INVALID;
  CUmemLocation preferred GPULOOM_GUARDED_BY(mutex) = kNowhere;
  CUmemLocation prefetched GPULOOM_GUARDED_BY(mutex) = kNowhere;
};

}  // namespace gpuloom::softgpu
