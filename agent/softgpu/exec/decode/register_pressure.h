// SPDX-License-Identifier: Apache-2.0
// Estimates how many 32-bit registers a function needs at once. PTX names a new register for almost
// every result; a GPU's compiler gives those that are never alive together the same one, and so this
// counts. What it counts decides how many blocks a multiprocessor is said to hold.
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
  // No other instruction than that at `pc` names the register.
  [[nodiscard]] bool IsUsedOnlyAt(uint64_t offset, uint32_t pc) const;
  // The largest number of words alive at one place.
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
