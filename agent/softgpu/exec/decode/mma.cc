// SPDX-License-Identifier: Apache-2.0
// mma: products of matrices that lie spread over a warp's registers.
#include <algorithm>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/matrix.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// Places in an instruction's table of operands, then the registers of D, A, B and C.
enum : uint32_t { kM, kN, kK, kTypes, kCounts = kTypes + 4, kRegisters = kCounts + 4 };

// Instr::flags
constexpr uint8_t kSaturates = 0x01;
constexpr uint8_t kExclusive = 0x02;

constexpr Role kRoles[] = {Role::kC, Role::kA, Role::kB, Role::kC};  // of D, A, B, C

// Operands are read into matrices, multiplied, and written back; D may be the registers of C, A or
// B, which have been read by then.
Step Multiply(Warp& warp, const Instr& in) {
  if (warp.exec != kAllLanes) {
    return warp.Fault(Outcome::kIllegalInstruction, 0, "mma by a part of a warp");
  }
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const MatrixShape shape = {refs[kM], refs[kN], refs[kK]};
  Fragment fragments[4];
  const uint32_t* registers[4] = {};
  uint32_t at = kRegisters;
  for (uint32_t i = 0; i < 4; ++i) {
    fragments[i] = Fragment::Of(static_cast<Element>(refs[kTypes + i]), kRoles[i], shape);
    fragments[i].registers = refs[kCounts + i];
    registers[i] = &refs[at];
    at += fragments[i].registers;
  }
  // The fragments know where each element lies.
  const Matrix a = fragments[1].Read(warp, registers[1]);
  const Matrix b = fragments[2].Read(warp, registers[2]);
  Matrix sum = fragments[3].Read(warp, registers[3]);
  AddProduct(a, b, (in.flags & kExclusive) != 0, &sum);
  fragments[0].Write(warp, registers[0], sum, (in.flags & kSaturates) != 0);
  return Step::kNext;
}

// Shapes by the element of A, as in PTX.
constexpr MatrixForm kForms[] = {
    {{8, 8, 4}, Element::kF64},   {{16, 8, 4}, Element::kF64},   {{16, 8, 8}, Element::kF64},
    {{16, 8, 16}, Element::kF64}, {{16, 8, 8}, Element::kF16},   {{16, 8, 16}, Element::kF16},
    {{16, 8, 8}, Element::kBf16}, {{16, 8, 16}, Element::kBf16}, {{16, 8, 4}, Element::kTf32},
    {{16, 8, 8}, Element::kTf32}, {{16, 8, 16}, Element::kE4m3}, {{16, 8, 32}, Element::kE4m3},
    {{8, 8, 16}, Element::kS8},   {{16, 8, 16}, Element::kS8},   {{16, 8, 32}, Element::kS8},
    {{8, 8, 32}, Element::kS4},   {{16, 8, 32}, Element::kS4},   {{16, 8, 64}, Element::kS4},
    {{8, 8, 128}, Element::kB1},  {{16, 8, 128}, Element::kB1},  {{16, 8, 256}, Element::kB1},
};

}  // namespace

bool IsForm(std::span<const MatrixForm> forms, const MatrixShape& shape, Element a) {
  return std::any_of(forms.begin(), forms.end(), [&](const MatrixForm& form) {
    return form.shape == shape && AreFactors(form.a, a);
  });
}

const ptx::Operand* PartsOf(const ptx::Operand& operand, size_t count) {
  if (operand.kind == ptx::Operand::kVector) {
    return operand.parts.size() == count ? operand.parts.data() : nullptr;
  }
  return count == 1 ? &operand : nullptr;
}

bool AddRegisters(Decoder& decoder, const ptx::Operand& operand, const Fragment& fragment,
                  bool written, std::vector<uint32_t>* refs) {
  const ptx::Operand* const parts = PartsOf(operand, fragment.registers);
  if (parts == nullptr) return false;
  for (uint32_t i = 0; i < fragment.registers; ++i) {
    refs->push_back(written ? decoder.Destination(parts[i], fragment.RegisterBytes())
                            : decoder.Source(parts[i], fragment.RegisterBytes()));
  }
  return true;
}

// The handler gets as many operands as it wants by a table; an Instr has room for five.
uint32_t AddTable(Decoder& decoder, std::vector<uint32_t> refs) {
  std::vector<std::vector<uint32_t>>& tables = decoder.function().tables;
  tables.push_back(std::move(refs));
  return static_cast<uint32_t>(tables.size() - 1);
}

bool Product::TakeRest(Op& op) {
  saturates = op.mods.Take("satfinite");
  // The only rounding of double precision that PTX has here.
  if (types[1] == Element::kF64) op.mods.Take("rn");
  const std::string_view what = op.mods.TakeOneOf({"and", "xor"});
  exclusive = what == "xor";
  const bool of_bits = types[1] == Element::kB1;
  // .popc stands with .and and .xor, and these with bits; only integers saturate.
  return of_bits == !what.empty() && op.mods.Take("popc") == of_bits &&
         (!saturates || (IsIntegral(types[1]) && !of_bits)) && AreFactors(types[1], types[2]) &&
         IsSumOf(types[1], types[0]) && IsSumOf(types[1], types[3]);
}

bool EmitProduct(Decoder& decoder, Op& op, const Product& product, uint32_t half_registers) {
  if (op.count() != 4) return false;
  const MatrixShape& shape = product.shape;
  std::vector<uint32_t> refs(kRegisters);
  refs[kM] = shape.m;
  refs[kN] = shape.n;
  refs[kK] = shape.k;
  // In the order in which PTX writes them: D, A, B, C.
  for (uint32_t i = 0; i < 4; ++i) {
    const Element type = product.types[i];
    Fragment fragment = Fragment::Of(type, kRoles[i], shape);
    const bool is_factor = kRoles[i] != Role::kC;
    if (is_factor && type == Element::kF16 && half_registers != 0) {
      fragment.registers = half_registers;
    }
    refs[kTypes + i] = static_cast<uint32_t>(type);
    refs[kCounts + i] = fragment.registers;
    if (!AddRegisters(decoder, op[i], fragment, i == 0, &refs)) return false;
  }
  Instr in;
  if (product.saturates) in.flags |= kSaturates;
  if (product.exclusive) in.flags |= kExclusive;
  in.target = AddTable(decoder, std::move(refs));
  // .aligned: lanes that have diverged come together first.
  return EmitSyncWarp(decoder) && decoder.Emit(Multiply, in);
}

bool DecodeMma(Decoder& decoder, Op& op) {
  Product product;
  if (!op.mods.Take("sync") || !op.mods.Take("aligned") ||
      !TakeMatrixShape(op.mods, &product.shape) || !op.mods.Take("row") || !op.mods.Take("col")) {
    return false;
  }
  for (Element& type : product.types) type = TakeElement(op.mods);
  return product.TakeRest(op) && IsForm(kForms, product.shape, product.types[1]) &&
         EmitProduct(decoder, op, product, 0);
}

}  // namespace gpuloom::softgpu
