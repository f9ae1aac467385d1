// SPDX-License-Identifier: Apache-2.0
// What a program passes beside code: numbers for the compiler, which runs in the executor, and places
// for what that says. The places are the program's own; CUDA overwrites an option's value with what it
// has to tell (a text's length, the time, the threads of a block), and so is done here.
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

// INVALID_VALUE when there are options but no arrays, for an option that CUDA does not have, for more of
// them than there are, and for a buffer without its size or the other way round.
[[nodiscard]] CUresult ReadJitOptions(unsigned count, const CUjit_option* options, void** values,
                                      JitOptions* out);

// A place in the arena for a report's texts, and what comes out of it.
//
//   JitReportPlace place = JitReportPlace::For(options);
//   place.address = …; ask the executor with place's fields; place.Tell(report, options);
struct JitReportPlace {
  uint64_t address = 0;  // of the texts
  uint32_t info_capacity_bytes = 0;
  uint32_t error_capacity_bytes = 0;

  static JitReportPlace For(const JitOptions& options);
  uint32_t size_bytes() const { return info_capacity_bytes + error_capacity_bytes; }
  // Writes to the program what the executor reports.
  void Tell(const wire::JitReport& report, const JitOptions& options) const;
};

// For a load that no compiler took part in: `error` in its buffer, nothing in the other, no time.
void TellError(const JitOptions& options, const char* error, size_t bytes);

}  // namespace gpuloom
