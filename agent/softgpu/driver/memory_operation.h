// SPDX-License-Identifier: Apache-2.0
// A stream's own reads and writes of memory: write a value, wait for a value. Programs use them to
// order streams with the host or with another process without events.
//
// A wait polls the memory with short sleeps; it ends early at a fault and when the process exits.
// Safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "agent/softgpu/driver/stream.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

struct MemoryOperation {
  enum class Kind { kWrite, kWait, kBarrier };
  Kind kind = Kind::kWrite;
  uint64_t address = 0;
  uint64_t value = 0;
  bool wide = false;       // 64 bits instead of 32
  unsigned condition = 0;  // for a wait: one of CUstreamWaitValue_flags
};

// Enqueues all of them, in order, as one piece of work.
[[nodiscard]] CUresult Submit(Stream& stream, std::vector<MemoryOperation> operations);
// Makes the checks only; `run` does the operations later, once or often.
[[nodiscard]] CUresult Prepare(std::vector<MemoryOperation> operations, std::function<void()>& run);
// Translates CUDA's form.
[[nodiscard]] CUresult Describe(const CUstreamBatchMemOpParams* params, unsigned count,
                                std::vector<MemoryOperation>& operations);

}  // namespace gpuloom::softgpu
