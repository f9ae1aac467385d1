// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/machine/block.h"

#include <algorithm>
#include <bit>

#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// Instructions before the next warp has its turn: long enough that registers stay in the cache.
constexpr uint32_t kInstructionsPerTurn = 8192;

uint32_t Count(uint32_t lanes) { return static_cast<uint32_t>(std::popcount(lanes)); }

}  // namespace

Block::Block(GridRun& run) : run_(run) {
  const Dim3& size = run.grid.block;
  const uint32_t threads = size.x * size.y * size.z;
  if (run.shared_bytes != 0) shared_ = std::make_unique<std::byte[]>(run.shared_bytes);
  for (uint32_t first = 0; first < threads; first += kLanes) {
    warps_.push_back(std::make_unique<Warp>(*this, first / kLanes));
  }
}

void Block::Start(Dim3 index) {
  index_ = index;
  const Dim3& size = run_.grid.block;
  const uint32_t threads = size.x * size.y * size.z;
  for (Barrier& barrier : barriers_) barrier = Barrier();
  cluster_arrived = 0;
  cluster_phase = 0;
  for (const std::unique_ptr<Warp>& warp : warps_) {
    const uint32_t here = std::min(kLanes, threads - warp->index() * kLanes);
    warp->Reset(here == kLanes ? kAllLanes : (1u << here) - 1);
  }
  live_warps_ = warp_count();
}

bool Block::Turn() {
  bool progress = false;
  for (const std::unique_ptr<Warp>& warp : warps_) {
    if (warp->live() == 0) continue;
    progress |= warp->Run(kInstructionsPerTurn);
    if (run_.outcome.kind != Outcome::kOk) return true;
  }
  return progress;
}

uint32_t Block::LiveThreads() const {
  uint32_t threads = 0;
  for (const std::unique_ptr<Warp>& warp : warps_) threads += Count(warp->live());
  return threads;
}

bool Block::Arrive(Warp& warp, const Instr& in, uint32_t lanes, uint32_t number, uint32_t count) {
  const bool has_count = (in.extra & kBarrierHasCount) != 0;
  if (number >= std::size(barriers_)) return false;
  if (has_count && (count == 0 || count % kLanes != 0 || count > kMaxThreadsPerBlock)) return false;
  Barrier& barrier = barriers_[number];
  barrier.in_use = true;
  barrier.expected = has_count ? count : 0;
  const uint32_t op = in.extra & kBarrierOpMask;
  if (op == kBarrierArrive) {
    barrier.passed += lanes == warp.live() ? kLanes : Count(lanes);
  } else {
    barrier.waiting[warp.index()] |= lanes;
  }
  if (op >= kBarrierPopc) {
    uint32_t bits = warp.Predicate(in.c);
    if (in.extra & kBarrierNegatesPredicate) bits = ~bits;
    barrier.true_count += Count(bits & lanes);
    barrier.all_true &= (bits & lanes) == lanes;
    ForEach(lanes, [&](uint32_t lane) { barrier.results.push_back({warp.index(), lane, &in}); });
  }
  OpenIfFull(barrier);
  return true;
}

void Block::OpenIfFull(Barrier& barrier) {
  uint32_t arrived = barrier.passed;
  uint32_t waiting = 0;
  for (const std::unique_ptr<Warp>& warp : warps_) {
    const uint32_t lanes = barrier.waiting[warp->index()];
    waiting |= lanes;
    // A count is one of whole warps: the missing lanes of a warp count as arrived.
    const bool whole = barrier.expected != 0 && lanes != 0 && lanes == warp->live();
    arrived += whole ? kLanes : Count(lanes);
  }
  const uint32_t needed = barrier.expected != 0 ? barrier.expected : LiveThreads();
  if (arrived < needed || (waiting == 0 && barrier.expected == 0)) return;
  Open(barrier);
}

void Block::Open(Barrier& barrier) {
  for (const Barrier::Result& result : barrier.results) {
    Frame* const frame = warps_[result.warp]->FrameOf(result.lane);
    const Instr& in = *result.instr;
    const uint32_t op = in.extra & kBarrierOpMask;
    if (op == kBarrierPopc) {
      auto* lanes = reinterpret_cast<uint32_t*>(frame->registers.get() + in.d);
      lanes[result.lane] = barrier.true_count;
    } else {
      const bool value = op == kBarrierAnd ? barrier.all_true : barrier.true_count != 0;
      uint32_t& bits = frame->predicates[in.d];
      bits = (bits & ~(1u << result.lane)) | ((value ? 1u : 0u) << result.lane);
    }
  }
  for (const std::unique_ptr<Warp>& warp : warps_) warp->Release(barrier.waiting[warp->index()]);
  barrier = Barrier();
}

void Block::OnExit() {
  live_warps_ = 0;
  for (const std::unique_ptr<Warp>& warp : warps_) live_warps_ += warp->live() != 0 ? 1 : 0;
  for (Barrier& barrier : barriers_) {
    if (barrier.in_use) OpenIfFull(barrier);
  }
  cluster[0]->OpenClusterBarrierIfFull();
}

void Block::OpenClusterBarrierIfFull() {
  if (cluster_arrived == 0) return;
  uint32_t threads = 0;
  for (const Block* block : cluster) threads += block->LiveThreads();
  if (cluster_arrived < threads) return;
  cluster_arrived = 0;
  ++cluster_phase;
}

}  // namespace gpuloom::softgpu
