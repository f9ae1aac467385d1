// SPDX-License-Identifier: Apache-2.0
// An estimate by intervals: a register lives from the first instruction that names it to the last,
// and to the end of a loop that it is carried into.
#include "agent/softgpu/exec/decode/register_pressure.h"

#include <algorithm>

namespace gpuloom::softgpu {
namespace {

// Registers times loops: a text made to take long is counted without its loops. nvcc's largest
// kernels are a thousand times smaller.
constexpr uint64_t kMaxSteps = 100'000'000;

}  // namespace

void RegisterPressure::Use(uint64_t offset, uint32_t size_bytes, uint32_t pc) {
  const auto [at, added] = lives_.try_emplace(offset);
  Life& life = at->second;
  if (added) {
    life.first = pc;
    // Eight- and sixteen-bit registers take a whole one each.
    life.words = size_bytes > 4 ? 2 : 1;
  }
  life.last = std::max(life.last, pc);
}

// Only backward branches make loops; what a forward branch skips counts as if it ran.
void RegisterPressure::Branch(uint32_t pc, uint32_t target) {
  if (target <= pc) loops_.push_back({target, pc});
}

// Whoever writes a register that no other instruction names writes for nobody.
bool RegisterPressure::IsUsedOnlyAt(uint64_t offset, uint32_t pc) const {
  const auto life = lives_.find(offset);
  return life == lives_.end() || (life->second.first == pc && life->second.last == pc);
}

uint32_t RegisterPressure::WordsAlive() const {
  // Where the number of words changes: a sweep over these finds the most.
  std::map<uint32_t, int64_t> changes;
  std::vector<Loop> loops;
  if (uint64_t{lives_.size()} * loops_.size() <= kMaxSteps) loops = loops_;
  // Inner loops end first, so that a life made longer by one is seen by those around it.
  std::sort(loops.begin(), loops.end(), [](const Loop& a, const Loop& b) { return a.end < b.end; });
  for (const auto& [offset, life] : lives_) {
    uint32_t last = life.last;
    for (const Loop& loop : loops) {
      // A register that was set before a loop and is named in it must live until the loop's end.
      if (life.first < loop.begin && last >= loop.begin && last < loop.end) last = loop.end;
    }
    changes[life.first] += life.words;
    changes[last + 1] -= life.words;
  }
  int64_t alive = 0;
  int64_t most = 0;
  for (const auto& [pc, change] : changes) {
    alive += change;
    most = std::max(most, alive);
  }
  return static_cast<uint32_t>(most);
}

}  // namespace gpuloom::softgpu
