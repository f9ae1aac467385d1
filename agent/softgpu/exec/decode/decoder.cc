// SPDX-License-Identifier: Apache-2.0
// One function: its names, labels and statements. Statements are decoded in the order of the text
// and each on its own; only jumps are completed at the end, when all labels have places.
#include "agent/softgpu/exec/decode/decoder.h"

#include <algorithm>

#include "agent/softgpu/exec/decode/instruction_table.h"

namespace gpuloom::softgpu {

const ptx::Operand& Op::operator[](size_t i) const {
  static const ptx::Operand kNone;
  return i < statement.operands.size() ? statement.operands[i] : kNone;
}

Decoder::Decoder(ModuleBuilder& module, const ptx::FunctionTree& tree, Function* function)
    : module_(module), tree_(tree), function_(*function) {
  scopes_.emplace_back();
}

// A body may jump forward, so labels are collected first and jumps patched last.
bool Decoder::Run() {
  line_ = tree_.line;
  if (!DeclareParams()) return false;
  CollectLabels();
  next_scope_ = 0;
  for (size_t i = 0; i < tree_.body.size(); ++i) {
    line_ = tree_.body[i].line;
    if (!DecodeStatement(i) || module_.failed()) return false;
  }
  // A body may end without ret, as one that ends with trap does; running off its end returns.
  guard_ = kNoGuard;
  guard_negated_ = false;
  ptx::Statement end;
  end.text = "ret";
  end.line = line_;
  if (!DecodeInstruction(end)) return false;
  return Patch();
}

// A kernel's parameters lie in a block that the launch fills, each aligned behind the one before. A
// device function's lie at the beginning of its own frame, where a call copies them to.
bool Decoder::DeclareParams() {
  uint64_t offset = 0;
  for (const ptx::Variable& param : tree_.params) {
    if (param.space == ptx::Space::kReg) return Fail("unsupported .reg parameter");
    const bool kernel = function_.is_entry;
    if (param.size_bytes > kMaxParamBytes) return Fail("a parameter is too large");
    if (kernel) {
      offset = (offset + param.align_bytes - 1) / param.align_bytes * param.align_bytes;
    } else {
      offset = NewFrameBytes(param.size_bytes, param.align_bytes);
    }
    Symbol symbol{kernel ? Symbol::kParam : Symbol::kFrame, param.type, offset, param.size_bytes};
    if (!param.name.empty()) scopes_[0].names[param.name] = symbol;
    function_.params.push_back(
        {static_cast<uint32_t>(offset), static_cast<uint32_t>(param.size_bytes)});
    if (kernel) offset += param.size_bytes;
    if (offset > kMaxParamBytes && kernel) return Fail("the parameters are too large");
  }
  // Return values lie in the callee's frame as well; the call copies them out.
  for (const ptx::Variable& value : tree_.returns) {
    if (value.space == ptx::Space::kReg) return Fail("unsupported .reg return value");
    if (value.size_bytes > kMaxParamBytes) return Fail("a return value is too large");
    const uint32_t at = NewFrameBytes(value.size_bytes, value.align_bytes);
    if (!value.name.empty()) {
      scopes_[0].names[value.name] = {Symbol::kFrame, value.type, at, value.size_bytes};
    }
    function_.returns.push_back({at, static_cast<uint32_t>(value.size_bytes)});
  }
  return true;
}

// Labels may stand behind their use, and inline assembly uses the same ones again and again in
// scopes of its own; so all are known, with their scopes, before the first instruction.
void Decoder::CollectLabels() {
  // Scope 0 holds the parameters: the function's own braces open scope 1.
  std::vector<uint32_t> open = {0};
  uint32_t next = 0;
  for (const ptx::Statement& statement : tree_.body) {
    if (statement.kind == ptx::Statement::kOpen) open.push_back(++next);
    if (statement.kind == ptx::Statement::kClose && open.size() > 1) open.pop_back();
    if (statement.kind != ptx::Statement::kLabel) continue;
    labels_[std::to_string(open.back()) + ":" + std::string(statement.text)] = kNoGuard;
  }
}

// The innermost open scope that has such a label, as CollectLabels() names it; empty: there is
// none.
std::string Decoder::FindLabel(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    std::string key = std::to_string(scope->id) + ":" + std::string(name);
    if (labels_.contains(key)) return key;
  }
  return {};
}

bool Decoder::DeclareVariable(const ptx::Variable& variable) {
  Scope& scope = scopes_.back();
  if (variable.space == ptx::Space::kReg) {
    // Of 128 bits, or vectors: a register is one number.
    if (variable.size_bytes > 8 || variable.size_bytes != ptx::SizeBytes(variable.type)) {
      return Fail("unsupported register type");
    }
    // A range only says which names there may be: FindName() makes registers of those that are
    // used.
    if (variable.range != 0) {
      scope.ranges[variable.name] = {variable.type, variable.range};
      return true;
    }
    Symbol symbol{Symbol::kPredicate, variable.type, 0, variable.size_bytes};
    if (variable.type == ptx::Type::kPred) {
      symbol.value = NewPredicate();
    } else {
      symbol.kind = Symbol::kRegister;
      symbol.value = NewRegister(static_cast<uint32_t>(variable.size_bytes));
    }
    scope.names[variable.name] = symbol;
    return true;
  }
  Symbol symbol{Symbol::kFrame, variable.type, 0, variable.size_bytes};
  switch (variable.space) {
    case ptx::Space::kLocal:
    case ptx::Space::kParam:
      // A thread has at most 512 KiB of local memory, as on a GPU.
      if (variable.size_bytes > (512u << 10) || variable.is_unsized) {
        return Fail("a variable is too large for local memory");
      }
      symbol.value = NewFrameBytes(variable.size_bytes, variable.align_bytes);
      break;
    case ptx::Space::kShared:
      if (variable.is_unsized) {
        symbol.kind = Symbol::kDynamicShared;
      } else {
        symbol.kind = Symbol::kShared;
        if (!module_.AddShared(variable.size_bytes, variable.align_bytes, &symbol.value)) {
          return Fail("too much shared memory");
        }
      }
      break;
    default:
      // .global and .const inside a function belong to the module.
      if (const Symbol* known = module_.Find(variable.name)) {
        symbol = *known;
        break;
      }
      return Fail("unsupported variable inside a function");
  }
  scope.names[variable.name] = symbol;
  return true;
}

bool Decoder::DeclareVariables(const ptx::Statement& statement) {
  for (const ptx::Variable& variable : statement.variables) {
    if (!DeclareVariable(variable)) return false;
  }
  return true;
}

// Scopes are numbered in the order in which they open, as CollectLabels() has numbered them.
bool Decoder::DecodeStatement(size_t index) {
  const ptx::Statement& statement = tree_.body[index];
  switch (statement.kind) {
    case ptx::Statement::kOpen:
      scopes_.emplace_back();
      scopes_.back().id = ++next_scope_;
      scopes_.back().frame_start = frame_end_;
      return true;
    case ptx::Statement::kClose:
      if (scopes_.size() > 1) {
        // The scope's variables are gone: the parameters of the next call may lie there.
        frame_end_ = scopes_.back().frame_start;
        scopes_.pop_back();
      }
      return true;
    case ptx::Statement::kLabel: {
      const std::string key = std::to_string(scopes_.back().id) + ":" + std::string(statement.text);
      uint32_t& at = labels_[key];
      // CollectLabels() entered each label without a place; a second one of that name in the scope
      // finds it taken.
      if (at != kNoGuard) return Fail("label '" + std::string(statement.text) + "' stands twice");
      at = static_cast<uint32_t>(function_.code.size());
      return true;
    }
    case ptx::Statement::kVariable:
      return DeclareVariables(statement);
    case ptx::Statement::kBranchTargets:
      scopes_.back().names[statement.text] = {Symbol::kBranchTargets, ptx::Type::kNone, index, 0};
      return true;
    case ptx::Statement::kPrototype:
      scopes_.back().names[statement.text] = {Symbol::kPrototype, ptx::Type::kNone, index, 0};
      return true;
    case ptx::Statement::kInstruction:
      return DecodeInstruction(statement);
  }
  return false;
}

// An offset is added to a variable's address; behind any other name it would be lost.
bool Decoder::CheckOffsets(const std::vector<ptx::Operand>& operands) {
  for (const ptx::Operand& operand : operands) {
    if (!CheckOffsets(operand.parts)) return false;
    if (operand.kind != ptx::Operand::kName || operand.offset == 0) continue;
    switch (FindName(operand.name).kind) {
      case Symbol::kGlobal:
      case Symbol::kShared:
      case Symbol::kDynamicShared:
      case Symbol::kFrame:
      case Symbol::kParam:
        break;
      default:
        return Fail("'" + std::string(operand.name) + "' takes no offset");
    }
  }
  return true;
}

// A decoder takes the modifiers that it understands and emits code. Modifiers left over, an operand
// without a type, or false all mean that the form is not supported; an error that the decoder has
// given itself says more and stays.
bool Decoder::DecodeInstruction(const ptx::Statement& statement) {
  guard_ = kNoGuard;
  guard_negated_ = statement.guard_negated;
  if (!statement.guard.empty()) {
    const Symbol guard = Lookup(statement.guard);
    if (guard.kind != Symbol::kPredicate) {
      return Fail("'" + std::string(statement.guard) + "' is no predicate");
    }
    guard_ = static_cast<uint32_t>(guard.value);
  }
  if (!CheckOffsets(statement.operands)) return false;
  Op op{statement, Modifiers(statement.text)};
  const Instruction* instruction = FindInstruction(op.mods.name());
  has_type_ = true;
  const bool known =
      instruction != nullptr && instruction->decode(*this, op) && op.mods.empty() && has_type_;
  if (module_.failed()) return false;
  if (!known) return Fail("unsupported instruction '" + std::string(statement.text) + "'");
  return true;
}

bool Decoder::Emit(Handler run, Instr in) {
  if (run == nullptr || module_.failed()) return false;
  in.run = run;
  in.line = line_;
  in.guard = guard_;
  in.guard_negated = guard_negated_;
  function_.code.push_back(in);
  return true;
}

// The place may not be known yet: Patch() fills it in.
bool Decoder::BranchTo(std::string_view label, Instr in) {
  const std::string key = FindLabel(label);
  if (key.empty()) return Fail("label '" + std::string(label) + "' is missing");
  fixups_.push_back({function_.code.size(), false, 0, key, line_});
  return Emit(in.run, in);
}

// Labels are looked up from where the branch stands, so each brx.idx gets a table of its own.
uint32_t Decoder::TableOf(std::string_view name) {
  const Symbol symbol = Lookup(name);
  if (symbol.kind != Symbol::kBranchTargets) {
    Fail("'" + std::string(name) + "' is no list of branch targets");
    return 0;
  }
  const auto table = static_cast<uint32_t>(function_.tables.size());
  function_.tables.emplace_back();
  for (const ptx::Operand& label : tree_.body[symbol.value].operands) {
    const std::string key = FindLabel(label.name);
    if (key.empty()) {
      Fail("label '" + std::string(label.name) + "' is missing");
      return 0;
    }
    fixups_.push_back({table, true, function_.tables.back().size(), key, line_});
    function_.tables.back().push_back(0);
  }
  return table;
}

// Only here are all jumps known, and with them the loops. So this is where the number of registers
// that are needed at once is determined, and which results nobody reads.
bool Decoder::Patch() {
  for (const Fixup& fixup : fixups_) {
    const uint32_t target = labels_[fixup.label];
    if (fixup.is_table) {
      function_.tables[fixup.instr][fixup.entry] = target;
    } else {
      function_.code[fixup.instr].target = target;
      pressure_.Branch(static_cast<uint32_t>(fixup.instr), target);
    }
  }
  function_.words_alive = pressure_.WordsAlive();
  for (const auto& [result, pc] : results_in_order_) {
    function_.in_order |= !pressure_.IsUsedOnlyAt(result, pc);
  }
  return true;
}

uint32_t Decoder::NewFrameBytes(uint64_t size_bytes, uint32_t align_bytes) {
  // Whole words, so that a call may copy any parameter, and 16 bytes as the widest access.
  const uint64_t align = align_bytes < 4 ? 4 : align_bytes;
  const uint64_t at = (frame_end_ + align - 1) / align * align;
  if (at + size_bytes > (uint64_t{512} << 10)) {
    Fail("more than 512 KiB of local memory");
    return 0;
  }
  frame_end_ = static_cast<uint32_t>(at + (size_bytes + 3) / 4 * 4);
  function_.frame_bytes = std::max(function_.frame_bytes, frame_end_);
  return static_cast<uint32_t>(at);
}

// A register is 32 lanes in whole cache lines, so 8-bit ones take as much room as 16-bit ones.
Ref Decoder::NewRegister(uint32_t size_bytes) {
  const Ref at = function_.register_bytes;
  function_.register_bytes += 32 * (size_bytes == 0 ? 8 : size_bytes == 1 ? 2 : size_bytes);
  // Each resident warp has all of these bytes: a bound on what a text that uses ever new registers
  // can take.
  if (function_.register_bytes > (64u << 20)) {
    Fail("too many registers");
    return 0;
  }
  return at;
}

// The condition code of add.cc and its like. One for the function: its lanes' carries are a
// predicate's bits.
uint32_t Decoder::CarryPredicate() {
  if (carry_ == kNoGuard) carry_ = NewPredicate();
  return carry_;
}

}  // namespace gpuloom::softgpu
