// SPDX-License-Identifier: Apache-2.0
// Decoded code: what the decoder makes of a syntax tree and a Warp executes.
//
// Registers are laid out lane by lane: a 32-bit register is 32 values of 4 bytes (128 bytes), a
// 64-bit one has 256 bytes, so that a handler is a loop over lanes that the compiler vectorises.
// Immediates lie in the same form in the program's constant bank, so every source operand is a
// pointer to 32 values. Predicates are masks with one bit per lane. A Program belongs to its Module
// and is immutable once that is loaded; any thread may read it then.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/softgpu/ptx/types.h"

namespace gpuloom::softgpu {

class Warp;
struct Instr;

// What the warp does after an instruction.
enum class Step : uint8_t {
  kNext,    // go on with the next instruction
  kJump,    // pc was set
  kSwitch,  // the lanes' places were saved: choose again which lanes run
  kFault,   // the warp's fault was set
};
using Handler = Step (*)(Warp&, const Instr&);

// Offset in bytes of a register in its frame, or with kConstantBit in the constant bank.
using Ref = uint32_t;
inline constexpr Ref kConstantBit = 0x80000000u;
inline constexpr uint32_t kNoGuard = 0xffffffffu;

// Where an address points, kept in Instr::flags.
enum AddressFlags : uint8_t {
  kSpaceMask = 0x07,      // a ptx::Space; kReg stands for the running frame's own variables
  kAddress32 = 0x08,      // the address register has 32 bits
  kVolatile = 0x10,       // may wait for another thread: the scheduler turns to other lanes sooner
  kAcquireRelease = 0x20  // orders memory
};

struct Instr {
  Handler run = nullptr;
  Ref d = 0;  // destination: register or predicate number
  Ref a = 0;
  Ref b = 0;
  Ref c = 0;
  Ref e = 0;            // a fifth operand, or a second destination
  uint32_t target = 0;  // a branch's target; or the index of a table or call site
  int64_t imm = 0;
  uint32_t guard = kNoGuard;  // predicate number
  uint32_t line = 0;          // in the PTX text
  bool guard_negated = false;
  uint8_t flags = 0;
  uint16_t extra = 0;  // small modifiers, the handler's own
};

// Registers and constants begin at cache lines, so that a vector of lanes never lies across two.
struct alignas(64) CacheLine {
  std::byte bytes[64];
};

struct Slot {  // one parameter in a frame
  uint32_t offset_bytes = 0;
  uint32_t size_bytes = 0;
};

struct CallSite {
  std::vector<Slot> args;  // in the caller's frame
  std::vector<Slot> returns;
};

struct Function {
  std::string name;
  uint32_t index = 0;
  bool is_entry = false;
  bool allocates = false;  // it allocates local memory while it runs (alloca)
  bool in_order = false;   // its effect may depend on the order of blocks
  bool calls_any = false;  // it has indirect calls
  std::vector<Instr> code;
  uint32_t register_bytes = 0;
  uint32_t predicate_count = 0;
  uint32_t words_alive = 0;  // 32-bit registers needed at once, an estimate
  uint32_t frame_bytes = 0;  // local memory per thread: variables, call parameters, own parameters
  // A device function's parameters lie in its frame, a kernel's in the parameter block.
  std::vector<Slot> params;
  std::vector<Slot> returns;
  std::vector<CallSite> calls;
  std::vector<std::vector<uint32_t>> tables;  // for brx.idx; operands of texture instructions
};

struct Program {
  std::vector<CacheLine> constants;  // the constant bank
  std::vector<Function> functions;   // fixed in number before the first is decoded
  uint32_t dynamic_shared_align_bytes = 16;
  bool allocates = false;  // some function allocates local memory
};

}  // namespace gpuloom::softgpu
