// SPDX-License-Identifier: Apache-2.0
// Copies and fills, one row or many, in a stream.
//
// Device sides are checked against the address table twice: when the call is made (INVALID_VALUE) and when the work
// runs (the memory may be gone by then, which is an illegal-address fault). Host sides that are not registered are
// pageable, and the call then has CUDA's pageable semantics: it returns when the program may touch its buffer again.
// Safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "agent/softgpu/driver/stream.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

// From pageable memory, copies up to this size are staged and return at once, as on the real
// driver.
inline constexpr uint64_t kStagedBytes = 64 << 10;

enum class Side { kHost, kDevice, kAny };  // kAny: the address tells (unified addressing)

struct CopyEnd {
  uint64_t address = 0;
  Side side = Side::kAny;
  uint64_t pitch_bytes = 0;  // from row to row
  uint64_t slice_bytes = 0;  // from slice to slice
};

struct Copy {
  CopyEnd to;
  CopyEnd from;
  uint64_t width_bytes = 0;
  uint64_t height = 1;
  uint64_t depth = 1;
};

// `wait`: a synchronous call, which returns when the copy is done (not for device to device, as in
// CUDA).
[[nodiscard]] CUresult SubmitCopy(Stream& stream, const Copy& copy, bool wait);

// Translates CUDA's description, with the checks of the call, except those of addresses.
[[nodiscard]] CUresult DescribeCopy(const CUDA_MEMCPY3D& params, Copy& copy);

// Makes the same checks as for a copy in a stream. `run` does the copy later, once or often: nothing is staged, so a
// pageable buffer is read when it runs.
[[nodiscard]] CUresult PrepareCopy(const Copy& copy, std::function<void()>& run);

struct Fill {
  uint64_t address = 0;
  uint32_t value = 0;
  unsigned element_bytes = 1;  // 1, 2 or 4
  uint64_t width = 0;          // elements
  uint64_t height = 1;
  uint64_t pitch_bytes = 0;
};

[[nodiscard]] CUresult SubmitFill(Stream& stream, const Fill& fill);
[[nodiscard]] CUresult PrepareFill(const Fill& fill, std::function<void()>& run);

}  // namespace gpuloom::softgpu
