// SPDX-License-Identifier: Apache-2.0
// wmma: matrices in memory, loaded into and stored from fragments, and products of fragments. Which
// lane holds what is open in PTX; it is here as in mma.
#include <cstring>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/matrix.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// By the element of A. f16 stands for products with f16, the bytes for signed and unsigned ones
// (AreFactors).
constexpr MatrixForm kForms[] = {
    {{16, 16, 16}, Element::kF16},  {{8, 32, 16}, Element::kF16},  {{32, 8, 16}, Element::kF16},
    {{16, 16, 16}, Element::kBf16}, {{8, 32, 16}, Element::kBf16}, {{32, 8, 16}, Element::kBf16},
    {{16, 16, 8}, Element::kTf32},  {{8, 8, 4}, Element::kF64},    {{16, 16, 16}, Element::kS8},
    {{8, 32, 16}, Element::kS8},    {{32, 8, 16}, Element::kS8},   {{8, 8, 32}, Element::kS4},
    {{8, 8, 128}, Element::kB1},
};

// Fragments A and B of half precision have eight registers in every shape, more than they need.
constexpr uint32_t kHalfRegisters = 8;

// Places in the table of a load or store, then the registers.
enum : uint32_t { kElement, kRole, kM, kN, kK, kByColumns, kStride, kRegisters };

// imm and flags: as of every access; kStride: a register with the elements from row to row, or from
// column to column. Elements smaller than a byte lie from the low bits up.
template <bool kStore>
Step Transfer(Warp& warp, const Instr& in) {
  if (warp.exec != kAllLanes) {
    return warp.Fault(Outcome::kIllegalInstruction, 0, "wmma by a part of a warp");
  }
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const MatrixShape shape = {refs[kM], refs[kN], refs[kK]};
  Fragment fragment =
      Fragment::Of(static_cast<Element>(refs[kElement]), static_cast<Role>(refs[kRole]), shape);
  fragment.registers = static_cast<uint32_t>(refs.size()) - kRegisters;
  const uint32_t bits = BitsOf(fragment.element);
  const uint32_t bytes = bits < 8 ? 1 : bits / 8;
  const auto space = static_cast<ptx::Space>(in.flags & kSpaceMask);
  // Every element by itself: rows and columns may lie anywhere, as the stride is the program's.
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t base =
        warp.AddressOf(in.a, (in.flags & kAddress32) != 0, lane) + static_cast<uint64_t>(in.imm);
    if (base % bytes != 0) return warp.Fault(Outcome::kMisaligned, base, "a matrix");
    const uint64_t stride = warp.Source<uint32_t>(refs[kStride])[lane];
    for (uint32_t r = 0; r < fragment.registers; ++r) {
      const Ref ref = refs[kRegisters + r];
      const bool wide = fragment.RegisterBytes() == 8;
      uint64_t word = 0;
      if constexpr (kStore) {
        word = wide ? warp.Source<uint64_t>(ref)[lane] : warp.Source<uint32_t>(ref)[lane];
      }
      for (uint32_t j = 0; j < fragment.PerRegister(); ++j) {
        const Fragment::Position place = fragment.PositionOf(lane, r, j);
        const uint64_t bit = bits * (refs[kByColumns] != 0 ? place.column * stride + place.row
                                                           : place.row * stride + place.column);
        const uint64_t address = base + bit / 8;
        std::byte* const at = warp.PointerFor(lane, space, address, bytes, kStore);
        if (at == nullptr) {
          return warp.Fault(Outcome::kIllegalAddress, address, "a matrix outside of memory");
        }
        if constexpr (kStore) {
          // Whole bytes of the low end: only sums are stored, which have no elements below a byte.
          const uint64_t value = word >> (j * bits);
          std::memcpy(at, &value, bytes);
        } else {
          uint64_t value = 0;
          std::memcpy(&value, at, bytes);
          // Several small elements share a byte.
          if (bits < 8) value = value >> (bit % 8) & ((1u << bits) - 1);
          word |= value << (j * bits);
        }
      }
      if constexpr (!kStore) {
        if (wide) {
          warp.Destination<uint64_t>(ref)[lane] = word;
        } else {
          warp.Destination<uint32_t>(ref)[lane] = static_cast<uint32_t>(word);
        }
      }
    }
  }
  return Step::kNext;
}

// Whether there is a product with these factors or, for C and D, one whose sum has this type.
bool IsFragment(Element element, Role role, const MatrixShape& shape) {
  for (const MatrixForm& form : kForms) {
    if (!(form.shape == shape)) continue;
    if (role == Role::kC ? IsSumOf(form.a, element) : AreFactors(form.a, element)) return true;
  }
  return false;
}

bool DecodeTransfer(Decoder& decoder, Op& op, bool store) {
  const std::string_view which = op.mods.TakeOneOf({"a", "b", "c", "d"});
  if (which.empty() || store != (which == "d") || !op.mods.Take("sync") ||
      !op.mods.Take("aligned")) {
    return false;
  }
  const std::string_view order = op.mods.TakeOneOf({"row", "col"});
  MatrixShape shape;
  if (order.empty() || !TakeMatrixShape(op.mods, &shape)) return false;
  ptx::Space space = ptx::Space::kGeneric;
  if (op.mods.Take("global"))
    space = ptx::Space::kGlobal;
  else if (op.mods.TakePrefixed("shared"))
    space = ptx::Space::kShared;
  const Role role = which == "a" ? Role::kA : which == "b" ? Role::kB : Role::kC;
  const Element element = TakeElement(op.mods);
  if (!IsFragment(element, role, shape) || op.count() < 2 || op.count() > 3) return false;
  Fragment fragment = Fragment::Of(element, role, shape);
  // The instruction names that many registers, and those beyond the matrix repeat it.
  if (element == Element::kF16 && role != Role::kC) fragment.registers = kHalfRegisters;
  const bool by_columns = order == "col";
  std::vector<uint32_t> refs(kRegisters);
  refs[kElement] = static_cast<uint32_t>(element);
  refs[kRole] = static_cast<uint32_t>(role);
  refs[kM] = shape.m;
  refs[kN] = shape.n;
  refs[kK] = shape.k;
  refs[kByColumns] = by_columns ? 1 : 0;
  // Without a stride the matrix is dense.
  refs[kStride] = op.count() == 3
                      ? decoder.Source(op[2], 4)
                      : decoder.Constant(by_columns ? fragment.rows : fragment.columns, 4);
  Instr in;
  if (!AddRegisters(decoder, op[store ? 1 : 0], fragment, !store, &refs) ||
      !decoder.Address(op[store ? 0 : 1], space, &in)) {
    return false;
  }
  in.target = AddTable(decoder, std::move(refs));
  return EmitSyncWarp(decoder) && decoder.Emit(store ? Transfer<true> : Transfer<false>, in);
}

// Whether A and B were stored by rows or by columns mattered only when they were loaded.
bool DecodeProduct(Decoder& decoder, Op& op) {
  if (!op.mods.Take("sync") || !op.mods.Take("aligned")) return false;
  for (int i = 0; i < 2; ++i) {
    if (op.mods.TakeOneOf({"row", "col"}).empty()) return false;
  }
  Product product;
  if (!TakeMatrixShape(op.mods, &product.shape)) return false;
  Element* const types = product.types;
  for (int i = 0; i < 4; ++i) types[i] = TakeElement(op.mods);
  if (types[2] == Element::kNone) {  // half precision names D and C only
    types[3] = types[1];
    types[1] = types[2] = Element::kF16;
  }
  return product.TakeRest(op) && IsForm(kForms, product.shape, types[1]) &&
         EmitProduct(decoder, op, product, kHalfRegisters);
}

}  // namespace

bool DecodeWmma(Decoder& decoder, Op& op) {
  if (op.mods.Take("load")) return DecodeTransfer(decoder, op, false);
  if (op.mods.Take("store")) return DecodeTransfer(decoder, op, true);
  return op.mods.Take("mma") && DecodeProduct(decoder, op);
}

}  // namespace gpuloom::softgpu
