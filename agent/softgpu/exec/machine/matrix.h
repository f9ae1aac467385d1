// SPDX-License-Identifier: Apache-2.0
// Matrices as the matrix instructions use them: their elements, how a warp's registers hold them, and their product.
//
// Lane l is in group l / 4 at place l % 4. Where PTX specifies which lane holds what (mma, wgmma), a Fragment follows
// it; where PTX leaves that open (wmma), the same layout is used. Products and sums are computed in double precision
// and rounded once, so results may differ from a GPU's in the last bits.
//
// Pure functions and values; safe from any thread, apart from the warp that a Fragment reads or writes.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "agent/softgpu/exec/decode/modifiers.h"

namespace gpuloom::softgpu {

class Warp;

enum class Element : uint8_t {
  kNone,
  kF16,
  kBf16,
  kTf32,
  kE4m3,
  kE5m2,
  kS8,
  kU8,
  kS4,
  kU4,
  kB1,
  kF32,
  kS32,
  kF64,
};

// Takes the first modifier that names an element; kNone when there is none.
[[nodiscard]] Element TakeElement(Modifiers& mods);
[[nodiscard]] uint32_t BitsOf(Element element);
[[nodiscard]] bool IsIntegral(Element element);
// Whether a product of `a` and `b` exists, and may be added to `c` and kept as `d`.
[[nodiscard]] bool AreFactors(Element a, Element b);
[[nodiscard]] bool IsSumOf(Element a, Element c);

// The at-th element of a register or word.
[[nodiscard]] double ValueOf(Element element, uint64_t word, uint32_t at);
// Rounds to the nearest. Integers wrap around, or stop at the extreme values with `saturate`. For the elements that a
// sum may have.
[[nodiscard]] uint64_t BitsFrom(Element element, double value, bool saturate);

// "m16n8k16" and the like.
struct MatrixShape {
  uint32_t m = 0, n = 0, k = 0;
  bool operator==(const MatrixShape&) const = default;
};
[[nodiscard]] bool TakeMatrixShape(Modifiers& mods, MatrixShape* shape);

struct Matrix {
  Matrix(uint32_t r, uint32_t c) : rows(r), columns(c), values(size_t{r} * c) {}
  [[nodiscard]] double& At(uint32_t row, uint32_t column) {
    return values[size_t{row} * columns + column];
  }
  [[nodiscard]] double At(uint32_t row, uint32_t column) const {
    return values[size_t{row} * columns + column];
  }
  uint32_t rows, columns;
  std::vector<double> values;
};

// c += a * b. With `exclusive`, for bits: counts the elements that differ.
void AddProduct(const Matrix& a, const Matrix& b, bool exclusive, Matrix* c);

enum class Role : uint8_t { kA, kB, kC };  // D has the role of C

// What a warp's registers hold of one matrix. More registers than the matrix needs repeat it.
struct Fragment {
  Element element = Element::kNone;
  Role role = Role::kA;
  uint32_t rows = 0, columns = 0;
  uint32_t registers = 0;  // of each lane

  [[nodiscard]] static Fragment Of(Element element, Role role, const MatrixShape& shape);
  [[nodiscard]] uint32_t RegisterBytes() const { return element == Element::kF64 ? 8 : 4; }
  [[nodiscard]] uint32_t PerRegister() const { return 8 * RegisterBytes() / BitsOf(element); }
  struct Position {
    uint32_t row, column;
  };
  [[nodiscard]] Position PositionOf(uint32_t lane, uint32_t index, uint32_t at) const;
  // Reads all lanes. `refs`: the registers.
  [[nodiscard]] Matrix Read(const Warp& warp, const uint32_t* refs) const;
  void Write(Warp& warp, const uint32_t* refs, const Matrix& matrix, bool saturate) const;
};

}  // namespace gpuloom::softgpu
