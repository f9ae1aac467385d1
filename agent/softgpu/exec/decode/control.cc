// SPDX-License-Identifier: Apache-2.0
// Branches, calls and the end of threads.
#include <thread>

#include "agent/softgpu/exec/decode/decoder.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/system_call.h"

namespace gpuloom::softgpu {
namespace {

Step Bra(Warp& warp, const Instr& in) { return warp.Branch(warp.exec, in.target); }

// Targets lie in a table of the function, filled when it is patched. An index beyond it is
// undefined in PTX; here it is a fault.
Step Brx(Warp& warp, const Instr& in) {
  const uint32_t* index = warp.Source<uint32_t>(in.a);
  const std::vector<uint32_t>& table = warp.frame->function->tables[in.target];
  uint32_t targets[kLanes] = {};
  bool outside = false;
  ForEach(warp.exec, [&](uint32_t lane) {
    outside |= index[lane] >= table.size();
    if (!outside) targets[lane] = table[index[lane]];
  });
  if (outside) return warp.Fault(Outcome::kInvalidPc, 0, "a branch outside of its list of targets");
  return warp.BranchEach(targets);
}

// The callee's number is split: Instr::target is the call site's.
Step CallDirect(Warp& warp, const Instr& in) {
  const Program& program = warp.block().run().grid.module->program();
  const Function* const from = warp.frame->function;
  return warp.Call(program.functions[in.extra | (static_cast<uint32_t>(in.imm) << 16)],
                   from->calls[in.target]);
}

Step CallIndirect(Warp& warp, const Instr& in) {
  return warp.CallEach(warp.Source<uint64_t>(in.a), warp.frame->function->calls[in.target]);
}

Step Ret(Warp& warp, const Instr&) { return warp.Return(); }
Step Exit(Warp& warp, const Instr&) { return warp.Exit(); }
Step Trap(Warp& warp, const Instr&) { return warp.Fault(Outcome::kTrap, 0, "trap"); }
Step Nothing(Warp&, const Instr&) { return Step::kNext; }

// A lane that sleeps waits for something. The shortest sleep of the lanes counts, so that none
// oversleeps.
Step Nanosleep(Warp& warp, const Instr& in) {
  // Sleeping for less costs more than it gives; a millisecond is what the instruction allows.
  constexpr uint32_t kShortNs = 50'000;
  constexpr uint32_t kLongNs = 1'000'000;
  uint32_t least = kLongNs;
  const uint32_t* duration_ns = warp.Source<uint32_t>(in.a);
  ForEach(warp.exec, [&](uint32_t lane) {
    if (duration_ns[lane] < least) least = duration_ns[lane];
  });
  // Another thread of the host may be what it waits for.
  if (least < kShortNs) {
    std::this_thread::yield();
    warp.Waited();
  } else {
    // The host's thread sleeps, and with it all blocks that share it; other lanes and warps have
    // their turn before this one asks again.
    std::this_thread::sleep_for(std::chrono::nanoseconds(least));
    warp.GiveWay();
  }
  return Step::kNext;
}

// The parameters of a call are variables in the caller's frame.
bool ReadSlots(Decoder& decoder, const ptx::Operand& list, std::vector<Slot>* slots) {
  for (const ptx::Operand& operand : list.parts) {
    const Symbol symbol = decoder.Lookup(operand.name);
    if (operand.kind != ptx::Operand::kName || symbol.kind != Symbol::kFrame) {
      return decoder.Fail("unsupported call argument, only .param variables are");
    }
    slots->push_back(
        {static_cast<uint32_t>(symbol.value), static_cast<uint32_t>(symbol.size_bytes)});
  }
  return true;
}

bool CheckCall(Decoder& decoder, const ptx::FunctionTree& callee, const CallSite& site) {
  bool fits =
      callee.params.size() == site.args.size() && callee.returns.size() == site.returns.size();
  for (size_t i = 0; fits && i < site.args.size(); ++i) {
    fits = callee.params[i].size_bytes == site.args[i].size_bytes;
  }
  for (size_t i = 0; fits && i < site.returns.size(); ++i) {
    fits = callee.returns[i].size_bytes == site.returns[i].size_bytes;
  }
  return fits || decoder.Fail("the call does not fit '" + std::string(callee.name) + "'");
}

}  // namespace

bool DecodeBra(Decoder& decoder, Op& op) {
  op.mods.Take("uni");
  if (op.count() != 1 || op[0].kind != ptx::Operand::kName) return false;
  Instr in;
  in.run = ForVectors<Bra>();
  return decoder.BranchTo(op[0].name, in);
}

bool DecodeBrx(Decoder& decoder, Op& op) {
  op.mods.Take("uni");
  if (!op.mods.Take("idx") || op.count() != 2) return false;
  Instr in;
  in.a = decoder.Source(op[0], 4);
  in.target = decoder.TableOf(op[1].name);
  return decoder.Emit(Brx, in);
}

// call (results), function, (arguments), prototype: either list may be missing, and the prototype
// stands behind calls through a register.
bool DecodeCall(Decoder& decoder, Op& op) {
  op.mods.Take("uni");
  CallSite site;
  size_t at = 0;
  if (op[at].kind == ptx::Operand::kList && !ReadSlots(decoder, op[at++], &site.returns))
    return false;
  const ptx::Operand& target = op[at++];
  if (target.kind != ptx::Operand::kName || target.name.empty()) return false;
  if (op[at].kind == ptx::Operand::kList && !ReadSlots(decoder, op[at++], &site.args)) return false;
  if (op.count() > at + 1) return false;
  const Symbol symbol = decoder.Lookup(target.name);
  Function& function = decoder.function();
  Instr in;
  in.target = static_cast<uint32_t>(function.calls.size());
  // Through a register: what it points to is checked when it is called, as the prototype is only
  // the program's word.
  if (symbol.kind == Symbol::kRegister) {
    function.calls.push_back(site);
    function.calls_any = true;
    in.a = decoder.Source(target, 8);
    return decoder.Emit(CallIndirect, in);
  }
  if (symbol.kind != Symbol::kFunction) {
    return decoder.Fail("'" + std::string(target.name) + "' is no function");
  }
  const ptx::FunctionTree* callee = decoder.module().TreeOf(symbol.value);
  const Function& known = decoder.module().program().functions[symbol.value];
  if (known.is_entry) return decoder.Fail("unsupported call of a kernel");
  if (!CheckCall(decoder, *callee, site)) return false;
  function.calls.push_back(site);
  // A function without a body is one of the driver's, or missing.
  if (!callee->has_body) {
    decoder.KeepsOrder();  // what is printed, or which memory it gets
    if (const Handler run = FindSystemCall(known, site)) return decoder.Emit(run, in);
    return decoder.Fail("function '" + known.name + "' is declared, but not defined");
  }
  in.extra = static_cast<uint16_t>(symbol.value);
  in.imm = static_cast<int64_t>(symbol.value >> 16);
  return decoder.Emit(CallDirect, in);
}

bool DecodeRet(Decoder& decoder, Op& op) {
  op.mods.Take("uni");
  return op.count() == 0 && decoder.Emit(Ret, Instr());
}

bool DecodeExit(Decoder& decoder, Op& op) { return op.count() == 0 && decoder.Emit(Exit, Instr()); }

bool DecodeTrap(Decoder& decoder, Op& op) { return op.count() == 0 && decoder.Emit(Trap, Instr()); }

// Without a debugger attached a breakpoint does nothing.
bool DecodeBrkpt(Decoder& decoder, Op& op) {
  return op.count() == 0 && decoder.Emit(Nothing, Instr());
}

bool DecodeNanosleep(Decoder& decoder, Op& op) {
  if (!op.mods.Take("u32") || op.count() != 1) return false;
  Instr in;
  in.a = decoder.Source(op[0], 4);
  return decoder.Emit(Nanosleep, in);
}

// A hint for profilers.
bool DecodePmevent(Decoder& decoder, Op& op) {
  op.mods.Take("mask");
  return op.count() == 1 && decoder.Emit(Nothing, Instr());
}

// Grids of one stream run one after another, so what a grid depends on has always ended.
bool DecodeGridDependency(Decoder& decoder, Op& op) {
  return (op.mods.Take("wait") || op.mods.Take("launch_dependents")) && op.count() == 0 &&
         decoder.Emit(Nothing, Instr());
}

bool DecodeSetmaxnreg(Decoder& decoder, Op& op) {
  return (op.mods.Take("inc") || op.mods.Take("dec")) && op.mods.Take("sync") &&
         op.mods.Take("aligned") && op.mods.Take("u32") && op.count() == 1 &&
         decoder.Emit(Nothing, Instr());
}

}  // namespace gpuloom::softgpu
