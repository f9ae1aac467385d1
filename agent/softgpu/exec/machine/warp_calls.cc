// SPDX-License-Identifier: Apache-2.0
// Calls: frames are made and left, and parameters copied between their local memory.
//
// PTX passes parameters in .param variables. The caller's lie in its frame of local memory, the
// callee's at the beginning of its own, which follows the caller's: so a call copies, and no two
// activations share bytes.
#include <algorithm>
#include <bit>
#include <cstring>

#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/warp.h"

namespace gpuloom::softgpu {

void Warp::CopyCallData(uint32_t lanes, uint32_t from, uint32_t to, uint32_t size_bytes) {
  ForEach(lanes,
          [&](uint32_t lane) { std::memcpy(LocalOf(lane, to), LocalOf(lane, from), size_bytes); });
}

// The lanes that do not call wait behind the call, and meet the others there when those return.
Step Warp::Call(const Function& callee, const CallSite& site) {
  Park(active & ~exec, pc + 1);
  return CallLanes(callee, site, exec);
}

// Moves `lanes`, all in `frame`, into a new activation. The sizes are checked here and not only
// when the module is loaded: an indirect call reaches whatever function the pointer names.
Step Warp::CallLanes(const Function& callee, const CallSite& site, uint32_t lanes) {
  const uint32_t base = frame->local_base + AlignUp(frame->function->frame_bytes, 16);
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
  // Return() gives back what the callee takes by alloca.
  if (callee.allocates) {
    ForEach(lanes, [&](uint32_t lane) { inner->allocated[lane] = allocated[lane]; });
  }
  inner->lanes = lanes;
  for (size_t i = 0; i < site.args.size(); ++i) {
    CopyCallData(lanes, frame->local_base + site.args[i].offset_bytes,
                 base + callee.params[i].offset_bytes,
                 // In an indirect call the two sizes may differ. The shorter one stays inside both
                 // frames.
                 std::min(site.args[i].size_bytes, callee.params[i].size_bytes));
  }
  // The callee's lanes are placed before anything is chosen: only when all active lanes call
  // together, as nearly always, does the warp go on inside without another Select().
  ForEach(lanes, [&](uint32_t lane) { lane_frame_[lane] = inner; });
  SetLanePc(lanes, 0);
  if (lanes != active) return Step::kSwitch;
  Enter(inner);
  pc = 0;
  merge_pc_ = kNever;
  return Step::kJump;
}

// Lanes may call different functions: each group of equal addresses enters its own. Function
// addresses are made by the decoder, kFunctionWindow and 16 times the index plus one, so anything
// else is no function; neither is a kernel, or one without code.
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
    if (frame != from) {  // CallLanes() continued inside the callee: all lanes continue there
      return Step::kJump;
    }
    active &= ~same;  // they have left: the next call must not park them here
  }
  return Step::kSwitch;
}

// Results go back before the frame goes: the callee's local memory is used again by the next call.
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
  ForEach(lanes, [&](uint32_t lane) { lane_frame_[lane] = outer; });
  SetLanePc(lanes, inner->return_pc);
  inner->lanes &= ~lanes;
  if (inner->lanes == 0) DropFrame(inner);
}

// At a kernel's own level ret ends the thread.
Step Warp::Return() {
  if (frame->caller == nullptr) return Exit();
  Frame* const outer = frame->caller;
  const uint32_t at = frame->return_pc;
  Park(active & ~exec, pc + 1);
  ReturnLanes(exec);
  // All live lanes have returned at once: they continue at one place without being looked for.
  if (exec == live_) {
    Enter(outer);
    Park(exec, at);
  }
  return Step::kSwitch;
}

}  // namespace gpuloom::softgpu
