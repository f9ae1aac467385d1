// SPDX-License-Identifier: Apache-2.0
// The layouts here are those of PTX's figures of mma fragments. They follow one rule: a matrix
// consists of tiles of eight rows or columns; a lane's group (matrix.h) names the row or column in
// a tile, its place the elements along the other direction. Every element goes by way of double,
// which holds the values of all types exactly.
#include "agent/softgpu/exec/machine/matrix.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "agent/softgpu/exec/machine/half.h"
#include "agent/softgpu/exec/machine/warp.h"

namespace gpuloom::softgpu {
namespace {

// Elements of one family multiply with each other.
enum class Family : uint8_t {
  kNone,
  kHalf,
  kBfloat,
  kTf32,
  kEighth,
  kByte,
  kNibble,
  kBit,
  kDouble
};

// One row for each Element, in the order of the enumeration; the name is that of the PTX modifier.
struct Facts {
  std::string_view name;
  uint32_t bits;
  Family family;
  bool integral;
};

constexpr Facts kFacts[] = {
    {"", 0, Family::kNone, false},        {"f16", 16, Family::kHalf, false},
    {"bf16", 16, Family::kBfloat, false}, {"tf32", 32, Family::kTf32, false},
    {"e4m3", 8, Family::kEighth, false},  {"e5m2", 8, Family::kEighth, false},
    {"s8", 8, Family::kByte, true},       {"u8", 8, Family::kByte, true},
    {"s4", 4, Family::kNibble, true},     {"u4", 4, Family::kNibble, true},
    {"b1", 1, Family::kBit, true},        {"f32", 32, Family::kNone, false},
    {"s32", 32, Family::kNone, true},     {"f64", 64, Family::kDouble, false},
};

const Facts& FactsOf(Element element) { return kFacts[static_cast<uint8_t>(element)]; }

// In 32 bits, by wrapping around or saturating.
uint32_t ToInteger(double sum, bool saturate) {
  if (saturate) {
    sum = std::fmin(std::fmax(sum, std::numeric_limits<int32_t>::min()),
                    std::numeric_limits<int32_t>::max());
  }
  return static_cast<uint32_t>(static_cast<int64_t>(sum));  // exact: far below 2^53
}

// Sign-extends the low `bits` bits.
int32_t Signed(uint32_t value, uint32_t bits) {
  return static_cast<int32_t>(value << (32 - bits)) >> (32 - bits);
}

}  // namespace

// Only the first modifier that is an element: the types of a product stand one after another.
Element TakeElement(Modifiers& mods) {
  Element found = Element::kNone;
  mods.TakeFirst([&](std::string_view part) {
    for (size_t i = 1; i < std::size(kFacts); ++i) {
      if (kFacts[i].name == part) found = static_cast<Element>(i);
    }
    return found != Element::kNone;
  });
  return found;
}

uint32_t BitsOf(Element element) { return FactsOf(element).bits; }
bool IsIntegral(Element element) { return FactsOf(element).integral; }

bool AreFactors(Element a, Element b) {
  return FactsOf(a).family != Family::kNone && FactsOf(a).family == FactsOf(b).family;
}

// What may be added to products of elements like `a`: PTX has single or half precision for halves
// and 8-bit floats, else one type for each family.
bool IsSumOf(Element a, Element c) {
  if (IsIntegral(a)) return c == Element::kS32;
  switch (FactsOf(a).family) {
    case Family::kHalf:
    case Family::kEighth:
      return c == Element::kF32 || c == Element::kF16;
    case Family::kDouble:
      return c == Element::kF64;
    default:
      return c == Element::kF32;
  }
}

double ValueOf(Element element, uint64_t word, uint32_t at) {
  const uint32_t bits = FactsOf(element).bits;
  // Shifting a 64-bit word's mask by 64 would be undefined.
  const uint64_t one = bits == 64 ? word : (word >> (bits * at)) & ((uint64_t{1} << bits) - 1);
  const auto low = static_cast<uint32_t>(one);
  switch (element) {
    case Element::kF16:
      return static_cast<double>(ToFloat(Half{static_cast<uint16_t>(low)}));
    case Element::kBf16:
      return static_cast<double>(ToFloat(Bfloat{static_cast<uint16_t>(low)}));
    case Element::kTf32:  // 19 bits count
      return static_cast<double>(std::bit_cast<float>(low & 0xffffe000u));
    case Element::kE4m3:
      return static_cast<double>(ToFloat(E4m3{static_cast<uint8_t>(low)}));
    case Element::kE5m2:
      return static_cast<double>(ToFloat(E5m2{static_cast<uint8_t>(low)}));
    case Element::kF32:
      return static_cast<double>(std::bit_cast<float>(low));
    case Element::kF64:
      return std::bit_cast<double>(one);
    case Element::kS8:
    case Element::kS4:
    case Element::kS32:
      return Signed(low, bits);
    default:
      return low;
  }
}

// For the results of sums only; types that no sum has end as f32.
uint64_t BitsFrom(Element element, double value, bool saturate) {
  switch (element) {
    case Element::kF16:
      return ToHalf(value).bits;
    case Element::kF64:
      return std::bit_cast<uint64_t>(value);
    case Element::kS32:
      return ToInteger(value, saturate);
    default:
      return std::bit_cast<uint32_t>(static_cast<float>(value));
  }
}

// "m16n8k16" and nothing more: a longer name is another modifier.
bool TakeMatrixShape(Modifiers& mods, MatrixShape* shape) {
  return mods.TakeFirst([&](std::string_view part) {
    const char* at = part.data();
    const char* const end = at + part.size();
    const auto number = [&](char letter, uint32_t* value) {
      if (at == end || *at != letter) return false;
      const auto [rest, status] = std::from_chars(at + 1, end, *value);
      at = rest;
      return status == std::errc();
    };
    return number('m', &shape->m) && number('n', &shape->n) && number('k', &shape->k) && at == end;
  });
}

// In the order of rows of A and B, so that the innermost loop runs along memory. Where elements are
// 0 or 1, a + b - 2ab is their exclusive or.
void AddProduct(const Matrix& a, const Matrix& b, bool exclusive, Matrix* c) {
  for (uint32_t i = 0; i < a.rows; ++i) {
    double* const sums = &c->At(i, 0);
    for (uint32_t k = 0; k < a.columns; ++k) {
      const double left = a.At(i, k);
      const double* const right = &b.values[size_t{k} * b.columns];
      if (exclusive) {
        for (uint32_t j = 0; j < b.columns; ++j) sums[j] += left + right[j] - 2 * left * right[j];
      } else {
        for (uint32_t j = 0; j < b.columns; ++j) sums[j] += left * right[j];
      }
    }
  }
}

Fragment Fragment::Of(Element element, Role role, const MatrixShape& shape) {
  Fragment made;
  made.element = element;
  made.role = role;
  made.rows = role == Role::kB ? shape.k : shape.m;
  made.columns = role == Role::kA ? shape.k : shape.n;
  // How many registers of a lane a matrix takes: its elements divided by 32 lanes and by the
  // elements of a register. Some instructions have more, which repeat them, and set the number
  // themselves.
  made.registers = made.rows * made.columns / kLanes / made.PerRegister();
  return made;
}

// Where element `at` of register `index` lies. C and D spread two neighbors over each register or
// pair of registers; A and B fill registers along the direction that is multiplied away.
Fragment::Position Fragment::PositionOf(uint32_t lane, uint32_t index, uint32_t at) const {
  const uint32_t group = lane / 4;
  const uint32_t per = PerRegister();
  if (role == Role::kC) {
    const uint32_t number = index * per + at;
    const uint32_t tile = number / 2;  // of eight rows and columns
    const uint32_t down = rows / 8;
    return {group + 8 * (tile % down), lane % 4 * 2 + number % 2 + 8 * (tile / down)};
  }
  // Tiles of eight rows of A, or columns of B, and 4 * per of the other direction.
  // Never 0: a matrix of fewer elements than a warp's registers hold still has one.
  const uint32_t across = lane % 4 * per + at;
  const uint32_t tile = index % std::max(rows * columns / kLanes / per, 1u);
  if (role == Role::kA) {
    const uint32_t down = rows / 8;
    return {group + 8 * (tile % down), across + 4 * per * (tile / down)};
  }
  const uint32_t down = rows / (4 * per);
  return {across + 4 * per * (tile % down), group + 8 * (tile / down)};
}

// Registers that repeat the matrix are read as well, and give the same values again.
Matrix Fragment::Read(const Warp& warp, const uint32_t* refs) const {
  Matrix matrix(rows, columns);
  const uint32_t per = PerRegister();
  for (uint32_t r = 0; r < registers; ++r) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t word = RegisterBytes() == 8 ? warp.Source<uint64_t>(refs[r])[lane]
                                                 : warp.Source<uint32_t>(refs[r])[lane];
      for (uint32_t j = 0; j < per; ++j) {
        const Position place = PositionOf(lane, r, j);
        matrix.At(place.row, place.column) = ValueOf(element, word, j);
      }
    }
  }
  return matrix;
}

void Fragment::Write(Warp& warp, const uint32_t* refs, const Matrix& matrix, bool saturate) const {
  const uint32_t per = PerRegister();
  for (uint32_t r = 0; r < registers; ++r) {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      uint64_t word = 0;
      for (uint32_t j = 0; j < per; ++j) {
        const Position place = PositionOf(lane, r, j);
        word |= BitsFrom(element, matrix.At(place.row, place.column), saturate)
                << (j * BitsOf(element));
      }
      if (RegisterBytes() == 8) {
        warp.Destination<uint64_t>(refs[r])[lane] = word;
      } else {
        warp.Destination<uint32_t>(refs[r])[lane] = static_cast<uint32_t>(word);
      }
    }
  }
}

}  // namespace gpuloom::softgpu
