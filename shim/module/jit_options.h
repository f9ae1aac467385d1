// SPDX-License-Identifier: Apache-2.0
// A program's JIT options: numbers for the compiler, which runs in the executor, and buffers for its output. The
// buffers are the program's own; CUDA overwrites an option's value with its output (a text's length, the time, the
// threads of a block), and so do we. Values without locks: each is used by the thread of one call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/link_commands.h"

namespace gpuloom {

// One of the two buffers for text.
struct JitText {
  char* text = nullptr;
  size_t capacity_bytes = 0;
  void** size_out = nullptr;  // null: there is no buffer
};

struct JitOptions {
  // For the compiler.
  wire::LinkOption list[wire::kMaxLinkOptions];
  uint32_t count = 0;
  // For the program.
  JitText infos;
  JitText errors;
  void** wall_time_out = nullptr;
  void** threads_out = nullptr;

  uint32_t list_bytes() const { return count * static_cast<uint32_t>(sizeof(wire::LinkOption)); }
  bool WantsReport() const {
    return infos.size_out != nullptr || errors.size_out != nullptr || wall_time_out != nullptr ||
           threads_out != nullptr;
  }
  bool empty() const { return count == 0 && !WantsReport(); }
};

// INVALID_VALUE if there are options but no arrays, for an option that CUDA does not have, for too many of them, and
// for a buffer without its size or vice versa.
[[nodiscard]] CUresult ReadJitOptions(unsigned count, const CUjit_option* options, void** values,
                                      JitOptions* out);

// A place in the arena for a report's texts, and the way back to the program.
//
//   JitReportBuffer place = JitReportBuffer::For(options);
//   place.address = …; ask the executor with place's fields; place.Deliver(report, options);
struct JitReportBuffer {
  uint64_t address = 0;  // of the texts
  uint32_t info_capacity_bytes = 0;
  uint32_t error_capacity_bytes = 0;

  static JitReportBuffer For(const JitOptions& options);
  uint32_t size_bytes() const { return info_capacity_bytes + error_capacity_bytes; }
  // Writes the executor's report to the program.
  void Deliver(const wire::JitReport& report, const JitOptions& options) const;
};

// For a load without a compiler: `error` in its buffer, nothing in the other, no time.
void WriteJitError(const JitOptions& options, const char* error, size_t bytes);

}  // namespace gpuloom
