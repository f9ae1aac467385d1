// The buffers in which a program wants to read what the JIT says. They are the program's own; an
// option's value for a buffer's size is overwritten with the length, as CUDA does.
#pragma once

#include <cstddef>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct JitLog {
  char* text = nullptr;
  size_t capacity_bytes = 0;
  void** size_out = nullptr;
};

// INVALID_VALUE when there are options but no arrays.
[[nodiscard]] CUresult FindLogs(unsigned count, const CUjit_option* options, void** values,
                                JitLog* errors, JitLog* infos);
void WriteLog(const JitLog& log, const char* text, size_t text_bytes);

}  // namespace gpuloom
