// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/memory/kept_memory.h"

#include <algorithm>
#include <iterator>

namespace gpuloom::executor {

bool KeptMemory::Keep(Block block) {
  if (count_ >= kMostBlocks) return false;
  ++count_;
  size_bytes_ += block.memory->size_bytes;
  Blocks& blocks = block.address != 0 ? mapped_ : unmapped_;
  blocks[block.memory->size_bytes].push_back(std::move(block));
  return true;
}

bool KeptMemory::TakeMapped(uint64_t size_bytes, Block* block) {
  return Take(&mapped_, size_bytes, block);
}

bool KeptMemory::TakeUnmapped(uint64_t size_bytes, Block* block) {
  return Take(&unmapped_, size_bytes, block);
}

// The newest block, so that the others grow old enough to be returned.
bool KeptMemory::Take(Blocks* blocks, uint64_t size_bytes, Block* block) {
  const auto it = blocks->find(size_bytes);
  if (it == blocks->end()) return false;
  *block = std::move(it->second.back());
  it->second.pop_back();
  if (it->second.empty()) blocks->erase(it);
  --count_;
  size_bytes_ -= size_bytes;
  return true;
}

std::vector<KeptMemory::Block> KeptMemory::TakeUntil(uint64_t since_ns) {
  std::vector<Block> taken;
  for (Blocks* blocks : {&mapped_, &unmapped_}) {
    for (auto it = blocks->begin(); it != blocks->end();) {
      std::vector<Block>& same = it->second;
      // Oldest first, so the old ones are at the front.
      const auto end = std::find_if(same.begin(), same.end(), [since_ns](const Block& block) {
        return block.since_ns > since_ns;
      });
      const auto count = static_cast<size_t>(end - same.begin());
      count_ -= count;
      size_bytes_ -= count * it->first;
      std::move(same.begin(), end, std::back_inserter(taken));
      same.erase(same.begin(), end);
      it = same.empty() ? blocks->erase(it) : std::next(it);
    }
  }
  return taken;
}

}  // namespace gpuloom::executor
