// SPDX-License-Identifier: Apache-2.0
// What a program said about an allocation of managed memory; it holds for all of it, and goes with
// it. Safe from any thread, by `mutex`.
#pragma once

#include "proto/libcuda/managed_advice.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

struct Advice {
  Mutex mutex;
  ManagedAdvice said GPULOOM_GUARDED_BY(mutex);
};

}  // namespace gpuloom::softgpu
