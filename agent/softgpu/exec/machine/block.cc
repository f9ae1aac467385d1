// SPDX-License-Identifier: Apache-2.0
// A block's warps take turns on one thread, so nothing here is locked and nothing is atomic. A
// barrier opens when the last thread that it waits for arrives or ends.
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

// What is created here serves block after block: shared memory and registers are the expensive
// parts of a block, and their sizes are the grid's. Their contents stay as the last block left
// them, as on a GPU.
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
  // The last block may have ended by a fault, with lanes still waiting.
  ForEach(barriers_in_use_, [&](uint32_t number) { barriers_[number] = Barrier(); });
  barriers_in_use_ = 0;
  cluster_arrived = 0;
  cluster_phase = 0;
  for (const std::unique_ptr<Warp>& warp : warps_) {
    // The last warp of a block lacks the lanes beyond the number of threads.
    const uint32_t here = std::min(kLanes, threads - warp->index() * kLanes);
    warp->Reset(here == kLanes ? kAllLanes : (1u << here) - 1);
  }
  live_warps_ = warp_count();
  live_threads_ = threads;
}

bool Block::Turn() {
  bool progress = false;
  for (const std::unique_ptr<Warp>& warp : warps_) {
    if (warp->live() == 0) continue;
    progress |= warp->Run(kInstructionsPerTurn);
    // The fault is progress enough: the caller looks at the outcome next.
    if (run_.outcome.kind != Outcome::kOk) return true;
  }
  return progress;
}

// PTX counts participants of a barrier in whole warps, so a count that is no multiple of 32 is an
// error of the program.
bool Block::Arrive(Warp& warp, const Instr& in, uint32_t lanes, uint32_t number, uint32_t count) {
  const bool has_count = (in.extra & kBarrierHasCount) != 0;
  if (number >= std::size(barriers_)) return false;
  if (has_count && (count == 0 || count % kLanes != 0 || count > kMaxThreadsPerBlock)) return false;
  Barrier& barrier = barriers_[number];
  barriers_in_use_ |= 1u << number;
  barrier.expected = has_count ? count : 0;
  const uint32_t op = in.extra & kBarrierOpMask;
  if (op == kBarrierArrive) {
    // bar.arrive continues without waiting, so only the number of lanes is kept.
    barrier.passed += lanes == warp.live() ? kLanes : Count(lanes);
  } else {
    barrier.waiting[warp.index()] |= lanes;
    barrier.waiting_threads += Count(lanes);
  }
  if (op >= kBarrierPopc) {
    // Read while the frame of these lanes is the running one; when the barrier opens, another may
    // be.
    uint32_t bits = warp.Predicate(in.c);
    if (in.extra & kBarrierNegatesPredicate) bits = ~bits;
    barrier.true_count += Count(bits & lanes);
    barrier.all_true &= (bits & lanes) == lanes;
    ForEach(lanes, [&](uint32_t lane) { barrier.results.push_back({warp.index(), lane, &in}); });
  }
  OpenIfFull(number);
  return true;
}

// Called at every arrival and at every exit: without a count a barrier waits for all threads that
// live, so an exit may be what completes it.
void Block::OpenIfFull(uint32_t number) {
  const Barrier& barrier = barriers_[number];
  if (barrier.expected == 0) {
    // If nobody waits, there is nothing to open, and what has arrived stays counted.
    if (barrier.waiting_threads != 0 && barrier.passed + barrier.waiting_threads >= live_threads_) {
      Open(number);
    }
    return;
  }
  // A count is one of whole warps: the missing lanes of a warp count as arrived.
  uint32_t arrived = barrier.passed;
  for (const std::unique_ptr<Warp>& warp : warps_) {
    const uint32_t lanes = barrier.waiting[warp->index()];
    arrived += lanes != 0 && lanes == warp->live() ? kLanes : Count(lanes);
  }
  if (arrived >= barrier.expected) Open(number);
}

// Results of bar.red are written into the frames of the waiting lanes, before they are released. A
// lane that waits cannot have left its frame.
void Block::Open(uint32_t number) {
  Barrier& barrier = barriers_[number];
  for (const Barrier::Result& result : barrier.results) {
    Frame* const frame = warps_[result.warp]->FrameOf(result.lane);
    const Instr& in = *result.instr;
    const uint32_t op = in.extra & kBarrierOpMask;
    if (op == kBarrierPopc) {
      auto* lanes = reinterpret_cast<uint32_t*>(frame->Register(in.d));
      lanes[result.lane] = barrier.true_count;
    } else {
      const bool value = op == kBarrierAnd ? barrier.all_true : barrier.true_count != 0;
      uint32_t& bits = frame->predicates[in.d];
      bits = (bits & ~(1u << result.lane)) | ((value ? 1u : 0u) << result.lane);
    }
  }
  for (const std::unique_ptr<Warp>& warp : warps_) warp->Release(barrier.waiting[warp->index()]);
  barrier = Barrier();
  barriers_in_use_ &= ~(1u << number);
}

// The cluster's barrier is kept by rank 0, whichever block of the cluster the lanes were in.
void Block::OnExit(const Warp& warp, uint32_t lanes) {
  if (warp.live() == 0) --live_warps_;
  live_threads_ -= Count(lanes);
  ForEach(barriers_in_use_, [&](uint32_t number) { OpenIfFull(number); });
  cluster[0]->OpenClusterBarrierIfFull();
}

// Ended threads count as arrived: a block that has ended must not keep the others of its cluster
// waiting.
void Block::OpenClusterBarrierIfFull() {
  if (cluster_arrived == 0) return;
  uint32_t threads = 0;
  for (const Block* block : cluster) threads += block->live_threads_;
  if (cluster_arrived < threads) return;
  cluster_arrived = 0;
  ++cluster_phase;
}

}  // namespace gpuloom::softgpu
