// SPDX-License-Identifier: Apache-2.0
// 32 threads that run together: their registers, their places in the code, and how they diverge.
//
// Lanes at the same place run as one group. Of several groups, the one deepest in calls, and there
// the lowest in the code, runs first; so lanes come together again where branches join. A group
// that loops while others could run gives way after a while, so that a lane may wait for another.
//
// Owned by its Block; one thread at a time. Only the instructions' handlers (exec/decode/*.cc,
// system_call.cc) read and write its public state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "agent/softgpu/exec/machine/grid.h"
#include "agent/softgpu/exec/machine/lane_loops.h"
#include "agent/softgpu/exec/machine/program.h"

namespace gpuloom::softgpu {

class Block;

// Calls nest at most this deep; nvcc's recursion in real programs stays far below.
inline constexpr uint32_t kMaxCallDepth = 1024;
// Local memory per thread for the frames of called functions, besides the kernel's own.
inline constexpr uint32_t kStackBytes = 64 * 1024;

// Local memory per thread for alloca, in programs that have it.
inline constexpr uint32_t kAllocaBytes = 64 * 1024;

// One activation of a function by a group of lanes.
struct Frame {
  const Function* function = nullptr;
  Frame* caller = nullptr;
  const CallSite* site = nullptr;
  uint32_t return_pc = 0;
  uint32_t depth = 0;
  uint32_t lanes = 0;       // the lanes that have not returned
  uint32_t local_base = 0;  // where its variables begin in each lane's local memory
  std::unique_ptr<CacheLine[]> registers;
  std::vector<uint32_t> predicates;
  // the end of each lane's alloca memory at the call, if the function allocates
  uint32_t allocated[kLanes] = {};

  [[nodiscard]] std::byte* Register(Ref ref) const {
    return reinterpret_cast<std::byte*>(registers.get()) + ref;
  }
};

// What a lane waits for in a warp-wide instruction.
struct WarpWait {
  uint32_t mask = 0;  // members that must arrive
  uint32_t a = 0, b = 0, c = 0;
  uint64_t wide = 0;  // 64-bit operand
  const Instr* instr = nullptr;
};

// Where the executing lanes of one access point to in this process. Most accesses are regular in
// each half of the warp, because blocks are often 16 threads wide.
inline constexpr uint32_t kHalf = kLanes / 2;
struct Pointers {
  struct Half {
    uint64_t first = 0;       // an address; nothing need lie there when its lane does not execute
    uint64_t step_bytes = 0;  // from lane to lane; 0: all point to the same place
    template <class T>
    [[nodiscard]] T* At(uint32_t i) const {
      return reinterpret_cast<T*>(first + i * step_bytes);
    }
  };
  bool regular = false;  // the halves tell where; otherwise `lane` does
  Half half[2];
  std::byte* lane[kLanes];

  [[nodiscard]] std::byte* At(uint32_t i) const {
    return regular ? half[i / kHalf].At<std::byte>(i % kHalf) : lane[i];
  }
};

// All lanes' local memory.
struct FreeLocalMemory {
  size_t size_bytes = 0;
  void operator()(std::byte* at) const;
};
using LocalMemory = std::unique_ptr<std::byte[], FreeLocalMemory>;

class Warp {
 public:
  Warp(Block& block, uint32_t index);

  // Makes the warp ready for a new block; `lanes` are the threads that exist.
  void Reset(uint32_t lanes);
  // Runs up to `budget` instructions. False when no lane could run (all wait or are done).
  bool Run(uint32_t budget);

  [[nodiscard]] uint32_t live() const { return live_; }
  [[nodiscard]] uint32_t index() const { return index_; }
  [[nodiscard]] Block& block() { return block_; }

  // --- for handlers -------------------------------------------------------------------------
  template <class T>
  [[nodiscard]] const T* Source(Ref ref) const {
    return reinterpret_cast<const T*>(bases_[ref >> 31] + (ref & ~kConstantBit));
  }
  // A lane's register of that size, zero-extended.
  [[nodiscard]] uint64_t SourceBits(Ref ref, uint32_t size_bytes, uint32_t lane) const {
    switch (size_bytes) {
      case 1:
        return Source<uint8_t>(ref)[lane];
      case 2:
        return Source<uint16_t>(ref)[lane];
      case 4:
        return Source<uint32_t>(ref)[lane];
      default:
        return Source<uint64_t>(ref)[lane];
    }
  }
  template <class T>
  [[nodiscard]] T* Destination(Ref ref) const {
    return reinterpret_cast<T*>(const_cast<std::byte*>(bases_[0]) + ref);
  }
  [[nodiscard]] uint32_t& Predicate(uint32_t number) { return predicates_[number]; }
  // Writes the executing lanes' bits.
  void SetPredicate(uint32_t number, uint32_t bits) {
    predicates_[number] = (predicates_[number] & ~exec) | (bits & exec);
  }

  uint32_t exec = 0;    // lanes that execute the current instruction
  uint32_t active = 0;  // lanes of the running group
  uint32_t pc = 0;
  Frame* frame = nullptr;
  uint32_t tid[3][kLanes] = {};
  // the phase of the cluster's barrier when the lane arrived there
  uint64_t cluster_phase[kLanes] = {};

  // Memory (memory.cc). Fills `out` for the executing lanes; false when the fault was set. The size
  // is a power of two.
  bool Resolve(const Instr& in, uint32_t size_bytes, bool write, Pointers* out) {
    return resolver_(*this, in, size_bytes, write, out);
  }
  bool ResolveAddresses(const uint64_t* addresses, uint8_t flags, uint32_t size_bytes, bool write,
                        Pointers* out);
  // One lane's address; nullptr when it may not be touched. Does not check alignment.
  [[nodiscard]] std::byte* PointerFor(uint32_t lane, ptx::Space space, uint64_t address,
                                      uint32_t size_bytes, bool write);
  [[nodiscard]] uint64_t AddressOf(Ref ref, bool has_32_bits, uint32_t lane) const {
    return has_32_bits ? Source<uint32_t>(ref)[lane] : Source<uint64_t>(ref)[lane];
  }
  [[nodiscard]] std::byte* LocalOf(uint32_t lane, uint32_t offset);
  [[nodiscard]] uint32_t local_bytes() const { return local_bytes_; }
  // Where the next alloca of a lane begins, up to local_bytes(). Restored when the lane's function
  // returns.
  uint32_t allocated[kLanes] = {};

  // Control (warp.cc).
  Step Branch(uint32_t taken, uint32_t target) {
    if (target <= pc && patience_ != 0) --patience_;
    if (taken == active) {
      pc = target;
      return Step::kJump;
    }
    return Diverge(taken, target);
  }
  Step BranchEach(const uint32_t* targets);  // one target per executing lane
  Step Exit();
  Step Call(const Function& callee, const CallSite& site);
  Step CallEach(const uint64_t* addresses, const CallSite& site);
  Step Return();
  // The group has waited for something: other lanes run before long.
  void Waited() {
    patience_ -= patience_ > 16 ? 16 : patience_;
    waited_ = true;
  }
  // The group has waited long: other lanes run at once.
  void GiveWay() { patience_ = 0; }
  Step Fault(Outcome::Kind kind, uint64_t address, std::string_view what);

  // Warp-wide instructions (warp_ops.cc): `waits` holds the operands of each executing lane.
  // Finishes the instructions whose members have all arrived; the other lanes wait.
  Step Arrive(const Instr& in, const WarpWait* waits);

  // Barriers (warp.cc): the executing lanes wait; pc has been set behind the instruction.
  Step WaitAtBarrier(const Instr& in);
  // `waiting` lanes try the same instruction again when others have run; the rest goes on.
  Step WaitForCluster(uint32_t waiting);
  // Call when a barrier has released `lanes`.
  void Release(uint32_t lanes) { at_barrier_ &= ~lanes; }
  [[nodiscard]] uint32_t at_barrier() const { return at_barrier_; }
  // The frame of the lane, for results that a barrier writes later.
  [[nodiscard]] Frame* FrameOf(uint32_t lane) { return lane_frame_[lane]; }

 private:
  // Addresses in [begin, end) lie at `base` + address, and lane by lane `stride` further.
  struct Area {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t base = 0;
    uint64_t stride = 0;
  };
  Step Diverge(uint32_t taken, uint32_t target) {
    const uint32_t next = pc + 1;
    if (turn_lanes_ != kAllLanes || target == next || next >= merge_pc_) {
      Park(active & ~taken, next);
      Park(taken, target);
      return Step::kSwitch;
    }
    // Those that are now the lowest in the code go on at once, as Select() would have it.
    const bool forward = target > next;
    const uint32_t wait = forward ? taken : active & ~taken;
    const uint32_t wait_at = forward ? target : next;
    SetLanePc(wait, wait_at);
    merge_pc_ = std::min(merge_pc_, wait_at);
    active &= ~wait;
    ++turn_;
    pc = forward ? next : target;
    return Step::kJump;
  }
  Area AreaOf(uint64_t of, ptx::Space space, bool write);
  using Resolver = bool (*)(Warp&, const Instr&, uint32_t size_bytes, bool write, Pointers*);
  // For a row of all lanes, and for any lanes.
  static bool ResolveRow(Warp& warp, const Instr& in, uint32_t size_bytes, bool write,
                         Pointers* out);
  static bool ResolveAny(Warp& warp, const Instr& in, uint32_t size_bytes, bool write,
                         Pointers* out);
  static Resolver FindResolver();
  static Resolver FindAnyResolver();
  template <class A>
  static bool ResolveHalf(const Area& area, const A* addresses, A offset, uint32_t on,
                          uint32_t size_bytes, Pointers::Half* half);
  template <class A>
  bool ResolveAsRow(const A* addresses, A offset, uint8_t flags, uint32_t size_bytes, bool write,
                    Pointers* out);
  template <class A>
  bool ResolveTogether(const A* addresses, A offset, uint8_t flags, uint32_t size_bytes, bool write,
                       Pointers* out);
  bool ResolveEach(const uint64_t* addresses, uint8_t flags, uint32_t size_bytes, bool write,
                   Pointers* out);
  using Runner = bool (*)(Warp&, uint32_t* budget);
  static bool RunBody(Warp& warp, uint32_t* budget);
  static Runner FindRunner();
  bool RunFor(uint32_t* left);
  bool Select();
  bool SelectInCalls(uint32_t runnable);
  // Running lanes continue at `at` later. If they are all the live ones, nothing is written per
  // lane.
  void Park(uint32_t lanes, uint32_t at) {
    if (lanes == live_) {
      together_ = true;
      pc = at;
    } else {
      SetLanePc(lanes, at);
    }
  }
  void SetLanePc(uint32_t lanes, uint32_t at) {
    // Written with masks, for which the compiler makes no branches.
    const uint64_t turn = turn_;
    ForAll([=, this](uint32_t i) {
      const uint32_t on = IsOn(lanes, i) ? ~0u : 0;
      lane_pc_[i] = (at & on) | (lane_pc_[i] & ~on);
    });
    ForAll([=, this](uint32_t i) {
      const uint64_t on = IsOn(lanes, i) ? ~uint64_t{0} : 0;
      last_run_[i] = (turn & on) | (last_run_[i] & ~on);
    });
  }
  void Enter(Frame* frame);
  Frame* NewFrame(const Function& function);
  void DropFrame(Frame* frame);
  void CopyCallData(uint32_t lanes, uint32_t from, uint32_t to, uint32_t size_bytes);
  Step CallLanes(const Function& callee, const CallSite& site, uint32_t lanes);
  void ReturnLanes(uint32_t lanes);
  // Finishes the warp-wide instructions whose members have all arrived.
  void FinishArrived();
  void Finish(uint32_t lanes);

  static constexpr uint32_t kNever = 0xffffffffu;  // a place behind all code
  static uint32_t AlignUp(uint32_t value, uint32_t align) {
    return (value + align - 1) & ~(align - 1);
  }

  Block& block_;
  uint32_t index_;
  const Resolver resolver_ = FindResolver();
  const Resolver any_resolver_ = FindAnyResolver();
  const Runner runner_ = FindRunner();
  const std::byte* bases_[2] = {nullptr, nullptr};
  uint32_t* predicates_ = nullptr;

  uint32_t live_ = 0;
  uint32_t at_barrier_ = 0;  // lanes that wait for other warps
  uint32_t in_warp_op_ = 0;  // lanes that wait for other lanes
  uint32_t merge_pc_ = 0;    // the running group stops where other lanes wait
  uint32_t patience_ = 0;
  bool give_way_ = false;
  // lanes that were given way to; if all of them, the lowest in the code runs
  uint32_t turn_lanes_ = 0;
  bool waited_ = false;  // since it was chosen, the group did what waiting loops do
  // All live lanes wait at one place for their turn: at pc of frame. lane_pc_ is not written then.
  bool together_ = false;
  alignas(64) uint32_t lane_pc_[kLanes] = {};
  Frame* lane_frame_[kLanes] = {};
  alignas(64) uint64_t last_run_[kLanes] = {};  // the turn in which a lane ran last
  uint64_t turn_ = 0;
  WarpWait waits_[kLanes];

  std::vector<std::unique_ptr<Frame>> frames_;  // all of them, used and spare
  uint32_t frames_in_use_ = 0;
  std::vector<std::vector<Frame*>> spare_;  // by function
  LocalMemory local_;
  uint32_t local_bytes_ = 0;
  uint32_t frames_end_ = 0;  // the end of the functions' frames; alloca's memory lies behind it
  uint32_t local_stride_ = 0;
};

}  // namespace gpuloom::softgpu
