// SPDX-License-Identifier: Apache-2.0
// The scheduler of a warp's lanes: which of them run, for how long, and where they meet again.
//
// A lane's place is lane_frame_ and lane_pc_. While its group runs, `pc` counts and lane_pc_ is out
// of date: every way out of the running group goes through Park() or SetLanePc(), which write it.
// Select() chooses the next group from what stands there.
#include "agent/softgpu/exec/machine/warp.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// Backward branches that a group may take while others wait for their turn. Short, so that a lane
// that spins on another lane's flag costs little; long, so that ordinary loops, which come together
// at their end, are rarely torn apart.
constexpr uint32_t kPatience = 1024;

// Below, clearing memory costs less than asking the kernel for pages.
constexpr size_t kMappedBytes = 128 << 10;

// Zeros at first: a program that reads what it never wrote finds no bytes of the host's heap. The
// pages of a large one come as they are touched, for most programs never use their stack.
LocalMemory MakeLocalMemory(size_t size_bytes) {
  if (size_bytes < kMappedBytes) return LocalMemory(new std::byte[size_bytes](), {size_bytes});
  void* const pages =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw std::bad_alloc();
  return LocalMemory(static_cast<std::byte*>(pages), {size_bytes});
}

}  // namespace

void FreeLocalMemory::operator()(std::byte* at) const {
  if (size_bytes < kMappedBytes) {
    delete[] at;
  } else {
    munmap(at, size_bytes);
  }
}

Warp::Warp(Block& block, uint32_t index) : block_(block), index_(index) {
  const Grid& grid = block.run().grid;
  const Program& program = grid.module->program();
  bases_[1] = reinterpret_cast<const std::byte*>(program.constants.data());
  spare_.resize(program.functions.size());
  const Function& kernel = *grid.kernel->code;
  // Only a kernel that calls something pays for a call stack: local memory is made for each lane of
  // each resident warp.
  frames_end_ = AlignUp(kernel.frame_bytes, 16) + (kernel.calls.empty() ? 0 : kStackBytes);
  local_bytes_ = frames_end_ + (program.allocates ? kAllocaBytes : 0);
  // The odd line keeps the lanes' equal offsets out of each other's cache set.
  local_stride_ = AlignUp(local_bytes_, 64) + 64;
  if (local_bytes_ != 0) local_ = MakeLocalMemory(size_t{local_stride_} * kLanes);
  const Dim3& size = grid.block;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t thread = index * kLanes + lane;
    tid[0][lane] = thread % size.x;
    tid[1][lane] = thread / size.x % size.y;
    tid[2][lane] = thread / size.x / size.y;
  }
}

void Warp::Reset(uint32_t lanes) {
  // A block that ended has left no frame in use; one that was given up may have.
  for (const std::unique_ptr<Frame>& used : frames_) {
    if (used->lanes != 0) DropFrame(used.get());
  }
  live_ = lanes;
  at_barrier_ = in_warp_op_ = 0;
  turn_lanes_ = kAllLanes;
  patience_ = kPatience;
  give_way_ = false;
  turn_ = 0;
  // The kernel's own frame. It is in use from here until the last lane has ended, so frames_in_use_
  // is 1 exactly when no lane is inside a call.
  Frame* root = NewFrame(*block_.run().grid.kernel->code);
  root->caller = nullptr;
  root->site = nullptr;
  root->depth = 0;
  root->local_base = 0;
  root->lanes = lanes;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    lane_frame_[lane] = root;
    allocated[lane] = frames_end_;
  }
  Enter(root);
  active = lanes;
  Park(lanes, 0);
}

// Frames are kept by function and used again, because a call in a loop would otherwise allocate its
// registers each time. Used ones are not cleared: what a function reads before it writes is
// undefined in PTX.
Frame* Warp::NewFrame(const Function& function) {
  ++frames_in_use_;
  std::vector<Frame*>& spare = spare_[function.index];
  if (!spare.empty()) {
    Frame* frame = spare.back();
    spare.pop_back();
    return frame;
  }
  frames_.push_back(std::make_unique<Frame>());
  Frame* frame = frames_.back().get();
  frame->function = &function;
  // Zeros at first: a program that reads what it never wrote finds no bytes of the host's heap.
  frame->registers = std::make_unique<CacheLine[]>(function.register_bytes / sizeof(CacheLine) + 1);
  frame->predicates.assign(std::max<uint32_t>(function.predicate_count, 1), 0);
  return frame;
}

void Warp::DropFrame(Frame* frame) {
  --frames_in_use_;
  frame->lanes = 0;
  spare_[frame->function->index].push_back(frame);
}

// Sets what an instruction's operands refer to: the handlers find registers and predicates only
// through these pointers.
void Warp::Enter(Frame* next) {
  frame = next;
  bases_[0] = next->Register(0);
  predicates_ = next->predicates.data();
}

// Chooses the lanes that run next, and where they stop (merge_pc_): at the lowest place above
// theirs at which other lanes of the same frame wait. Running the lowest place first is what brings
// lanes together again: code is laid out so that branches join further down.
bool Warp::Select() {
  if (in_warp_op_ != 0) FinishArrived();
  const uint32_t runnable = live_ & ~at_barrier_ & ~in_warp_op_;
  if (runnable == 0) return false;
  // The usual case, without a look at the lanes' places: nobody has diverged.
  if (together_) {
    together_ = false;
    if (runnable == live_) {
      active = live_;
      merge_pc_ = kNever;
      ++turn_;
      turn_lanes_ = kAllLanes;
      give_way_ = false;
      return true;
    }
    // Some of them wait at a barrier or in a warp-wide instruction, so each needs its place.
    SetLanePc(live_, pc);
  }
  ++turn_;
  // Lanes in different frames, or a group that must not be chosen again, need the slow way.
  if (give_way_ || frames_in_use_ != 1) return SelectInCalls(runnable);
  if (Frame* const only = lane_frame_[std::countr_zero(runnable)]; frame != only) Enter(only);
  // Lanes whose turn it is keep it, also when they diverge, until they wait or have looped for
  // long.
  if ((runnable & turn_lanes_) == 0) turn_lanes_ = kAllLanes;
  const uint32_t candidates = runnable & turn_lanes_;
  uint32_t lowest = kNever;
  // Masks of the lanes that do not count make their places the highest, without branches.
  ForAll([&](uint32_t i) {
    const uint32_t off = IsOn(candidates, i) ? 0 : kNever;
    lowest = std::min(lowest, lane_pc_[i] | off);
  });
  // The place that the group must not pass without those that wait there.
  uint32_t next = kNever;
  ForAll([&](uint32_t i) {
    const uint32_t at = lane_pc_[i];
    const uint32_t off = IsOn(runnable, i) ? 0 : kNever;
    const uint32_t passed = at > lowest ? 0 : kNever;
    next = std::min(next, at | off | passed);
  });
  active = runnable & MaskOf([&](uint32_t i) { return lane_pc_[i] == lowest; });
  pc = lowest;
  merge_pc_ = next;
  // Lanes that the chosen ones have met share their turn from here on.
  if (turn_lanes_ != kAllLanes) turn_lanes_ |= active;
  return true;
}

// The same when lanes are inside of different calls, or the running group gives way. Deeper calls
// go first, so that those who called come back to the others before the caller goes on. Who gives
// way is chosen last: of all candidates the lanes run that have not run for longest, so each gets
// its turn however the code is laid out.
[[gnu::noinline]] bool Warp::SelectInCalls(uint32_t runnable) {
  if (give_way_) turn_lanes_ = kAllLanes;
  uint32_t candidates = runnable & turn_lanes_;
  if (candidates == 0) {
    turn_lanes_ = kAllLanes;
    candidates = runnable;
  }
  auto leader = static_cast<uint32_t>(std::countr_zero(candidates));
  if (give_way_) {
    ForEach(candidates, [&](uint32_t lane) {
      if (last_run_[lane] < last_run_[leader]) leader = lane;
    });
  } else {
    ForEach(candidates, [&](uint32_t lane) {
      const uint32_t depth = lane_frame_[lane]->depth;
      const uint32_t best = lane_frame_[leader]->depth;
      // Depths are equal for two recursive activations side by side, too; places compare only
      // inside of one frame.
      if (depth > best || (depth == best && lane_frame_[lane] == lane_frame_[leader] &&
                           lane_pc_[lane] < lane_pc_[leader])) {
        leader = lane;
      }
    });
  }
  Enter(lane_frame_[leader]);
  pc = lane_pc_[leader];
  active = 0;
  merge_pc_ = kNever;
  ForEach(runnable, [&](uint32_t lane) {
    if (lane_frame_[lane] != frame) return;
    if (lane_pc_[lane] == pc) {
      active |= 1u << lane;
    } else if (lane_pc_[lane] > pc) {
      merge_pc_ = std::min(merge_pc_, lane_pc_[lane]);
    }
  });
  // From here on only those lanes may run, also when they diverge, until they wait or have looped
  // for long: else the lowest place, a spinning lane's, would win again at once.
  if (give_way_) {
    give_way_ = false;
    turn_lanes_ = active;
  } else if (turn_lanes_ != kAllLanes) {
    turn_lanes_ |= active;
  }
  return true;
}

bool Warp::Run(uint32_t budget) {
  const uint32_t before = budget;
  const bool ran = runner_(*this, &budget);
  block_.run().instructions += before - budget;
  return ran;
}

// One instantiation for each vector level: what the loop inlines is compiled for it.
bool Warp::RunBody(Warp& warp, uint32_t* budget) { return warp.RunFor(budget); }
Warp::Runner Warp::FindRunner() { return ForVectors<RunBody>(); }

// The interpreter's loop. `budget` falls by one for each instruction. The inner loop keeps the
// place in a local variable and writes `pc` before each handler, which may need it for a fault or a
// call; it ends where the group meets others (merge_pc_), gives way, has used up its budget or has
// left its function.
bool Warp::RunFor(uint32_t* left) {
  uint32_t& budget = *left;
  // The last run ended because the group had looped for long; now it is another's turn, or there is
  // no other.
  if (patience_ == 0) patience_ = kPatience;
  waited_ = false;
  if (!Select()) return false;
  while (true) {
    const Instr* const code = frame->function->code.data();
    Step step = Step::kNext;
    uint32_t at = pc;
    while (true) {
      const Instr& in = code[at];
      uint32_t on = active;
      if (in.guard != kNoGuard) {
        const uint32_t bits = predicates_[in.guard];
        on &= in.guard_negated ? ~bits : bits;
      }
      pc = at;
      exec = on;
      // An instruction whose guard is false in all lanes still counts as one and has no effect.
      step = on != 0 ? in.run(*this, in) : Step::kNext;
      if (step == Step::kNext) {
        ++at;
      } else if (step == Step::kJump) {
        at = pc;
        if (frame->function->code.data() != code) break;
      } else {
        break;
      }
      if (at >= merge_pc_ || patience_ == 0 || --budget == 0) break;
    }
    if (step == Step::kFault) return true;
    if (step != Step::kSwitch) {
      pc = at;
      if (step == Step::kJump && pc < merge_pc_ && patience_ != 0 && budget > 1) {
        --budget;  // into another function
        continue;
      }
      Park(active, pc);
      // Reported only together with giving way: a turn that got work done is no reason to leave the
      // processor to other threads.
      if (patience_ == 0) {
        give_way_ = true;
        block_.run().waited |= waited_;
        return true;
      }
      if (budget == 0) return true;
    }
    // A handler that parked its lanes (kSwitch) may have used up the group's patience as well.
    if (patience_ == 0) {
      give_way_ = true;
      block_.run().waited |= waited_;
      return true;
    }
    if (budget <= 1 || !Select()) return true;
    --budget;
  }
}

// brx.idx: each lane may go elsewhere, so all of them are placed one by one. A jump backward costs
// patience as in Branch().
Step Warp::BranchEach(const uint32_t* targets) {
  Park(active & ~exec, pc + 1);
  ForEach(exec, [&](uint32_t lane) {
    if (targets[lane] <= pc && patience_ != 0) --patience_;
    lane_pc_[lane] = targets[lane];
    last_run_[lane] = turn_;
  });
  return Step::kSwitch;
}

Step Warp::Exit() {
  const uint32_t ended = exec;
  Park(active & ~ended, pc + 1);
  live_ &= ~ended;
  // All lanes of the kernel's own frame end together, as nearly always: there is no chain of
  // callers to walk.
  if (frame->caller == nullptr && frame->lanes == ended) {
    DropFrame(frame);
    block_.OnExit(*this, ended);
    return Step::kSwitch;
  }
  // The lanes end inside calls: every activation below loses them, and goes when it has no lane
  // left.
  ForEach(ended, [&](uint32_t lane) {
    for (Frame* at = lane_frame_[lane]; at != nullptr;) {
      Frame* const caller = at->caller;
      at->lanes &= ~(1u << lane);
      if (at->lanes == 0) DropFrame(at);
      at = caller;
    }
  });
  block_.OnExit(*this, ended);
  return Step::kSwitch;
}

// Lanes may name different barriers, so the executing ones arrive in groups of equal numbers. They
// are put aside before anybody arrives, because the last to arrive releases all that wait,
// themselves included.
Step Warp::WaitAtBarrier(const Instr& in) {
  const uint32_t* numbers = Source<uint32_t>(in.a);
  const uint32_t* counts = Source<uint32_t>(in.b);
  const bool waits = (in.extra & kBarrierOpMask) != kBarrierArrive;
  const uint32_t here = pc;
  const uint32_t lanes = exec;
  uint32_t rest = lanes;
  if (waits) {
    Park(active, pc + 1);
    at_barrier_ |= lanes;
  }
  while (rest != 0) {
    const uint32_t first = static_cast<uint32_t>(std::countr_zero(rest));
    const uint32_t number = numbers[first];
    const uint32_t same = rest & MaskOf([=](uint32_t i) { return numbers[i] == number; });
    rest &= ~same;
    if (!block_.Arrive(*this, in, same, numbers[first], counts[first])) {
      // The fault names the instruction at pc, which Park() may have moved.
      pc = here;
      return Fault(Outcome::kIllegalInstruction, 0, "a barrier's number or thread count is wrong");
    }
  }
  return waits ? Step::kSwitch : Step::kNext;
}

// Cluster barriers are polled: blocks of a cluster take turns on one thread, so a waiting lane
// executes the same instruction again when the others have run.
Step Warp::WaitForCluster(uint32_t waiting) {
  patience_ = 0;
  if (waiting == active) return Step::kJump;  // to the same instruction, in the next turn
  Park(active & ~waiting, pc + 1);
  Park(waiting, pc);
  return Step::kSwitch;
}

// The first fault counts, should one instruction make several.
Step Warp::Fault(Outcome::Kind kind, uint64_t address, std::string_view what) {
  Outcome& outcome = block_.run().outcome;
  if (outcome.kind != Outcome::kOk) return Step::kFault;
  outcome.kind = kind;
  outcome.address = address;
  outcome.detail = "kernel " + block_.run().grid.kernel->name;
  if (frame->function->name != block_.run().grid.kernel->name) {
    outcome.detail += ", in " + frame->function->name;
  }
  outcome.detail += ", ptx line " + std::to_string(frame->function->code[pc].line) + ": ";
  outcome.detail += what;
  return Step::kFault;
}

}  // namespace gpuloom::softgpu
