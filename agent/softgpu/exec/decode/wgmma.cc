// SPDX-License-Identifier: Apache-2.0
// wgmma: products by four warps together, of matrices in shared memory. Each warp computes its own
// 16 rows and needs nothing of the others, and at once: what a program must do before it may read
// the result, and after it may overwrite the factors, comes later than that.
#include <cstring>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/matrix.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint32_t kWarpsOfGroup = 4;
constexpr uint32_t kRowsOfWarp = 16;
constexpr uint32_t kChunkBytes = 16;  // in which shared memory is swizzled

// A matrix descriptor: where rows (of A) or columns (of B), "lines", of a matrix lie in shared
// memory, in chunks of 16 bytes. A swizzled span of lines is 2, 4 or 8 chunks wide; bits 7 and on
// of an address then change the number of the chunk.
struct Descriptor {
  explicit Descriptor(uint64_t bits)
      // Fields of 14 bits count 16 bytes each.
      : start((bits & 0x3fff) << 4),
        leading(((bits >> 16) & 0x3fff) << 4),
        stride(((bits >> 32) & 0x3fff) << 4),
        base((bits >> 49) & 7),
        span(kSpans[bits >> 62]) {}

  // Indexed by the two bits of the descriptor: not swizzled, then 128, 64 and 32 bytes.
  static constexpr uint64_t kSpans[] = {1, 8, 4, 2};
  uint64_t start;
  uint64_t leading;  // bytes
  uint64_t stride;   // bytes
  uint64_t base;
  uint64_t span;  // chunks; 1: not swizzled

  // `base` is the offset of a pattern that does not begin at a multiple of its size.
  [[nodiscard]] uint64_t Swizzled(uint64_t address) const {
    return address ^ ((((address >> 7) - base) & (span - 1)) << 4);
  }
  // The depth runs along the chunks: chunk `c` of a line.
  [[nodiscard]] uint64_t ChunkOfLine(uint32_t line, uint32_t c) const {
    const uint64_t across = span == 1 ? c * leading : c * kChunkBytes;
    return Swizzled(start + line / 8 * stride + line % 8 * span * kChunkBytes + across);
  }
  // The lines run along the chunks: eight lines from 8 * `c` on, at one depth.
  [[nodiscard]] uint64_t ChunkOfDepth(uint32_t depth, uint32_t c) const {
    const uint64_t within = depth % 8 * span * kChunkBytes;
    if (span == 1) return start + c * stride + within + depth / 8 * leading;
    return Swizzled(start + c / span * leading + c % span * kChunkBytes + within +
                    depth / 8 * stride);
  }
};

// Places in the table of operands, then the registers of D, and of A if it is not in shared memory.
enum : uint32_t { kN, kK, kTypes, kADescriptor = kTypes + 3, kBDescriptor, kRegisters };

// Instr::flags
constexpr uint8_t kSaturates = 0x01;
constexpr uint8_t kAInRegisters = 0x02;
constexpr uint8_t kANegated = 0x04;
constexpr uint8_t kBNegated = 0x08;
constexpr uint8_t kATransposed = 0x10;
constexpr uint8_t kBTransposed = 0x20;

// `lines` lines from `first` on, as rows of a matrix. False when they do not lie in shared memory.
bool ReadLines(Warp& warp, const Descriptor& from, Element element, bool transposed, uint32_t first,
               Matrix* lines) {
  const uint32_t bits = BitsOf(element);
  const uint32_t per = 8 * kChunkBytes / bits;
  // One chunk of 16 bytes; place(j) is where its j-th element belongs.
  const auto read = [&](uint64_t address, auto place) {
    const std::byte* const at =
        warp.PointerFor(0, ptx::Space::kShared, address, kChunkBytes, false);
    if (at == nullptr) {
      warp.Fault(Outcome::kIllegalAddress, address, "a matrix outside of shared memory");
      return false;
    }
    uint64_t words[2];
    std::memcpy(words, at, sizeof(words));
    for (uint32_t j = 0; j < per; ++j)
      place(j) = ValueOf(element, words[2 * j / per], j % (per / 2));
    return true;
  };
  if (transposed) {
    for (uint32_t k = 0; k < lines->columns; ++k) {
      for (uint32_t c = 0; c < lines->rows / per; ++c) {
        const auto place = [&](uint32_t j) -> double& { return lines->At(c * per + j, k); };
        if (!read(from.ChunkOfDepth(k, first / per + c), place)) return false;
      }
    }
    return true;
  }
  for (uint32_t i = 0; i < lines->rows; ++i) {
    for (uint32_t c = 0; c < lines->columns / per; ++c) {
      const auto place = [&](uint32_t j) -> double& { return lines->At(i, c * per + j); };
      if (!read(from.ChunkOfLine(first + i, c), place)) return false;
    }
  }
  return true;
}

Matrix Transposed(const Matrix& matrix) {
  Matrix result(matrix.columns, matrix.rows);
  for (uint32_t i = 0; i < matrix.rows; ++i) {
    for (uint32_t j = 0; j < matrix.columns; ++j) result.At(j, i) = matrix.At(i, j);
  }
  return result;
}

void Negate(Matrix* matrix) {
  for (double& value : matrix->values) value = -value;
}

// d = a * b, or with predicate `a` a * b + d. All lanes have the same descriptors in PTX: lane 0's
// count.
Step Multiply(Warp& warp, const Instr& in) {
  if (warp.exec != kAllLanes) {
    return warp.Fault(Outcome::kIllegalInstruction, 0, "wgmma by a part of a warp");
  }
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const MatrixShape shape = {kRowsOfWarp, refs[kN], refs[kK]};
  const auto d_type = static_cast<Element>(refs[kTypes]);
  const auto a_type = static_cast<Element>(refs[kTypes + 1]);
  const auto b_type = static_cast<Element>(refs[kTypes + 2]);
  const Fragment d = Fragment::Of(d_type, Role::kC, shape);
  const uint32_t* const d_registers = &refs[kRegisters];
  Matrix a(kRowsOfWarp, shape.k);
  if ((in.flags & kAInRegisters) != 0) {
    a = Fragment::Of(a_type, Role::kA, shape).Read(warp, d_registers + d.registers);
  } else {
    const Descriptor from(warp.Source<uint64_t>(refs[kADescriptor])[0]);
    // Which of the group's four bands of 16 rows belongs to this warp.
    const uint32_t first = warp.index() % kWarpsOfGroup * kRowsOfWarp;
    if (!ReadLines(warp, from, a_type, (in.flags & kATransposed) != 0, first, &a)) {
      return Step::kFault;
    }
  }
  // B's lines are columns, read as rows and turned below.
  Matrix b(shape.n, shape.k);
  const Descriptor from(warp.Source<uint64_t>(refs[kBDescriptor])[0]);
  if (!ReadLines(warp, from, b_type, (in.flags & kBTransposed) != 0, 0, &b)) return Step::kFault;
  if ((in.flags & kANegated) != 0) Negate(&a);
  if ((in.flags & kBNegated) != 0) Negate(&b);
  Matrix sum(shape.m, shape.n);
  const bool adds = ((warp.Predicate(in.a) & 1) != 0) != (in.extra != 0);
  if (adds) sum = d.Read(warp, d_registers);
  AddProduct(a, Transposed(b), false, &sum);
  d.Write(warp, d_registers, sum, (in.flags & kSaturates) != 0);
  return Step::kNext;
}

Step Nothing(Warp&, const Instr&) { return Step::kNext; }

// An immediate that is one of two: whether it is the second.
bool TakeChoice(const ptx::Operand& operand, uint64_t first, uint64_t second, uint8_t flag,
                Instr* in) {
  if (operand.kind != ptx::Operand::kInt) return false;
  if (operand.bits == second) in->flags |= flag;
  return operand.bits == first || operand.bits == second;
}

constexpr uint64_t kMinusOne = ~uint64_t{0};
constexpr uint32_t kDepthBits = 256;  // of every line

bool DecodeProduct(Decoder& decoder, Op& op) {
  MatrixShape shape;
  if (!TakeMatrixShape(op.mods, &shape) || shape.m != kWarpsOfGroup * kRowsOfWarp || shape.n == 0 ||
      shape.n % 8 != 0 || shape.n > 256) {
    return false;
  }
  shape.m = kRowsOfWarp;
  Product product;
  product.shape = shape;
  Element* const types = product.types;
  for (int i = 0; i < 3; ++i) types[i] = TakeElement(op.mods);
  types[3] = types[0];
  if (BitsOf(types[1]) == 0 || shape.k * BitsOf(types[1]) != kDepthBits || !product.TakeRest(op) ||
      types[1] == Element::kF64 || types[1] == Element::kS4 || types[1] == Element::kU4 ||
      product.exclusive) {
    return false;
  }
  const Fragment d = Fragment::Of(types[0], Role::kC, shape);
  const Fragment a = Fragment::Of(types[1], Role::kA, shape);
  // d, a, b, scale-d, then for floating point the signs, and for 16 bits who is transposed. A in
  // registers is never transposed.
  const bool a_in_registers = op[1].kind == ptx::Operand::kVector;
  const bool has_signs = !IsIntegral(types[1]);
  const bool has_order = BitsOf(types[1]) == 16;
  const size_t signs = 4;
  const size_t orders = signs + (has_signs ? 2 : 0);
  const size_t count = orders + (has_order ? (a_in_registers ? 1 : 2) : 0);
  if (op.count() != count) return false;
  Instr in;
  std::vector<uint32_t> refs(kRegisters);
  refs[kN] = shape.n;
  refs[kK] = shape.k;
  for (int i = 0; i < 3; ++i) refs[kTypes + i] = static_cast<uint32_t>(types[i]);
  if (!AddRegisters(decoder, op[0], d, true, &refs)) return false;
  // D is read as well, because the product is added to it.
  // Only the life of the registers matters here: refs has them already.
  for (const ptx::Operand& part : op[0].parts) decoder.Source(part, d.RegisterBytes());
  if (a_in_registers) {
    in.flags |= kAInRegisters;
    if (!AddRegisters(decoder, op[1], a, false, &refs)) return false;
  } else {
    refs[kADescriptor] = decoder.Source(op[1], 8);
  }
  refs[kBDescriptor] = decoder.Source(op[2], 8);
  // An immediate is allowed, too; a predicate that is never set is false.
  const PredicateRef adds = op[3].kind == ptx::Operand::kInt
                                ? PredicateRef{decoder.NewPredicate(), op[3].bits != 0}
                                : decoder.SourcePredicate(op[3]);
  in.a = adds.number;
  in.extra = adds.negated ? 1 : 0;
  if (has_signs && (!TakeChoice(op[signs], 1, kMinusOne, kANegated, &in) ||
                    !TakeChoice(op[signs + 1], 1, kMinusOne, kBNegated, &in))) {
    return false;
  }
  if (has_order && ((!a_in_registers && !TakeChoice(op[orders], 0, 1, kATransposed, &in)) ||
                    !TakeChoice(op[count - 1], 0, 1, kBTransposed, &in))) {
    return false;
  }
  if (product.saturates) in.flags |= kSaturates;
  in.target = AddTable(decoder, std::move(refs));
  return EmitSyncWarp(decoder) && decoder.Emit(Multiply, in);
}

}  // namespace

bool DecodeWgmma(Decoder& decoder, Op& op) {
  const std::string_view what =
      op.mods.TakeOneOf({"mma_async", "fence", "commit_group", "wait_group"});
  if (what.empty() || !op.mods.Take("sync") || !op.mods.Take("aligned")) return false;
  if (what == "mma_async") return DecodeProduct(decoder, op);
  // Everything is done when mma_async is.
  return op.count() == (what == "wait_group" ? 1u : 0u) && decoder.Emit(Nothing, Instr());
}

}  // namespace gpuloom::softgpu
