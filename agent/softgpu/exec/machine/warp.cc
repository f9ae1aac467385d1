// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/machine/warp.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// Backward branches that a group may take while others wait for their turn.
constexpr uint32_t kPatience = 1024;
constexpr uint32_t kNever = 0xffffffffu;

uint32_t Align(uint32_t value, uint32_t align) { return (value + align - 1) & ~(align - 1); }

}  // namespace

Warp::Warp(Block& block, uint32_t index) : block_(block), index_(index) {
  const Grid& grid = block.run().grid;
  const Program& program = grid.module->program();
  bases_[1] = program.constants.data();
  spare_.resize(program.functions.size());
  const Function& kernel = *grid.kernel->code;
  frames_end_ = Align(kernel.frame_bytes, 16) + (kernel.calls.empty() ? 0 : kStackBytes);
  local_bytes_ = frames_end_ + (program.allocates ? kAllocaBytes : 0);
  // The odd line keeps the lanes' equal offsets out of each other's cache set.
  local_stride_ = Align(local_bytes_, 64) + 64;
  if (local_bytes_ != 0) local_.reset(new std::byte[size_t{local_stride_} * kLanes]);
  const Dim3& size = grid.block;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t thread = index * kLanes + lane;
    tid[0][lane] = thread % size.x;
    tid[1][lane] = thread / size.x % size.y;
    tid[2][lane] = thread / size.x / size.y;
  }
}

void Warp::Reset(uint32_t lanes) {
  for (const std::unique_ptr<Frame>& used : frames_) {
    if (used->lanes != 0) DropFrame(used.get());
  }
  live_ = lanes;
  at_barrier_ = in_warp_op_ = 0;
  turn_lanes_ = kAllLanes;
  patience_ = kPatience;
  give_way_ = false;
  turn_ = 0;
  Frame* root = NewFrame(*block_.run().grid.kernel->code);
  root->caller = nullptr;
  root->site = nullptr;
  root->depth = 0;
  root->local_base = 0;
  root->lanes = lanes;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    lane_pc_[lane] = 0;
    lane_frame_[lane] = root;
    last_run_[lane] = 0;
    allocated[lane] = frames_end_;
  }
}

Frame* Warp::NewFrame(const Function& function) {
  std::vector<Frame*>& spare = spare_[function.index];
  if (!spare.empty()) {
    Frame* frame = spare.back();
    spare.pop_back();
    return frame;
  }
  frames_.push_back(std::make_unique<Frame>());
  Frame* frame = frames_.back().get();
  frame->function = &function;
  // Zeros at first: a program that reads what it never wrote does the same thing every time.
  frame->registers = std::make_unique<std::byte[]>(std::max<uint32_t>(function.register_bytes, 1));
  frame->predicates.assign(std::max<uint32_t>(function.predicate_count, 1), 0);
  return frame;
}

void Warp::DropFrame(Frame* frame) {
  frame->lanes = 0;
  spare_[frame->function->index].push_back(frame);
}

void Warp::Enter(Frame* next) {
  frame = next;
  bases_[0] = next->registers.get();
  predicates_ = next->predicates.data();
}

void Warp::Park(uint32_t lanes, uint32_t at) {
  ForEach(lanes, [&](uint32_t lane) { lane_pc_[lane] = at; });
}

bool Warp::Select() {
  if (in_warp_op_ != 0) FinishArrived();
  const uint32_t runnable = live_ & ~at_barrier_ & ~in_warp_op_;
  if (runnable == 0) return false;
  if (give_way_) turn_lanes_ = kAllLanes;
  // Lanes whose turn it is keep it, also when they diverge, until they wait or have looped for long.
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
  ++turn_;
  ForEach(runnable, [&](uint32_t lane) {
    if (lane_frame_[lane] != frame) return;
    if (lane_pc_[lane] == pc) {
      active |= 1u << lane;
      last_run_[lane] = turn_;
    } else if (lane_pc_[lane] > pc) {
      merge_pc_ = std::min(merge_pc_, lane_pc_[lane]);
    }
  });
  if (give_way_) {
    give_way_ = false;
    turn_lanes_ = active;
  } else if (turn_lanes_ != kAllLanes) {
    turn_lanes_ |= active;
  }
  return true;
}

bool Warp::Run(uint32_t budget) {
  if (patience_ == 0) patience_ = kPatience;
  waited_ = false;
  if (!Select()) return false;
  while (true) {
    const Instr* const code = frame->function->code.data();
    Step step = Step::kNext;
    while (true) {
      const Instr& in = code[pc];
      exec = active;
      if (in.guard != kNoGuard) {
        const uint32_t bits = predicates_[in.guard];
        exec &= in.guard_negated ? ~bits : bits;
      }
      step = exec != 0 ? in.run(*this, in) : Step::kNext;
      if (step == Step::kNext) {
        ++pc;
      } else if (step != Step::kJump || frame->function->code.data() != code) {
        break;
      }
      if (pc >= merge_pc_ || patience_ == 0 || --budget == 0) break;
    }
    if (step == Step::kFault) return true;
    if (step != Step::kSwitch) {
      if (step == Step::kJump && pc < merge_pc_ && patience_ != 0 && budget > 1) {
        --budget;  // into another function
        continue;
      }
      Park(active, pc);
      if (patience_ == 0) {
        give_way_ = true;
        block_.run().waited |= waited_;
        return true;
      }
      if (budget == 0) return true;
    }
    if (patience_ == 0) {
      give_way_ = true;
      block_.run().waited |= waited_;
      return true;
    }
    if (budget <= 1 || !Select()) return true;
    --budget;
  }
}

Step Warp::Branch(uint32_t taken, uint32_t target) {
  if (target <= pc && patience_ != 0) --patience_;
  if (taken == active) {
    pc = target;
    return Step::kJump;
  }
  Park(active & ~taken, pc + 1);
  Park(taken, target);
  return Step::kSwitch;
}

Step Warp::BranchEach(const uint32_t* targets) {
  Park(active & ~exec, pc + 1);
  ForEach(exec, [&](uint32_t lane) {
    if (targets[lane] <= pc && patience_ != 0) --patience_;
    lane_pc_[lane] = targets[lane];
  });
  return Step::kSwitch;
}

Step Warp::Exit() {
  const uint32_t ended = exec;
  Park(active & ~ended, pc + 1);
  live_ &= ~ended;
  ForEach(ended, [&](uint32_t lane) {
    for (Frame* at = lane_frame_[lane]; at != nullptr;) {
      Frame* const caller = at->caller;
      at->lanes &= ~(1u << lane);
      if (at->lanes == 0) DropFrame(at);
      at = caller;
    }
  });
  block_.OnExit();
  return Step::kSwitch;
}

void Warp::CopyCallData(uint32_t lanes, uint32_t from, uint32_t to, uint32_t size_bytes) {
  ForEach(lanes,
          [&](uint32_t lane) { std::memcpy(LocalOf(lane, to), LocalOf(lane, from), size_bytes); });
}

Step Warp::Call(const Function& callee, const CallSite& site) {
  Park(active & ~exec, pc + 1);
  return CallLanes(callee, site, exec);
}

Step Warp::CallLanes(const Function& callee, const CallSite& site, uint32_t lanes) {
  const uint32_t base = frame->local_base + Align(frame->function->frame_bytes, 16);
  if (frame->depth + 1 >= kMaxCallDepth || base + callee.frame_bytes > frames_end_) {
    return Fault(Outcome::kStackOverflow, 0, "the call stack is exhausted");
  }
  if (callee.params.size() != site.args.size() || callee.returns.size() != site.returns.size()) {
    return Fault(Outcome::kInvalidPc, 0, "a call does not fit the function that it reaches");
  }
  Frame* const inner = NewFrame(callee);
  inner->caller = frame;
  inner->site = &site;
  inner->return_pc = pc + 1;
  inner->depth = frame->depth + 1;
  inner->local_base = base;
  if (callee.allocates) {
    ForEach(lanes, [&](uint32_t lane) { inner->allocated[lane] = allocated[lane]; });
  }
  inner->lanes = lanes;
  for (size_t i = 0; i < site.args.size(); ++i) {
    CopyCallData(lanes, frame->local_base + site.args[i].offset_bytes,
                 base + callee.params[i].offset_bytes,
                 std::min(site.args[i].size_bytes, callee.params[i].size_bytes));
  }
  ForEach(lanes, [&](uint32_t lane) {
    lane_frame_[lane] = inner;
    lane_pc_[lane] = 0;
  });
  if (lanes != active) return Step::kSwitch;
  Enter(inner);
  pc = 0;
  merge_pc_ = kNever;
  return Step::kJump;
}

Step Warp::CallEach(const uint64_t* addresses, const CallSite& site) {
  const std::vector<Function>& functions = block_.run().grid.module->program().functions;
  Frame* const from = frame;
  uint32_t rest = exec;
  Park(active & ~exec, pc + 1);
  active = exec;
  while (rest != 0) {
    const uint64_t address = addresses[std::countr_zero(rest)];
    uint32_t same = 0;
    ForEach(rest, [&](uint32_t lane) { same |= (addresses[lane] == address ? 1u : 0u) << lane; });
    rest &= ~same;
    const uint64_t index = (address & ~kWindowMask) / 16;
    if ((address & kWindowMask) != kFunctionWindow || address % 16 != 0 || index == 0 ||
        index > functions.size() || functions[index - 1].is_entry ||
        functions[index - 1].code.empty()) {
      return Fault(Outcome::kInvalidPc, address, "an indirect call to what is no function");
    }
    if (CallLanes(functions[index - 1], site, same) == Step::kFault) return Step::kFault;
    if (frame != from) {  // CallLanes() went on inside the callee: all lanes go there
      return Step::kJump;
    }
    active &= ~same;  // they have left: the next call must not park them here
  }
  return Step::kSwitch;
}

void Warp::ReturnLanes(uint32_t lanes) {
  Frame* const inner = frame;
  Frame* const outer = inner->caller;
  for (size_t i = 0; i < inner->site->returns.size(); ++i) {
    const Slot& to = inner->site->returns[i];
    const Slot& from = inner->function->returns[i];
    CopyCallData(lanes, inner->local_base + from.offset_bytes, outer->local_base + to.offset_bytes,
                 std::min(to.size_bytes, from.size_bytes));
  }
  if (inner->function->allocates) {
    ForEach(lanes, [&](uint32_t lane) { allocated[lane] = inner->allocated[lane]; });
  }
  const uint32_t at = inner->return_pc;
  ForEach(lanes, [&](uint32_t lane) {
    lane_frame_[lane] = outer;
    lane_pc_[lane] = at;
  });
  inner->lanes &= ~lanes;
  if (inner->lanes == 0) DropFrame(inner);
}

Step Warp::Return() {
  if (frame->caller == nullptr) return Exit();
  Park(active & ~exec, pc + 1);
  ReturnLanes(exec);
  return Step::kSwitch;
}

Step Warp::WaitAtBarrier(const Instr& in) {
  const uint32_t* numbers = Source<uint32_t>(in.a);
  const uint32_t* counts = Source<uint32_t>(in.b);
  const bool waits = (in.extra & kBarrierOpMask) != kBarrierArrive;
  const uint32_t lanes = exec;
  uint32_t rest = lanes;
  if (waits) {
    Park(active, pc + 1);
    at_barrier_ |= lanes;
  }
  while (rest != 0) {
    const uint32_t first = static_cast<uint32_t>(std::countr_zero(rest));
    uint32_t same = 0;
    ForEach(rest,
            [&](uint32_t lane) { same |= (numbers[lane] == numbers[first] ? 1u : 0u) << lane; });
    rest &= ~same;
    if (!block_.Arrive(*this, in, same, numbers[first], counts[first])) {
      return Fault(Outcome::kIllegalInstruction, 0, "a barrier's number or thread count is wrong");
    }
  }
  return waits ? Step::kSwitch : Step::kNext;
}

Step Warp::WaitForCluster(uint32_t waiting) {
  patience_ = 0;
  if (waiting == active) return Step::kJump;  // to the same instruction, in the next turn
  Park(active & ~waiting, pc + 1);
  Park(waiting, pc);
  return Step::kSwitch;
}

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
