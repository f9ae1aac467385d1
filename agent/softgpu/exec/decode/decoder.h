// SPDX-License-Identifier: Apache-2.0
// Decodes one function: resolves names, checks operands, and emits instructions with their handlers. Made for one
// function by ModuleBuilder, which outlives it; one thread. A mistake in the text goes to ModuleBuilder's error.
//
// The instructions themselves are in the files beside this one, listed in instruction_table.cc. Each reads the Op it is
// given and emits one or more Instr; it returns false for what softgpu does not support.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/softgpu/exec/decode/modifiers.h"
#include "agent/softgpu/exec/decode/module_builder.h"
#include "agent/softgpu/exec/decode/register_pressure.h"
#include "agent/softgpu/exec/machine/program.h"

namespace gpuloom::softgpu {

// One PTX instruction while it is decoded.
struct Op {
  const ptx::Statement& statement;
  Modifiers mods;
  [[nodiscard]] size_t count() const { return statement.operands.size(); }
  [[nodiscard]] const ptx::Operand& operator[](size_t i) const;  // an empty name when there is none
};

// A source operand that is a predicate.
struct PredicateRef {
  uint32_t number = 0;
  bool negated = false;
};

class Decoder {
 public:
  Decoder(ModuleBuilder& module, const ptx::FunctionTree& tree, Function* function);
  bool Run();

  // Operands. After a mistake, which Run() notices, all of these return something harmless.
  Ref Source(const ptx::Operand& operand, uint32_t size_bytes);
  Ref Source(const ptx::Operand& operand, ptx::Type type);
  Ref Destination(const ptx::Operand& operand, uint32_t size_bytes);
  // For ld, st and cvt, whose registers may be wider than the type: also returns the width.
  Ref LooseSource(const ptx::Operand& operand, ptx::Type type, uint32_t* size_bytes);
  Ref LooseDestination(const ptx::Operand& operand, uint32_t least_bytes, uint32_t* size_bytes);
  PredicateRef SourcePredicate(const ptx::Operand& operand);
  uint32_t DestinationPredicate(const ptx::Operand& operand);
  // Fills a, imm and flags of a memory access.
  bool Address(const ptx::Operand& operand, ptx::Space space, Instr* in);
  // The offset in the parameter block of a kernel's parameter that is named in an address.
  uint64_t ParamOffset(const ptx::Operand& operand) { return Lookup(operand.name).value; }
  // The size of a register; 0 when the operand is not one.
  uint32_t RegisterBytes(const ptx::Operand& operand);
  [[nodiscard]] bool IsPredicate(const ptx::Operand& operand);
  Symbol Lookup(std::string_view name);

  // Output.
  Ref Constant(uint64_t bits, uint32_t size_bytes) { return module_.Constant(bits, size_bytes); }
  Ref NewRegister(uint32_t size_bytes);
  uint32_t NewPredicate() { return function_.predicate_count++; }
  uint32_t NewFrameBytes(uint64_t size_bytes, uint32_t align_bytes);
  uint32_t CarryPredicate();
  // The function takes local memory while it runs.
  void AllocatesLocal() {
    function_.allocates = true;
    module_.program().allocates = true;
  }
  // The effect of the next instruction may depend on the order of blocks; or only its result, `result`, does.
  void KeepsOrder() { function_.in_order = true; }
  void ResultKeepsOrder(Ref result) {
    results_in_order_.emplace_back(result, static_cast<uint32_t>(function_.code.size()));
  }
  // Adds an instruction with the statement's guard. A null handler means that the instruction is not supported.
  bool Emit(Handler run, Instr in);
  bool BranchTo(std::string_view label, Instr in);
  uint32_t TableOf(std::string_view name);
  bool Fail(std::string_view message) { return module_.Fail(line_, message); }
  [[nodiscard]] Function& function() { return function_; }
  [[nodiscard]] ModuleBuilder& module() { return module_; }
  [[nodiscard]] const ptx::FunctionTree& tree() const { return tree_; }

 private:
  struct Fixup {
    size_t instr;  // or, for a table, its index
    bool is_table;
    size_t entry;
    std::string label;  // with its scope
    uint32_t line;
  };
  bool DeclareParams();
  bool DeclareVariables(const ptx::Statement& statement);
  bool DeclareVariable(const ptx::Variable& variable);
  void CollectLabels();
  Symbol FindName(std::string_view name);
  std::string FindLabel(std::string_view name) const;
  bool DecodeStatement(size_t index);
  bool CheckOffsets(const std::vector<ptx::Operand>& operands);
  bool DecodeInstruction(const ptx::Statement& statement);
  bool Patch();

  ModuleBuilder& module_;
  const ptx::FunctionTree& tree_;
  Function& function_;
  std::vector<Scope> scopes_;
  uint32_t next_scope_ = 0;
  uint32_t frame_end_ = 0;                  // end of the variables in scope where the decoder is
  std::map<std::string, uint32_t> labels_;  // "3:$L1" → pc, or kNoGuard before it is known
  std::vector<Fixup> fixups_;
  uint32_t line_ = 0;
  uint32_t guard_ = kNoGuard;
  bool guard_negated_ = false;
  // False after an operand was requested without a size: the type is missing or a predicate.
  bool has_type_ = true;
  uint32_t carry_ = kNoGuard;
  RegisterPressure pressure_;
  std::vector<std::pair<Ref, uint32_t>> results_in_order_;  // by the place of the instruction
};

// Calls f with a value of the C++ type that an operand has.
template <class F>
Handler ForInteger(ptx::Type type, F f) {
  switch (type) {
    case ptx::Type::kU16:
    case ptx::Type::kB16:
      return f(uint16_t{});
    case ptx::Type::kU32:
    case ptx::Type::kB32:
      return f(uint32_t{});
    case ptx::Type::kU64:
    case ptx::Type::kB64:
      return f(uint64_t{});
    case ptx::Type::kS16:
      return f(int16_t{});
    case ptx::Type::kS32:
      return f(int32_t{});
    case ptx::Type::kS64:
      return f(int64_t{});
    default:
      return nullptr;
  }
}

}  // namespace gpuloom::softgpu
