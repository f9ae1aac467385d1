// SPDX-License-Identifier: Apache-2.0
// Effects of a graph's memory operations on the executor's pinned memory, as far as they have run.
// Part of TestingDriver, under its lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

struct TestingProgram {
  std::vector<CUstreamBatchMemOpParams> operations;
  size_t next = 0;

  bool Run() {
    for (; next < operations.size(); ++next) {
      const CUstreamBatchMemOpParams& one = operations[next];
      const std::atomic_ref<uint32_t> word(*reinterpret_cast<uint32_t*>(one.waitValue.address));
      if (one.operation == CU_STREAM_MEM_OP_WRITE_VALUE_32) {
        word.store(one.writeValue.value);
      } else if (word.load() != one.waitValue.value) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace gpuloom::executor
