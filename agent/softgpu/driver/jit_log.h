// SPDX-License-Identifier: Apache-2.0
// What a program wants to hear of the JIT, among the options of a load or a link: two buffers for text, the
// time, and for how many threads of a block was compiled. Nothing else of the options means anything here.
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
  // The option arrays must outlive this object. The time begins now.
  JitLog(unsigned count, CUjit_option* options, void** values);

  // INVALID_VALUE for options that CUDA does not have, and for a buffer without a size or the other way
  // round. Nothing may be told then.
  [[nodiscard]] CUresult Judge() const;

  // Each text goes into its buffer, as much as fits, and the number of bytes into its size option.
  void TellError(std::string_view text) const { Tell({}, text); }
  // With a verbose log, one line for each function that kernels are launched by.
  void TellSuccess(const std::vector<std::string>& entries) const;

 private:
  void** Find(CUjit_option option) const;
  uint32_t CapacityOf(CUjit_option size) const;
  void Fill(CUjit_option buffer, CUjit_option size, uint32_t capacity, std::string_view text) const;
  void Tell(std::string_view info, std::string_view error) const;

  unsigned count_ = 0;
  CUjit_option* options_ = nullptr;
  void** values_ = nullptr;
  // As the program gave them: telling replaces them.
  uint32_t info_capacity_ = 0;
  uint32_t error_capacity_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace gpuloom::softgpu
