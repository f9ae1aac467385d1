// SPDX-License-Identifier: Apache-2.0
// Operands of instructions: names, immediates and addresses.
#include <bit>

#include "agent/softgpu/exec/decode/decoder.h"
#include "agent/softgpu/exec/machine/address_space.h"
#include "agent/softgpu/exec/machine/special_registers.h"

namespace gpuloom::softgpu {
// Every use of a register passes through here, so that RegisterPressure learns its life.
Symbol Decoder::Lookup(std::string_view name) {
  const Symbol symbol = FindName(name);
  if (symbol.kind == Symbol::kRegister) {
    pressure_.Use(symbol.value, static_cast<uint32_t>(symbol.size_bytes),
                  static_cast<uint32_t>(function_.code.size()));
  }
  return symbol;
}

// The innermost scope first, then the module. "%r17" is declared by that name, or one of a range
// such as "%r<20>".
Symbol Decoder::FindName(std::string_view name) {
  size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto found = scope->names.find(name); found != scope->names.end()) {
      return found->second;
    }
    if (digits == name.size()) continue;
    const auto range = scope->ranges.find(name.substr(0, digits));
    if (range == scope->ranges.end()) continue;
    uint64_t number = 0;
    for (const char c : name.substr(digits)) {
      number = number * 10 + static_cast<uint64_t>(c - '0');
      // Checked before the number could overflow.
      if (number >= range->second.count) break;
    }
    if (number >= range->second.count) continue;
    // A range may name thousands of registers; only those that are used get room.
    const ptx::Type type = range->second.type;
    Symbol symbol{Symbol::kPredicate, type, 0, ptx::SizeBytes(type)};
    if (type == ptx::Type::kPred) {
      symbol.value = NewPredicate();
    } else {
      symbol.kind = Symbol::kRegister;
      symbol.value = NewRegister(ptx::SizeBytes(type));
    }
    scope->names[name] = symbol;
    return symbol;
  }
  const Symbol* known = module_.Find(name);
  return known != nullptr ? *known : Symbol();
}

uint32_t Decoder::RegisterBytes(const ptx::Operand& operand) {
  if (operand.kind != ptx::Operand::kName) return 0;
  const Symbol symbol = Lookup(operand.name);
  return symbol.kind == Symbol::kRegister ? static_cast<uint32_t>(symbol.size_bytes) : 0;
}

bool Decoder::IsPredicate(const ptx::Operand& operand) {
  return operand.kind == ptx::Operand::kName && Lookup(operand.name).kind == Symbol::kPredicate;
}

// A floating-point literal that is written as a decimal is a double; it takes the precision of its
// instruction. Those written as bits (0f…, 0d…) have one of their own.
Ref Decoder::Source(const ptx::Operand& operand, ptx::Type type) {
  if (operand.kind == ptx::Operand::kFloat) {
    if (type == ptx::Type::kF32 && !operand.single) {
      const float value = static_cast<float>(std::bit_cast<double>(operand.bits));
      return Constant(std::bit_cast<uint32_t>(value), 4);
    }
    if (type == ptx::Type::kF64 && operand.single) {
      const double value = std::bit_cast<float>(static_cast<uint32_t>(operand.bits));
      return Constant(std::bit_cast<uint64_t>(value), 8);
    }
  }
  return Source(operand, ptx::SizeBytes(type));
}

// The address of a variable is a constant where the module knows it. Where only the launch or the
// running frame does, an instruction computes it first.
Ref Decoder::Source(const ptx::Operand& operand, uint32_t size_bytes) {
  if (size_bytes == 0) {
    has_type_ = false;
    return 0;
  }
  switch (operand.kind) {
    case ptx::Operand::kInt:
      return Constant(operand.bits, size_bytes);
    case ptx::Operand::kFloat:
      // For floats, bits of another size would be another number.
      if ((operand.single ? 4u : 8u) != size_bytes) {
        Fail("a floating-point constant of another size than its instruction");
        return 0;
      }
      return Constant(operand.bits, size_bytes);
    case ptx::Operand::kName:
      break;
    default:
      Fail("an operand is not of the form that its instruction takes");
      return 0;
  }
  if (operand.negated) {
    Fail("'!' before what is no predicate");
    return 0;
  }
  const Symbol symbol = Lookup(operand.name);
  const uint64_t value = symbol.value + static_cast<uint64_t>(operand.offset);
  switch (symbol.kind) {
    case Symbol::kRegister:
      if (symbol.size_bytes != size_bytes) {
        Fail("'" + std::string(operand.name) + "' has " + std::to_string(symbol.size_bytes * 8) +
             " bits, its instruction takes " + std::to_string(size_bytes * 8));
        return 0;
      }
      return static_cast<Ref>(symbol.value);
    case Symbol::kGlobal:
    case Symbol::kShared:
    case Symbol::kParam:
      return Constant(value, size_bytes);
    case Symbol::kReference:
      if (size_bytes != 8) break;
      return Constant(value, size_bytes);
    // Never 0, so that a null pointer is not a function; Warp::CallEach() decodes it.
    case Symbol::kFunction:
      return Constant(kFunctionWindow | (symbol.value + 1) * 16, size_bytes);
    case Symbol::kDynamicShared:
    case Symbol::kFrame: {
      Instr in;
      in.d = NewRegister(size_bytes);
      in.imm = operand.offset + static_cast<int64_t>(symbol.value);
      Emit(RuntimeAddress(symbol.kind == Symbol::kFrame, size_bytes), in);
      return in.d;
    }
    default:
      break;
  }
  // PTX's own names come last: a declaration hides them.
  if (operand.name == "WARP_SZ") return Constant(kWarpSize, size_bytes);
  Instr in;
  if (FindSpecialRegister(operand.name, &in)) {
    in.d = NewRegister(size_bytes);
    Emit(ReadSpecialRegister(size_bytes), in);
    return in.d;
  }
  Fail("'" + std::string(operand.name) + "' is not declared");
  return 0;
}

Ref Decoder::Destination(const ptx::Operand& operand, uint32_t size_bytes) {
  if (size_bytes == 0) {
    has_type_ = false;
    return 0;
  }
  // The result is dropped, but the handler writes it somewhere.
  if (operand.kind == ptx::Operand::kName && operand.name == "_") return NewRegister(size_bytes);
  uint32_t actual = 0;
  const Ref at = LooseDestination(operand, size_bytes, &actual);
  if (actual != size_bytes) {
    Fail("'" + std::string(operand.name) + "' has " + std::to_string(actual * 8) +
         " bits, its instruction gives " + std::to_string(size_bytes * 8));
  }
  return at;
}

Ref Decoder::LooseDestination(const ptx::Operand& operand, uint32_t least_bytes,
                              uint32_t* size_bytes) {
  *size_bytes = least_bytes;
  if (operand.kind == ptx::Operand::kName && operand.name == "_") {
    if (*size_bytes == 1) *size_bytes = 2;
    return NewRegister(*size_bytes);
  }
  *size_bytes = RegisterBytes(operand);
  if (*size_bytes == 0) {
    const bool known = Lookup(operand.name).kind != Symbol::kNothing;
    Fail("'" + std::string(operand.name) +
         (known ? "' is no register to write to" : "' is not declared"));
    return 0;
  }
  if (*size_bytes < least_bytes) {
    Fail("'" + std::string(operand.name) + "' is too small for its instruction");
    return 0;
  }
  return static_cast<Ref>(Lookup(operand.name).value);
}

Ref Decoder::LooseSource(const ptx::Operand& operand, ptx::Type type, uint32_t* size_bytes) {
  *size_bytes = RegisterBytes(operand);
  // An immediate or a variable's address. Values of 8 bits are kept in 16.
  if (*size_bytes == 0) {
    *size_bytes = ptx::SizeBytes(type) == 1 ? 2 : ptx::SizeBytes(type);
    if (operand.kind == ptx::Operand::kFloat) return Source(operand, type);
    return Source(operand, *size_bytes);
  }
  if (*size_bytes < ptx::SizeBytes(type)) {
    Fail("'" + std::string(operand.name) + "' is too small for its instruction");
    return 0;
  }
  return static_cast<Ref>(Lookup(operand.name).value);
}

PredicateRef Decoder::SourcePredicate(const ptx::Operand& operand) {
  if (!IsPredicate(operand)) {
    Fail("'" + std::string(operand.name) + "' is no predicate");
    return {};
  }
  return {static_cast<uint32_t>(Lookup(operand.name).value), operand.negated};
}

uint32_t Decoder::DestinationPredicate(const ptx::Operand& operand) {
  if (operand.kind == ptx::Operand::kName && operand.name == "_") return NewPredicate();
  return SourcePredicate(operand).number;
}

// The space that is noted may differ from the requested one: it is that of the named variable, or
// of the running frame.
bool Decoder::Address(const ptx::Operand& operand, ptx::Space space, Instr* in) {
  if (operand.kind != ptx::Operand::kAddress) return Fail("expected an address in brackets");
  in->imm = operand.offset;
  const Symbol symbol = operand.name.empty() ? Symbol() : Lookup(operand.name);
  const bool generic = space == ptx::Space::kGeneric;
  const auto mismatch = [&] {
    return Fail("'" + std::string(operand.name) + "' lies in another state space");
  };
  switch (symbol.kind) {
    case Symbol::kRegister:
      if (symbol.size_bytes != 4 && symbol.size_bytes != 8)
        return Fail("an address has 32 or 64 bits");
      in->a = static_cast<Ref>(symbol.value);
      if (symbol.size_bytes == 4) in->flags |= kAddress32;
      // A device function's parameters lie in local memory, a kernel's in its parameter block.
      if (space == ptx::Space::kParam && !function_.is_entry) space = ptx::Space::kLocal;
      break;
    case Symbol::kGlobal:
      if (!generic && space != ptx::Space::kGlobal && space != ptx::Space::kConst)
        return mismatch();
      in->a = Constant(symbol.value, 8);
      break;
    case Symbol::kShared:
      if (!generic && space != ptx::Space::kShared) return mismatch();
      in->a = Constant(symbol.value, 8);
      // A generic access to a named variable of shared memory: the space is known.
      space = ptx::Space::kShared;
      break;
    case Symbol::kDynamicShared:
      if (!generic && space != ptx::Space::kShared) return mismatch();
      // Its offset is the launch's, so it is read into a register just before.
      in->a = NewRegister(8);
      {
        Instr base;
        base.d = in->a;
        if (!Emit(RuntimeAddress(false, 8), base)) return false;
      }
      space = ptx::Space::kShared;
      break;
    case Symbol::kFrame:
      if (!generic && space != ptx::Space::kLocal && space != ptx::Space::kParam) return mismatch();
      in->a = Constant(symbol.value, 8);
      // kReg stands for the running frame: the offset is relative to that.
      space = ptx::Space::kReg;
      break;
    case Symbol::kParam:
      if (space != ptx::Space::kParam) return mismatch();
      in->a = Constant(symbol.value, 8);
      break;
    // An address that is only a number.
    case Symbol::kNothing:
      if (!operand.name.empty()) return Fail("'" + std::string(operand.name) + "' is not declared");
      in->a = Constant(0, 8);
      break;
    default:
      return Fail("'" + std::string(operand.name) + "' has no address");
  }
  in->flags |= static_cast<uint8_t>(space);
  return true;
}

}  // namespace gpuloom::softgpu
