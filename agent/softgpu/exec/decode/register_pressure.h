// SPDX-License-Identifier: Apache-2.0
// Estimates how many 32-bit registers a function needs at once. PTX names a new register for almost every result; a
// GPU's compiler gives the same register to those that are never alive together, and so this counts them once. The
// estimate decides how many blocks a multiprocessor is reported to hold. Plain value, owned by a Decoder; its thread
// only.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace gpuloom::softgpu {

class RegisterPressure {
 public:
  // The register at `offset` is named by the instruction at `pc`.
  void Use(uint64_t offset, uint32_t size_bytes, uint32_t pc);
  // The instruction at `pc` branches to `target`.
  void Branch(uint32_t pc, uint32_t target);
  // True if no instruction other than the one at `pc` names the register.
  [[nodiscard]] bool IsUsedOnlyAt(uint64_t offset, uint32_t pc) const;
  // The largest number of words that are alive at the same place.
  [[nodiscard]] uint32_t WordsAlive() const;

 private:
  struct Life {
    uint32_t first = 0;
    uint32_t last = 0;
    uint32_t words = 1;
  };
  struct Loop {
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  std::map<uint64_t, Life> lives_;
  std::vector<Loop> loops_;
};

}  // namespace gpuloom::softgpu
