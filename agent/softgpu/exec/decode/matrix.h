// SPDX-License-Identifier: Apache-2.0
// What the decoders of matrix instructions share: registers in tables, and the product of fragments. Used while a
// module is loaded, on the loader's thread.
#pragma once

#include <span>

#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/matrix.h"

namespace gpuloom::softgpu {

// A shape that an instruction supports for factors of type `a`.
struct MatrixForm {
  MatrixShape shape;
  Element a;
};
[[nodiscard]] bool IsForm(std::span<const MatrixForm> forms, const MatrixShape& shape, Element a);

// The operands of a vector of `count`; a single one needs no braces. nullptr when their number differs.
[[nodiscard]] const ptx::Operand* PartsOf(const ptx::Operand& operand, size_t count);
// Appends the fragment's registers, which `operand` names.
bool AddRegisters(Decoder& decoder, const ptx::Operand& operand, const Fragment& fragment,
                  bool written, std::vector<uint32_t>* refs);
// Adds a table to the function, for Instr::target.
uint32_t AddTable(Decoder& decoder, std::vector<uint32_t> refs);

// d = a * b + c; `types` are the types of d, a, b and c in this order.
struct Product {
  MatrixShape shape;
  Element types[4] = {};
  bool saturates = false;
  bool exclusive = false;  // for bits: counts those that differ
  // Takes .satfinite, and for bits .and or .xor with .popc. False when there is no product of these types.
  [[nodiscard]] bool TakeRest(Op& op);
};
// The operands are d, a, b and c. `half_registers`, if not 0, is how many registers hold A and B in half precision.
bool EmitProduct(Decoder& decoder, Op& op, const Product& product, uint32_t half_registers);

}  // namespace gpuloom::softgpu
