// SPDX-License-Identifier: Apache-2.0
// What a program asks to be told by the JIT, among the options of a load or a link: two buffers for text, the time, and
// the number of threads of a block that code was compiled for. All other options are ignored here. Used by one thread,
// during one call or the life of a link.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

class JitLog {
 public:
  JitLog() = default;
  // The option arrays must outlive this object. The time begins here.
  JitLog(unsigned count, CUjit_option* options, void** values);

  // INVALID_VALUE for options that CUDA does not have, and for a buffer without a size or a size without a buffer. Do
  // not write to the buffers then.
  [[nodiscard]] CUresult Judge() const;

  // Writes each text into its buffer, as much as fits, and the number of bytes into its size option.
  void WriteError(std::string_view text) const { Write({}, text); }
  // With a verbose log, one line for each function that kernels are launched by.
  void WriteSuccess(const std::vector<std::string>& entries) const;

 private:
  void** Find(CUjit_option option) const;
  uint32_t CapacityOf(CUjit_option size) const;
  void Fill(CUjit_option buffer, CUjit_option size, uint32_t capacity, std::string_view text) const;
  void Write(std::string_view info, std::string_view error) const;

  unsigned count_ = 0;
  CUjit_option* options_ = nullptr;
  void** values_ = nullptr;
  // The values that the program passed: writing results replaces them.
  uint32_t info_capacity_ = 0;
  uint32_t error_capacity_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace gpuloom::softgpu
