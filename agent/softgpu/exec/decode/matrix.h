// SPDX-License-Identifier: Apache-2.0
// What the decoders of matrix instructions share: registers in tables, and the product of fragments.
#pragma once

#include <span>

#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/matrix.h"

namespace gpuloom::softgpu {

// A shape that an instruction has for factors like `a`.
struct MatrixForm {
  MatrixShape shape;
  Element a;
};
[[nodiscard]] bool IsForm(std::span<const MatrixForm> forms, const MatrixShape& shape, Element a);

// The operands of a vector of `count`; one alone needs no braces. Null when there are others.
[[nodiscard]] const ptx::Operand* PartsOf(const ptx::Operand& operand, size_t count);
// Appends the fragment's registers, which `operand` names.
bool AddRegisters(Decoder& decoder, const ptx::Operand& operand, const Fragment& fragment,
                  bool written, std::vector<uint32_t>* refs);
// Gives the function a table, for Instr::target.
uint32_t AddTable(Decoder& decoder, std::vector<uint32_t> refs);

// d = a * b + c, the types being theirs in the order d, a, b, c.
struct Product {
  MatrixShape shape;
  Element types[4] = {};
  bool saturates = false;
  bool exclusive = false;  // bits: those that differ are counted
  // Takes .satfinite, and for bits .and or .xor with .popc; false when these types are no product.
  [[nodiscard]] bool TakeRest(Op& op);
};
// Of the operands d, a, b, c; `half_registers`, if not 0: how many registers hold A and B in half
// precision.
bool EmitProduct(Decoder& decoder, Op& op, const Product& product, uint32_t half_registers);

}  // namespace gpuloom::softgpu
