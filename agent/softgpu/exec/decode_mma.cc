// mma.sync and ldmatrix: matrices that lie spread over a warp's registers. Products and sums are made
// in double precision and rounded once, so results may differ from a GPU's in the last bit.
//
// Lane l is in group l / 4 at place l % 4. Of what an element has in a register of A or B (`pack` of
// them), register r holds those of row group + 8 * (r % 2) and of columns place * pack +
// 4 * pack * (r / 2) and on; in B, where the group is the column, rows place * pack + 4 * pack * r.
#include <cmath>
#include <limits>

#include "agent/softgpu/exec/decode_types.h"
#include "agent/softgpu/exec/half.h"
#include "agent/softgpu/exec/instruction_table.h"
#include "agent/softgpu/exec/lanes.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint32_t kRows = 16;
constexpr uint32_t kColumns = 8;
constexpr uint32_t kMaxDepth = 32;

// Places in an instruction's table of operands.
enum : uint32_t { kD = 0, kA = 4, kB = 8, kC = 10, kTypes = 14, kMatrixOperands = 18 };

enum class Element : uint32_t { kF16, kBf16, kTf32, kS8, kU8, kF32, kS32 };

uint32_t PackOf(Element type) {
  switch (type) {
    case Element::kF16:
    case Element::kBf16:
      return 2;
    case Element::kS8:
    case Element::kU8:
      return 4;
    default:
      return 1;
  }
}

double ValueOf(Element type, uint32_t word, uint32_t at) {
  switch (type) {
    case Element::kF16:
      return static_cast<double>(ToFloat(Half{static_cast<uint16_t>(word >> (16 * at))}));
    case Element::kBf16:
      return static_cast<double>(ToFloat(Bfloat{static_cast<uint16_t>(word >> (16 * at))}));
    case Element::kTf32:  // 19 bits count
      return static_cast<double>(std::bit_cast<float>(word & 0xffffe000u));
    case Element::kF32:
      return static_cast<double>(std::bit_cast<float>(word));
    case Element::kS8:
      return static_cast<int8_t>(word >> (8 * at));
    case Element::kU8:
      return static_cast<uint8_t>(word >> (8 * at));
    case Element::kS32:
      return static_cast<int32_t>(word);
  }
  return 0;
}

// Of 32 bits, by wrapping around or to the nearest there is.
uint32_t ToInteger(double sum, bool saturate) {
  if (saturate) {
    sum = std::fmin(std::fmax(sum, std::numeric_limits<int32_t>::min()),
                    std::numeric_limits<int32_t>::max());
  }
  return static_cast<uint32_t>(static_cast<int64_t>(sum));  // exact: far below 2^53
}

struct Matrices {
  double a[kRows][kMaxDepth];
  double b[kMaxDepth][kColumns];
  double c[kRows][kColumns];
};

// C and D: register r or its halves hold row group + 8 * (element / 2), column place * 2 and the next.
uint32_t RowOf(uint32_t lane, uint32_t element) { return lane / 4 + 8 * (element / 2); }
uint32_t ColumnOf(uint32_t lane, uint32_t element) { return lane % 4 * 2 + element % 2; }

// flags: satfinite; extra: the depth; target: the table of operands.
Step Multiply(Warp& warp, const Instr& in) {
  if (warp.exec != kAllLanes) {
    return warp.Fault(Outcome::kIllegalInstruction, 0, "mma by a part of a warp");
  }
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const auto d_type = static_cast<Element>(refs[kTypes]);
  const auto a_type = static_cast<Element>(refs[kTypes + 1]);
  const auto b_type = static_cast<Element>(refs[kTypes + 2]);
  const auto c_type = static_cast<Element>(refs[kTypes + 3]);
  const uint32_t depth = in.extra;
  const uint32_t pack = PackOf(a_type);
  Matrices m;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint32_t group = lane / 4;
    const uint32_t place = lane % 4 * pack;
    for (uint32_t k = 0; k < depth; k += 4 * pack) {
      const uint32_t r = k / (4 * pack);
      const uint32_t upper = warp.Source<uint32_t>(refs[kA + 2 * r])[lane];
      const uint32_t lower = warp.Source<uint32_t>(refs[kA + 2 * r + 1])[lane];
      const uint32_t right = warp.Source<uint32_t>(refs[kB + r])[lane];
      for (uint32_t j = 0; j < pack; ++j) {
        m.a[group][k + place + j] = ValueOf(a_type, upper, j);
        m.a[group + 8][k + place + j] = ValueOf(a_type, lower, j);
        m.b[k + place + j][group] = ValueOf(b_type, right, j);
      }
    }
    const uint32_t c_pack = PackOf(c_type);
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t word = warp.Source<uint32_t>(refs[kC + i / c_pack])[lane];
      m.c[RowOf(lane, i)][ColumnOf(lane, i)] = ValueOf(c_type, word, i % c_pack);
    }
  }
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    uint32_t halves[2] = {};
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t row = RowOf(lane, i);
      const uint32_t column = ColumnOf(lane, i);
      double sum = m.c[row][column];
      for (uint32_t k = 0; k < depth; ++k) sum += m.a[row][k] * m.b[k][column];
      if (d_type == Element::kF16) {
        halves[i / 2] |= static_cast<uint32_t>(ToHalf(sum).bits) << (16 * (i % 2));
        if (i % 2 == 1) warp.Destination<uint32_t>(refs[kD + i / 2])[lane] = halves[i / 2];
      } else {
        warp.Destination<uint32_t>(refs[kD + i])[lane] =
            d_type == Element::kS32 ? ToInteger(sum, in.flags != 0)
                                    : std::bit_cast<uint32_t>(static_cast<float>(sum));
      }
    }
  }
  return Step::kNext;
}

bool ElementOf(ptx::Type type, Element* element) {
  switch (type) {
    case ptx::Type::kF16:
      *element = Element::kF16;
      return true;
    case ptx::Type::kBf16:
      *element = Element::kBf16;
      return true;
    case ptx::Type::kF32:
      *element = Element::kF32;
      return true;
    case ptx::Type::kS32:
      *element = Element::kS32;
      return true;
    case ptx::Type::kS8:
      *element = Element::kS8;
      return true;
    case ptx::Type::kU8:
      *element = Element::kU8;
      return true;
    default:
      return false;
  }
}

// .d.a.b.c, of the combinations that there are.
bool TakeTypes(Op& op, Element types[4]) {
  if (op.mods.Take("tf32")) {
    types[1] = types[2] = Element::kTf32;
    return op.mods.Take("tf32") && ElementOf(op.mods.TakeType(), &types[0]) &&
           ElementOf(op.mods.TakeType(), &types[3]) && types[0] == Element::kF32 &&
           types[3] == Element::kF32;
  }
  for (int i = 0; i < 4; ++i) {
    if (!ElementOf(op.mods.TakeType(), &types[i])) return false;
  }
  const auto is = [&](int i, Element type) { return types[i] == type; };
  const auto is_byte = [&](int i) { return is(i, Element::kS8) || is(i, Element::kU8); };
  if (is_byte(1)) return is_byte(2) && is(0, Element::kS32) && is(3, Element::kS32);
  if (is(1, Element::kBf16)) {
    return is(2, Element::kBf16) && is(0, Element::kF32) && is(3, Element::kF32);
  }
  return is(1, Element::kF16) && is(2, Element::kF16) &&
         (is(0, Element::kF32) || is(0, Element::kF16)) &&
         (is(3, Element::kF32) || is(3, Element::kF16));
}

// A vector of so many registers, the ends of which may be left away around a single one.
const ptx::Operand* PartsOf(const ptx::Operand& operand, size_t count) {
  if (operand.kind == ptx::Operand::kVector) {
    return operand.parts.size() == count ? operand.parts.data() : nullptr;
  }
  return count == 1 ? &operand : nullptr;
}

// Lane 8 * i + j gives the address of row j of matrix i; see Multiply for who gets what of it.
// extra: how many matrices; imm: transposed; e: not used.
Step LoadMatrices(Warp& warp, const Instr& in) {
  if (warp.exec != kAllLanes) {
    return warp.Fault(Outcome::kIllegalInstruction, 0, "ldmatrix by a part of a warp");
  }
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const bool transposed = refs[4] != 0;
  uint16_t rows[kLanes][8];
  for (uint32_t lane = 0; lane < 8u * in.extra; ++lane) {
    const uint64_t address =
        warp.AddressOf(in.a, (in.flags & kAddress32) != 0, lane) + static_cast<uint64_t>(in.imm);
    const auto space = static_cast<ptx::Space>(in.flags & kSpaceMask);
    const std::byte* from = warp.PointerFor(lane, space, address, sizeof(rows[0]), false);
    if (from == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, address, "a row of a matrix outside of memory");
    }
    if (address % sizeof(rows[0]) != 0) {
      return warp.Fault(Outcome::kMisaligned, address, "a row of a matrix");
    }
    std::memcpy(rows[lane], from, sizeof(rows[0]));
  }
  for (uint32_t i = 0; i < in.extra; ++i) {
    uint32_t* d = warp.Destination<uint32_t>(refs[i]);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      uint32_t word = 0;
      for (uint32_t j = 0; j < 2; ++j) {
        const uint32_t across = lane % 4 * 2 + j;
        const uint16_t value =
            transposed ? rows[8 * i + across][lane / 4] : rows[8 * i + lane / 4][across];
        word |= static_cast<uint32_t>(value) << (16 * j);
      }
      d[lane] = word;
    }
  }
  return Step::kNext;
}

uint32_t AddTable(Decoder& decoder, std::vector<uint32_t> refs) {
  std::vector<std::vector<uint32_t>>& tables = decoder.function().tables;
  tables.push_back(std::move(refs));
  return static_cast<uint32_t>(tables.size() - 1);
}

}  // namespace

bool DecodeMma(Decoder& decoder, Op& op) {
  if (!op.mods.Take("sync") || !op.mods.Take("aligned")) return false;
  const std::string_view shape = op.mods.TakeOneOf({"m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32"});
  if (shape.empty() || !op.mods.Take("row") || !op.mods.Take("col")) return false;
  const uint32_t depth = shape == "m16n8k4"    ? 4
                         : shape == "m16n8k8"  ? 8
                         : shape == "m16n8k16" ? 16
                                               : 32;
  Instr in;
  if (op.mods.Take("satfinite")) in.flags = 1;
  Element types[4];
  if (!TakeTypes(op, types) || op.count() != 4) return false;
  if (in.flags != 0 && types[0] != Element::kS32) return false;
  const uint32_t pack = PackOf(types[1]);
  const uint32_t steps = depth / (4 * pack);
  if (steps * 4 * pack != depth || (steps != 1 && steps != 2)) return false;
  const size_t d_count = 4 / PackOf(types[0]);
  const size_t c_count = 4 / PackOf(types[3]);
  const ptx::Operand* d = PartsOf(op[0], d_count);
  const ptx::Operand* a = PartsOf(op[1], 2 * steps);
  const ptx::Operand* b = PartsOf(op[2], steps);
  const ptx::Operand* c = PartsOf(op[3], c_count);
  if (d == nullptr || a == nullptr || b == nullptr || c == nullptr) return false;
  std::vector<uint32_t> refs(kMatrixOperands, 0);
  for (size_t i = 0; i < d_count; ++i) refs[kD + i] = decoder.Destination(d[i], 4);
  for (size_t i = 0; i < 2 * steps; ++i) refs[kA + i] = decoder.Source(a[i], 4);
  for (size_t i = 0; i < steps; ++i) refs[kB + i] = decoder.Source(b[i], 4);
  for (size_t i = 0; i < c_count; ++i) refs[kC + i] = decoder.Source(c[i], 4);
  for (size_t i = 0; i < 4; ++i) refs[kTypes + i] = static_cast<uint32_t>(types[i]);
  in.extra = static_cast<uint16_t>(depth);
  in.target = AddTable(decoder, std::move(refs));
  return EmitSyncWarp(decoder) && decoder.Emit(Multiply, in);
}

bool DecodeLdmatrix(Decoder& decoder, Op& op) {
  if (!op.mods.Take("sync") || !op.mods.Take("aligned") || !op.mods.Take("m8n8")) return false;
  const std::string_view count = op.mods.TakeOneOf({"x1", "x2", "x4"});
  if (count.empty() || op.count() != 2) return false;
  const bool transposed = op.mods.Take("trans");
  if (!op.mods.Take("shared") && !op.mods.Take("shared::cta")) return false;
  if (!op.mods.Take("b16")) return false;
  Instr in;
  in.extra = static_cast<uint16_t>(count[1] - '0');
  const ptx::Operand* d = PartsOf(op[0], in.extra);
  if (d == nullptr) return false;
  std::vector<uint32_t> refs(5, 0);
  for (size_t i = 0; i < in.extra; ++i) refs[i] = decoder.Destination(d[i], 4);
  refs[4] = transposed ? 1 : 0;
  if (!decoder.Address(op[1], ptx::Space::kShared, &in)) return false;
  in.target = AddTable(decoder, std::move(refs));
  return EmitSyncWarp(decoder) && decoder.Emit(LoadMatrices, in);
}

}  // namespace gpuloom::softgpu
