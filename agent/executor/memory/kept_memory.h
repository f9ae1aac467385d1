// SPDX-License-Identifier: Apache-2.0
// Memory that a session has freed and that waits for the session's next need of the same size: the
// way to the scheduler and back, clearing and mapping cost a hundred times what taking it up again
// does. It stays charged to the session and holds nothing but the session's own data, so that
// nothing is cleared. What stood behind an allocation stays mapped where it was; what the tenant
// had by an id is not mapped.
//
// Pure bookkeeping, ring thread only. docs/design/memory.md says when it goes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "agent/executor/memory/physical_memory.h"

namespace gpuloom::executor {

class KeptMemory {
 public:
  struct Block {
    PhysicalRef memory;
    uint64_t address;  // 0: not mapped
    uint64_t since_ns;
  };
  // More are no use to a program and make giving them back long: they go at once.
  static constexpr size_t kMostBlocks = 1024;

  // False when there are enough already. Time does not run backwards.
  [[nodiscard]] bool Keep(Block block);
  // What was kept last of exactly this size. False when there is none.
  [[nodiscard]] bool TakeMapped(uint64_t size_bytes, Block* block);
  [[nodiscard]] bool TakeUnmapped(uint64_t size_bytes, Block* block);
  // What was kept at this time or before.
  [[nodiscard]] std::vector<Block> TakeUntil(uint64_t since_ns);
  [[nodiscard]] std::vector<Block> TakeAll() { return TakeUntil(UINT64_MAX); }

  uint64_t size_bytes() const { return size_bytes_; }
  bool empty() const { return count_ == 0; }

 private:
  using Blocks = std::map<uint64_t, std::vector<Block>>;  // by size, oldest first
  bool Take(Blocks* blocks, uint64_t size_bytes, Block* block);

  Blocks mapped_;
  Blocks unmapped_;
  uint64_t size_bytes_ = 0;
  size_t count_ = 0;
};

}  // namespace gpuloom::executor
