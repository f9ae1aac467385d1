// SPDX-License-Identifier: Apache-2.0
// 32 threads that run together: their registers, their places in the code, and how they diverge.
//
// Lanes at the same place run as one group. Of several groups the one deepest in calls, and there
// the lowest in the code, runs first, which brings lanes together again where branches join. A
// group that loops while others could run gives way after a while, so that a lane may wait for
// another.
//
// Owned by its Block; one thread at a time. Handlers (alu_*.cc and others) are its hands and reach
// its public state; nobody else does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "agent/softgpu/exec/machine/grid.h"
#include "agent/softgpu/exec/machine/program.h"

namespace gpuloom::softgpu {

class Block;

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;
// Calls nest at most this deep; nvcc's recursion of real programs is far below.
inline constexpr uint32_t kMaxCallDepth = 1024;
// Local memory per thread for the frames of called functions, beside the kernel's own.
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
  uint32_t lanes = 0;       // that have not returned
  uint32_t local_base = 0;  // of its variables in each lane's local memory
  std::unique_ptr<std::byte[]> registers;
  std::vector<uint32_t> predicates;
  uint32_t allocated[kLanes] = {};  // where each lane's alloca stood when it came; if it allocates
};

// What a lane waits for in a warp-wide instruction.
struct WarpWait {
  uint32_t mask = 0;  // members that must arrive
  uint32_t a = 0, b = 0, c = 0;
  uint64_t wide = 0;  // 64-bit operand
  const Instr* instr = nullptr;
};

// Where the lanes of one access point to in this process.
struct Pointers {
  std::byte* lane[kLanes];
  bool contiguous = false;  // lane[i] == lane[0] + i * size, all lanes active; only lane[0] is set
};

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
  uint64_t cluster_phase[kLanes] = {};  // of the cluster's barrier, when the lane arrived there

  // Memory (memory.cc). Fills `out` for the executing lanes; false when the fault was set.
  bool Resolve(const Instr& in, uint32_t size_bytes, bool write, Pointers* out);
  // Overwrites the addresses of lanes that do not execute.
  bool ResolveAddresses(uint64_t* addresses, uint8_t flags, uint32_t size_bytes, bool write,
                        Pointers* out);
  // One lane's address: null when it may not be touched. Says nothing about alignment.
  [[nodiscard]] std::byte* PointerFor(uint32_t lane, ptx::Space space, uint64_t address,
                                      uint32_t size_bytes, bool write);
  [[nodiscard]] uint64_t AddressOf(Ref ref, bool has_32_bits, uint32_t lane) const {
    return has_32_bits ? Source<uint32_t>(ref)[lane] : Source<uint64_t>(ref)[lane];
  }
  [[nodiscard]] std::byte* LocalOf(uint32_t lane, uint32_t offset);
  [[nodiscard]] uint32_t local_bytes() const { return local_bytes_; }
  // Where the next alloca of a lane begins: up to local_bytes(). Back where it was when its function
  // returns.
  uint32_t allocated[kLanes] = {};

  // Control (warp.cc).
  Step Branch(uint32_t taken, uint32_t target);
  Step BranchEach(const uint32_t* targets);  // one target per executing lane
  Step Exit();
  Step Call(const Function& callee, const CallSite& site);
  Step CallEach(const uint64_t* addresses, const CallSite& site);
  Step Return();
  // The group has waited for something: turn to other lanes before long.
  void Waited() {
    patience_ -= patience_ > 16 ? 16 : patience_;
    waited_ = true;
  }
  // It has waited long: to others at once.
  void GiveWay() { patience_ = 0; }
  Step Fault(Outcome::Kind kind, uint64_t address, std::string_view what);

  // Warp-wide instructions (warp_ops.cc): `waits` holds what each executing lane brought. Finishes
  // those whose members have all arrived, lets the others wait.
  Step Arrive(const Instr& in, const WarpWait* waits);

  // Barriers (warp.cc): the executing lanes wait; pc has been set behind the instruction.
  Step WaitAtBarrier(const Instr& in);
  // `waiting` lanes try the same instruction again when others have run; the rest goes on.
  Step WaitForCluster(uint32_t waiting);
  // A barrier let `lanes` go.
  void Release(uint32_t lanes) { at_barrier_ &= ~lanes; }
  [[nodiscard]] uint32_t at_barrier() const { return at_barrier_; }
  // Where lane `lane` stands, for results that a barrier writes later.
  [[nodiscard]] Frame* FrameOf(uint32_t lane) { return lane_frame_[lane]; }

 private:
  // Addresses in [begin, end) lie at `base` + address, and lane by lane `stride` further.
  struct Area {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t base = 0;
    uint64_t stride = 0;
  };
  Area AreaOf(uint64_t of, ptx::Space space, bool write);
  bool Select();
  void Park(uint32_t lanes, uint32_t at);
  void Enter(Frame* frame);
  Frame* NewFrame(const Function& function);
  void DropFrame(Frame* frame);
  void CopyCallData(uint32_t lanes, uint32_t from, uint32_t to, uint32_t size_bytes);
  Step CallLanes(const Function& callee, const CallSite& site, uint32_t lanes);
  void ReturnLanes(uint32_t lanes);
  // Finishes the warp-wide instructions whose members have all arrived.
  void FinishArrived();
  void Finish(uint32_t lanes);

  Block& block_;
  uint32_t index_;
  const std::byte* bases_[2] = {nullptr, nullptr};
  uint32_t* predicates_ = nullptr;

  uint32_t live_ = 0;
  uint32_t at_barrier_ = 0;  // lanes that wait for other warps
  uint32_t in_warp_op_ = 0;  // lanes that wait for other lanes
  uint32_t merge_pc_ = 0;    // the running group stops where other lanes wait
  uint32_t patience_ = 0;
  bool give_way_ = false;
  uint32_t turn_lanes_ = 0;  // that were given way to; all of them: the lowest in the code runs
  bool waited_ = false;      // since it was chosen, the group did what waiting loops do
  uint32_t lane_pc_[kLanes] = {};
  Frame* lane_frame_[kLanes] = {};
  uint64_t last_run_[kLanes] = {};
  uint64_t turn_ = 0;
  WarpWait waits_[kLanes];

  std::vector<std::unique_ptr<Frame>> frames_;  // all, used and spare
  std::vector<std::vector<Frame*>> spare_;      // by function
  std::unique_ptr<std::byte[]> local_;
  uint32_t local_bytes_ = 0;
  uint32_t frames_end_ = 0;  // of the functions' frames; behind it lies what alloca gives
  uint32_t local_stride_ = 0;
};

}  // namespace gpuloom::softgpu
