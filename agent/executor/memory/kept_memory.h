// SPDX-License-Identifier: Apache-2.0
// Memory that a session has freed, kept for its next allocation of the same size: the round trip to
// the scheduler, clearing and mapping cost a hundred times as much as reusing it. It stays charged
// to the session and holds only the session's own data, so it is not cleared. Memory of an
// allocation stays mapped where it was; memory that the tenant had by id is not mapped.
//
// Pure bookkeeping, ring thread only. docs/design/memory.md describes when it is returned.
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
  // Programs gain nothing from more blocks, and returning more would take long: further ones are returned at once.
  static constexpr size_t kMostBlocks = 1024;

  // Returns false if there are enough already. Times must not decrease.
  [[nodiscard]] bool Keep(Block block);
  // The most recently kept block of exactly this size. Returns false if there is none.
  [[nodiscard]] bool TakeMapped(uint64_t size_bytes, Block* block);
  [[nodiscard]] bool TakeUnmapped(uint64_t size_bytes, Block* block);
  // Takes all blocks kept at this time or before.
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
