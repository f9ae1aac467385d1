// The log buffers that a program passes among the options of a load, and what is written into them.
#pragma once

#include <string_view>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

class JitLog {
 public:
  JitLog() = default;
  // The option arrays must outlive this object.
  JitLog(unsigned count, CUjit_option* options, void** values);

  // Writes the text into the error log, as much as fits, and the number of bytes into its size
  // option. The information log stays empty.
  void Tell(std::string_view text) const;

 private:
  unsigned count_ = 0;
  CUjit_option* options_ = nullptr;
  void** values_ = nullptr;
};

}  // namespace gpuloom::softgpu
