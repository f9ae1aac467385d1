// SPDX-License-Identifier: Apache-2.0
// From a syntax tree to a Program, in two passes: Declare() gives every name of the module its
// place, DecodeAll() decodes the functions, which name each other in any order.
#include "agent/softgpu/exec/decode/module_builder.h"

#include <algorithm>
#include <cstring>

#include "agent/softgpu/exec/decode/decoder.h"
#include "agent/softgpu/exec/machine/address_space.h"
#include "agent/softgpu/ptx/parser.h"

namespace gpuloom::softgpu {
namespace {

// For any `align` except 0.
uint64_t Align(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }

// All names in an operand, also those within vectors and lists.
void NoteNames(const ptx::Operand& operand, std::set<std::string_view>* names) {
  if (!operand.name.empty()) names->insert(operand.name);
  for (const ptx::Operand& part : operand.parts) NoteNames(part, names);
}

}  // namespace

// The first mistake is reported; further ones may be its consequence.
bool ModuleBuilder::Fail(uint32_t line, std::string_view message) {
  if (error_.empty()) error_ = "ptx line " + std::to_string(line) + ": " + std::string(message);
  return false;
}

const Symbol* ModuleBuilder::Find(std::string_view name) const {
  const auto found = names_.find(name);
  return found != names_.end() ? &found->second : nullptr;
}

// Equal constants share a place, as the same few stand in most instructions. Each begins at a cache
// line.
Ref ModuleBuilder::Constant(uint64_t bits, uint32_t size_bytes) {
  if (size_bytes < 8) bits &= (uint64_t{1} << (8 * size_bytes)) - 1;
  const auto [at, added] = constants_.try_emplace({bits, size_bytes}, 0);
  if (added) {
    const size_t begin = program_.constants.size();
    at->second = static_cast<Ref>(begin * sizeof(CacheLine)) | kConstantBit;
    program_.constants.resize(begin + (size_t{32} * size_bytes + sizeof(CacheLine) - 1) /
                                          sizeof(CacheLine));
    auto* const lanes = program_.constants[begin].bytes;
    for (size_t lane = 0; lane < 32; ++lane) {
      std::memcpy(lanes + lane * size_bytes, &bits, size_bytes);
    }
  }
  return at->second;
}

// A function may be declared several times, and defined once; a weak one may be defined again, as
// linked parts bring the same inline functions.
bool ModuleBuilder::NumberFunctions() {
  for (const ptx::FunctionTree& tree : tree_.functions) {
    const auto [at, added] = names_.try_emplace(
        tree.name, Symbol{Symbol::kFunction, ptx::Type::kNone, trees_.size(), 0});
    if (at->second.kind != Symbol::kFunction) {
      return Fail(tree.line, "'" + std::string(tree.name) + "' is declared twice");
    }
    if (added) trees_.push_back(nullptr);
    const ptx::FunctionTree*& known = trees_[at->second.value];
    if (known != nullptr && known->has_body && tree.has_body) {
      if (tree.is_weak) continue;  // of several the first counts
      return Fail(tree.line, "'" + std::string(tree.name) + "' is defined twice");
    }
    if (known == nullptr || tree.has_body) known = &tree;
  }
  // Fixed from here on: instructions and kernels point into it.
  program_.functions.resize(trees_.size());
  for (size_t i = 0; i < trees_.size(); ++i) {
    program_.functions[i].name = trees_[i]->name;
    program_.functions[i].index = static_cast<uint32_t>(i);
    program_.functions[i].is_entry = trees_[i]->is_entry;
  }
  return true;
}

// The handle of a reference is its number, so a launch finds what is bound to it without a search
// (GridRun::FindTexture).
bool ModuleBuilder::NumberReferences(std::vector<ImageReference>* references) {
  for (const ptx::Variable& variable : tree_.variables) {
    // For an extern declaration, the definition may follow.
    if (variable.kind == ptx::Variable::kPlain || variable.is_extern) continue;
    if (variable.is_weak && names_.contains(variable.name)) continue;  // the first counts
    const Symbol symbol{Symbol::kReference, variable.type, kReferenceWindow | references->size(),
                        variable.size_bytes};
    if (!names_.try_emplace(variable.name, symbol).second) {
      return Fail(variable.line, "'" + std::string(variable.name) + "' is declared twice");
    }
    references->push_back(
        {std::string(variable.name), variable.kind == ptx::Variable::kSurfaceReference});
  }
  return true;
}

// All of a module's variables lie in one piece of device memory: first every variable gets an
// offset, then the piece is allocated, then offsets become addresses.
bool ModuleBuilder::LayOutGlobals(const Module::AllocateGlobals& allocate,
                                  std::vector<Global>* globals) {
  uint64_t size_bytes = 0;
  uint64_t align_bytes = 16;
  for (const ptx::Variable& variable : tree_.variables) {
    if (variable.space == ptx::Space::kShared || variable.kind != ptx::Variable::kPlain) continue;
    if (variable.space != ptx::Space::kGlobal && variable.space != ptx::Space::kConst) {
      return Fail(variable.line, "unsupported state space of a module's variable");
    }
    if (variable.type == ptx::Type::kPred) return Fail(variable.line, "a predicate in memory");
    if (variable.is_extern || variable.is_unsized) {
      // A declaration, whose definition may follow.
      const auto external = externals_.find(variable.name);
      if (variable.is_extern && external != externals_.end()) {
        names_.try_emplace(variable.name, Symbol{Symbol::kGlobal, variable.type, external->second,
                                                 variable.size_bytes});
      }
      continue;
    }
    Symbol symbol{Symbol::kGlobal, variable.type, 0, variable.size_bytes};
    if (variable.is_weak) {
      const Symbol* known = Find(variable.name);
      if (known != nullptr && known->kind == Symbol::kGlobal) continue;  // the first counts
    }
    size_bytes = Align(size_bytes, variable.align_bytes);
    symbol.value = size_bytes;
    if (!names_.try_emplace(variable.name, symbol).second) {
      return Fail(variable.line, "'" + std::string(variable.name) + "' is declared twice");
    }
    // One byte more, so that no two variables share an address.
    size_bytes += std::max<uint64_t>(variable.size_bytes, 1);
    if (size_bytes > ptx::kMaxVariableBytes) return Fail(variable.line, "variables too large");
    if (variable.space == ptx::Space::kConst) const_bytes_ += variable.size_bytes;
    if (const_bytes_ > kMaxConstBytes) {
      return Fail(variable.line, "more than 64 KiB of constant memory");
    }
    align_bytes = std::max<uint64_t>(align_bytes, variable.align_bytes);
    globals->push_back({std::string(variable.name), symbol.value,
                        static_cast<size_t>(variable.size_bytes),
                        variable.space == ptx::Space::kConst, variable.is_managed});
    placed_.push_back(&variable);
  }
  if (size_bytes == 0) return true;
  const uint64_t base = allocate(size_bytes, align_bytes);
  if (base == 0) {
    out_of_memory_ = true;
    return Fail(1, "no device memory for " + std::to_string(size_bytes) + " bytes of variables");
  }
  // PTX variables without an initial value are 0, and the allocator promises nothing.
  std::memset(reinterpret_cast<void*>(base), 0, size_bytes);
  for (Global& global : *globals) {
    global.address += base;
    names_[global.name].value = global.address;
  }
  return true;
}

// Values in the order of the text; what they do not fill stays 0.
bool ModuleBuilder::WriteInitialValues(const ptx::Variable& variable, uint64_t address) {
  uint64_t at = address;
  const uint64_t end = address + variable.size_bytes;
  const uint32_t size = ptx::SizeBytes(variable.type);
  for (const ptx::InitialValue& value : variable.values) {
    if (at + size > end) return Fail(variable.line, "too many initial values");
    uint64_t bits = value.bits;
    if (!value.symbol.empty()) {
      const Symbol* symbol = Find(value.symbol);
      if (symbol == nullptr) {
        return Fail(variable.line, "'" + std::string(value.symbol) + "' is not declared");
      }
      // A variable's address, a function's as calls take it, or a reference's handle.
      uint64_t base = symbol->value;
      if (symbol->kind == Symbol::kFunction)
        base = kFunctionWindow | (symbol->value + 1) * 16;
      else if (symbol->kind != Symbol::kGlobal && symbol->kind != Symbol::kReference)
        return Fail(variable.line, "unsupported initial value");
      bits += base;
      // mask(symbol) takes one part of the address, which is moved down to the lowest byte.
      if (value.mask != 0) {
        bits &= value.mask;
        for (uint64_t mask = value.mask; (mask & 0xff) == 0; mask >>= 8) bits >>= 8;
      }
    } else if (value.is_float && variable.type == ptx::Type::kF32 && !value.single) {
      // A decimal literal was read as a double.
      double wide = 0;
      std::memcpy(&wide, &bits, 8);
      const float narrow = static_cast<float>(wide);
      bits = 0;
      std::memcpy(&bits, &narrow, 4);
    }
    if (size > 8) return Fail(variable.line, "unsupported type of an initial value");
    std::memcpy(reinterpret_cast<void*>(at), &bits, size);
    at += size;
  }
  return true;
}

// After all variables have addresses: they may point to each other. Only what has got room is
// filled: another declaration of the name may be larger than the one that counts.
bool ModuleBuilder::FillGlobals(const std::vector<Global>& globals) {
  for (const ptx::Variable& variable : tree_.variables) {
    if (variable.values.empty()) continue;
    if (variable.space == ptx::Space::kShared || variable.is_extern) {
      return Fail(variable.line, "initial values where there can be none");
    }
  }
  for (size_t i = 0; i < globals.size(); ++i) {
    if (!WriteInitialValues(*placed_[i], globals[i].address)) return false;
  }
  return true;
}

bool ModuleBuilder::Declare(const Module::AllocateGlobals& allocate, std::vector<Global>* globals,
                            std::vector<ImageReference>* references) {
  return NumberFunctions() && NumberReferences(references) && LayOutGlobals(allocate, globals) &&
         FillGlobals(*globals) && LayOutShared();
}

// The functions that a kernel may reach by the names in its text, itself included. Pointers to
// functions may reach others.
std::set<uint32_t> ModuleBuilder::Reachable(uint32_t function) const {
  std::set<uint32_t> seen = {function};
  std::vector<uint32_t> open = {function};
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    for (const std::string_view name : names_used_[at]) {
      const Symbol* symbol = Find(name);
      if (symbol == nullptr || symbol->kind != Symbol::kFunction) continue;
      const auto next = static_cast<uint32_t>(symbol->value);
      if (seen.insert(next).second) open.push_back(next);
    }
  }
  return seen;
}

// Shared variables that device functions use keep one place in all kernels, at the start; a
// variable that only one kernel uses lies behind them, so that kernels do not pay for each other's.
bool ModuleBuilder::LayOutShared() {
  names_used_.resize(trees_.size());
  for (size_t i = 0; i < trees_.size(); ++i) {
    // Every operand that names a variable or function counts as a use, whatever the instruction
    // does with it.
    for (const ptx::Statement& statement : trees_[i]->body) {
      for (const ptx::Operand& operand : statement.operands) NoteNames(operand, &names_used_[i]);
    }
  }
  uint64_t common = 0;
  std::vector<uint64_t> own(trees_.size(), 0);
  std::vector<std::pair<const ptx::Variable*, uint32_t>> single;
  for (const ptx::Variable& variable : tree_.variables) {
    if (variable.space != ptx::Space::kShared) continue;
    Symbol symbol{Symbol::kShared, variable.type, 0, variable.size_bytes};
    if (variable.is_unsized || variable.is_extern) {
      symbol.kind = Symbol::kDynamicShared;
      // Parts that were linked each declare it.
      const Symbol* known = Find(variable.name);
      if (known != nullptr && known->kind == Symbol::kDynamicShared) continue;
      program_.dynamic_shared_align_bytes =
          std::max({program_.dynamic_shared_align_bytes, variable.align_bytes, 16u});
    } else {
      uint32_t users = 0;
      uint32_t user = 0;
      for (uint32_t i = 0; i < trees_.size(); ++i) {
        if (!names_used_[i].contains(variable.name)) continue;
        // A device function counts double: several kernels may call it.
        users += trees_[i]->is_entry ? 1 : 2;
        user = i;
      }
      if (users == 1) {
        single.emplace_back(&variable, user);
      } else {
        symbol.value = common = Align(common, variable.align_bytes);
        common += variable.size_bytes;
      }
    }
    if (!names_.try_emplace(variable.name, symbol).second) {
      return Fail(variable.line, "'" + std::string(variable.name) + "' is declared twice");
    }
    // In 64 bits, and checked at each step: sizes come from the text.
    if (common > kMaxSharedBytesPerBlock) return Fail(variable.line, "too much shared memory");
  }
  // Variables inside device functions belong to all that may call them.
  for (size_t i = 0; i < trees_.size(); ++i) {
    if (trees_[i]->is_entry) continue;
    own[i] = common;
    for (const ptx::Statement& statement : trees_[i]->body) {
      for (const ptx::Variable& variable : statement.variables) {
        if (variable.space != ptx::Space::kShared || variable.is_unsized) continue;
        common = Align(common, variable.align_bytes) + variable.size_bytes;
        if (common > kMaxSharedBytesPerBlock) return Fail(variable.line, "too much shared memory");
      }
    }
  }
  device_shared_end_ = static_cast<uint32_t>(common);
  for (size_t i = 0; i < trees_.size(); ++i) {
    if (trees_[i]->is_entry) own[i] = common;
  }
  for (const auto& [variable, user] : single) {
    own[user] = Align(own[user], variable->align_bytes);
    names_[variable->name].value = own[user];
    own[user] += variable->size_bytes;
    if (own[user] > kMaxSharedBytesPerBlock) return Fail(variable->line, "too much shared memory");
  }
  for (const uint64_t start : own) shared_start_.push_back(static_cast<uint32_t>(start));
  return true;
}

// Called in the order of the function's text, as LayOutShared() has counted.
bool ModuleBuilder::AddShared(uint64_t size_bytes, uint32_t align_bytes, uint64_t* offset) {
  *offset = Align(shared_end_, align_bytes);
  if (*offset + size_bytes > kMaxSharedBytesPerBlock) return false;
  shared_end_ = static_cast<uint32_t>(*offset + size_bytes);
  return true;
}

bool ModuleBuilder::DecodeAll(std::vector<Kernel>* kernels) {
  std::vector<uint32_t> shared_bytes(trees_.size(), 0);
  for (uint32_t i = 0; i < trees_.size(); ++i) {
    // A declaration may be of a system call; nothing to decode.
    if (!trees_[i]->has_body) continue;
    shared_end_ = shared_start_[i];
    if (!Decoder(*this, *trees_[i], &program_.functions[i]).Run()) return false;
    shared_bytes[i] = shared_end_;
  }
  // A kernel is described by what it calls too, so all are decoded by now.
  for (uint32_t i = 0; i < trees_.size(); ++i) {
    if (!trees_[i]->has_body || !trees_[i]->is_entry) continue;
    if (shared_bytes[i] == device_shared_end_ && Reachable(i).size() == 1 &&
        !program_.functions[i].calls_any) {
      // If it has no shared variables of its own and calls no function, not even by a pointer, it
      // needs the common ones only if it names one.
      const auto& used = names_used_[i];
      if (std::none_of(used.begin(), used.end(), [this](std::string_view name) {
            const Symbol* symbol = Find(name);
            return symbol != nullptr && symbol->kind == Symbol::kShared;
          })) {
        shared_bytes[i] = 0;
      }
    }
    Kernel& kernel = kernels->emplace_back();
    if (!FillKernel(*trees_[i], program_.functions[i], shared_bytes[i], &kernel)) return false;
  }
  return true;
}

// By the instructions of all functions that it may reach.
bool ModuleBuilder::KeepsOrder(uint32_t kernel) const {
  const std::vector<Function>& functions = program_.functions;
  const std::set<uint32_t> reachable = Reachable(kernel);
  const auto is = [&](bool Function::*what) {
    return [&functions, what](uint32_t index) { return functions[index].*what; };
  };
  if (std::any_of(reachable.begin(), reachable.end(), is(&Function::in_order))) return true;
  // A pointer to a function may come from memory.
  return std::any_of(reachable.begin(), reachable.end(), is(&Function::calls_any)) &&
         std::any_of(functions.begin(), functions.end(),
                     [](const Function& function) { return function.in_order; });
}

bool ModuleBuilder::FillKernel(const ptx::FunctionTree& tree, const Function& function,
                               uint32_t shared_bytes, Kernel* kernel) {
  kernel->name = function.name;
  for (const Slot& slot : function.params) {
    kernel->params.push_back({slot.offset_bytes, slot.size_bytes});
    kernel->param_bytes = slot.offset_bytes + slot.size_bytes;
  }
  // The limit of static shared memory on every GPU; a kernel that needs more takes it as dynamic.
  if (shared_bytes > kMaxStaticSharedBytes) {
    return Fail(tree.line, "kernel '" + kernel->name + "' uses " + std::to_string(shared_bytes) +
                               " bytes of static shared memory, 48 KiB is the limit");
  }
  kernel->static_shared_bytes = shared_bytes;
  kernel->local_bytes = function.frame_bytes;
  kernel->const_bytes = static_cast<uint32_t>(const_bytes_);
  // A called function's registers come on top of the kernel's own.
  uint32_t called = 0;
  for (const uint32_t index : Reachable(function.index)) {
    const Function& callee = program_.functions[index];
    if (!callee.is_entry) called = std::max(called, callee.words_alive);
  }
  kernel->in_order = KeepsOrder(function.index);
  kernel->num_regs = std::clamp<uint32_t>(function.words_alive + called, 16, 255);
  kernel->code = &function;
  // Only the product of the dimensions in .maxntid or .reqntid bounds a block; it is 0 where
  // neither is given.
  uint64_t threads = 1;
  const bool required = tree.required_ntid[0] != 0;
  for (int i = 0; i < 3; ++i) {
    kernel->required_ntid[i] = tree.required_ntid[i];
    kernel->required_cluster[i] = tree.required_cluster[i];
    threads *= required ? tree.required_ntid[i] : tree.max_ntid[i];
    // Three factors below 2^31 would overflow.
    threads = std::min<uint64_t>(threads, uint64_t{1} << 31);
  }
  if (threads != 0) {
    kernel->max_threads_per_block =
        static_cast<uint32_t>(std::min<uint64_t>(threads, kMaxThreadsPerBlock));
  }
  return true;
}

}  // namespace gpuloom::softgpu
