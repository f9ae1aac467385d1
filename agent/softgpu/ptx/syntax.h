// SPDX-License-Identifier: Apache-2.0
// The contents of a PTX module before anything is resolved: the parser makes it, the decoder reads
// it. Plain values. Names are views into the PTX text, which must outlive the tree.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "agent/softgpu/ptx/target.h"
#include "agent/softgpu/ptx/types.h"

namespace gpuloom::softgpu::ptx {

struct Operand {
  enum Kind : uint8_t {
    kName,     // register, variable, label, function: `name`, with `offset` in "variable+8"
    kInt,      // `bits`
    kFloat,    // `bits`: those of an f32 when `single`, else of an f64
    kAddress,  // [name+offset] or [offset], and with `parts` what else stood in the brackets
    kVector,   // {a, b, …}: `parts`
    kPair,     // a|b: `parts`
    kList,     // (a, b, …) of a call: `parts`
  };
  Kind kind = kName;
  bool negated = false;  // !%p, or -%r
  bool single = false;
  std::string_view name;
  uint64_t bits = 0;
  int64_t offset = 0;
  std::vector<Operand> parts;
};

struct InitialValue {
  uint64_t bits = 0;        // a number, or what is added to the symbol's address
  std::string_view symbol;  // empty for a number
  bool is_float = false;
  bool single = false;
  uint64_t mask = 0;  // 0xFF00(symbol): the bytes of the address that are taken; 0 = all
};

struct Variable {
  // References are opaque: the driver fills them in, instructions of textures and surfaces name
  // them.
  enum Kind : uint8_t { kPlain, kTextureReference, kSurfaceReference };
  std::string_view name;
  Kind kind = kPlain;
  Space space = Space::kGlobal;
  Type type = Type::kNone;
  uint32_t align_bytes = 0;  // the declared one, or the type's own
  uint64_t size_bytes = 0;   // 0 for `extern … x[]`
  uint32_t range = 0;        // .reg %r<range>: %r0 … ; 0 for a single name
  bool is_extern = false;
  bool is_weak = false;
  bool is_unsized = false;
  bool is_managed = false;
  uint32_t line = 0;
  std::vector<InitialValue> values;
};

struct Statement {
  enum Kind : uint8_t {
    kInstruction,
    kLabel,
    kOpen,   // {
    kClose,  // }
    kVariable,
    kBranchTargets,  // name: .branchtargets a, b;
    kPrototype,      // name: .callprototype …;
  };
  Kind kind = kInstruction;
  uint32_t line = 0;
  std::string_view text;   // opcode with its modifiers ("ld.global.f32"), or the label's name
  std::string_view guard;  // predicate register, or empty
  bool guard_negated = false;
  std::vector<Operand> operands;    // of an instruction; of .branchtargets
  std::vector<Variable> variables;  // of a declaration; a prototype's parameters
  std::vector<Variable> returns;    // a prototype's return values
};

struct FunctionTree {
  std::string_view name;
  uint32_t line = 0;
  bool is_entry = false;
  bool is_extern = false;
  bool is_weak = false;
  bool has_body = false;
  uint32_t max_ntid[3] = {0, 0, 0};
  uint32_t required_ntid[3] = {0, 0, 0};
  uint32_t required_cluster[3] = {0, 0, 0};
  std::vector<Variable> returns;
  std::vector<Variable> params;
  std::vector<Statement> body;
};

struct TargetName {
  uint32_t capability = 0;  // 90 for sm_90 and sm_90a
  TargetKind kind = TargetKind::kAll;
};

// Linked parts each bring a .target and a .version.
struct ModuleTree {
  std::vector<TargetName> targets;
  uint32_t version = 0;  // the newest: 87 for .version 8.7
  std::vector<Variable> variables;
  std::vector<FunctionTree> functions;
};

}  // namespace gpuloom::softgpu::ptx
