// SPDX-License-Identifier: Apache-2.0
// When a stream's wait for a value in memory (cuStreamWaitValue*) is over. Pure; safe from any thread.
#pragma once

#include <type_traits>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// `condition` is one of CU_STREAM_WAIT_VALUE_*, without CU_STREAM_WAIT_VALUE_FLUSH; T is an unsigned word.
template <typename T>
bool WaitIsOver(T now, T wanted, unsigned condition) {
  static_assert(std::is_unsigned_v<T>);
  switch (condition) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      // Counters may wrap around.
      return static_cast<std::make_signed_t<T>>(static_cast<T>(now - wanted)) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return now == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
      return (now & wanted) != 0;
    default:  // CU_STREAM_WAIT_VALUE_NOR
      return static_cast<T>(~(now | wanted)) != 0;
  }
}

}  // namespace gpuloom
