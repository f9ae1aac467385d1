// SPDX-License-Identifier: Apache-2.0
// Small matrices of whole numbers for tests of the matrix instructions: exact in every type and in any
// order of summing up, so that a GPU and softgpu must agree to the last bit.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace gpuloom::conformance {

struct MatrixType {
  std::string_view name;  // as in PTX
  uint32_t bits;
  uint32_t exponent_bits;  // 0: an integer
  uint32_t fraction_bits;
  int lowest, highest;  // of the numbers that a test takes
};

inline constexpr MatrixType kMatrixTypes[] = {
    {"f16", 16, 5, 10, -3, 3},    {"bf16", 16, 8, 7, -3, 3},      {"tf32", 32, 8, 23, -3, 3},
    {"e4m3", 8, 4, 3, -3, 3},     {"e5m2", 8, 5, 2, -3, 3},       {"s8", 8, 0, 0, -128, 127},
    {"u8", 8, 0, 0, 0, 255},      {"s4", 4, 0, 0, -8, 7},         {"u4", 4, 0, 0, 0, 15},
    {"b1", 1, 0, 0, 0, 1},        {"s32", 32, 0, 0, -1000, 1000}, {"f32", 32, 8, 23, -40, 40},
    {"f64", 64, 11, 52, -40, 40},
};

inline const MatrixType& TypeNamed(std::string_view name) {
  for (const MatrixType& type : kMatrixTypes) {
    if (type.name == name) return type;
  }
  return kMatrixTypes[0];
}

// A whole number as an element. Of floating point, one that the type holds exactly.
inline uint64_t Encode(const MatrixType& type, int64_t value) {
  if (type.exponent_bits == 0) {
    return static_cast<uint64_t>(value) & (type.bits == 64 ? ~0ull : (1ull << type.bits) - 1);
  }
  if (value == 0) return 0;
  const uint64_t sign = value < 0 ? 1ull << (type.bits - 1) : 0;
  const uint64_t magnitude = static_cast<uint64_t>(value < 0 ? -value : value);
  uint32_t exponent = 0;
  while (magnitude >> (exponent + 1) != 0) ++exponent;
  const uint64_t fraction = exponent <= type.fraction_bits
                                ? magnitude << (type.fraction_bits - exponent)
                                : magnitude >> (exponent - type.fraction_bits);
  const uint64_t bias = (1ull << (type.exponent_bits - 1)) - 1;
  return sign | (((exponent + bias - 1) << type.fraction_bits) + fraction);
}

struct WholeMatrix {
  WholeMatrix(uint32_t r, uint32_t c) : rows(r), columns(c), values(size_t{r} * c) {}
  int64_t& At(uint32_t row, uint32_t column) { return values[size_t{row} * columns + column]; }
  int64_t At(uint32_t row, uint32_t column) const { return values[size_t{row} * columns + column]; }
  uint32_t rows, columns;
  std::vector<int64_t> values;
};

// Different numbers of the type's range for every `seed`.
inline WholeMatrix MatrixOf(const MatrixType& type, uint32_t rows, uint32_t columns,
                            uint32_t seed) {
  WholeMatrix matrix(rows, columns);
  uint32_t state = seed * 2654435761u + 12345;
  for (int64_t& value : matrix.values) {
    state = state * 1664525u + 1013904223u;
    value = type.lowest + static_cast<int64_t>(
                              (state >> 8) % static_cast<uint32_t>(type.highest - type.lowest + 1));
  }
  return matrix;
}

// a * b + c; `exclusive`: of bits, the number of those that differ.
inline WholeMatrix ProductOf(const WholeMatrix& a, const WholeMatrix& b, WholeMatrix c,
                             bool exclusive = false) {
  for (uint32_t i = 0; i < a.rows; ++i) {
    for (uint32_t k = 0; k < a.columns; ++k) {
      for (uint32_t j = 0; j < b.columns; ++j) {
        const int64_t left = a.At(i, k), right = b.At(k, j);
        c.At(i, j) += exclusive ? left ^ right : left * right;
      }
    }
  }
  return c;
}

// Puts an element into the bits of an image of memory, bit 0 of byte 0 first.
inline void PutBits(std::vector<uint8_t>* image, uint64_t bit, uint32_t bits, uint64_t value) {
  if (bits < 8) {
    (*image)[bit / 8] |= static_cast<uint8_t>(value << (bit % 8));
  } else {
    std::memcpy(image->data() + bit / 8, &value, bits / 8);
  }
}

inline uint64_t GetBits(const std::vector<uint8_t>& image, uint64_t bit, uint32_t bits) {
  if (bits < 8) return image[bit / 8] >> (bit % 8) & ((1u << bits) - 1);
  uint64_t value = 0;
  std::memcpy(&value, image.data() + bit / 8, bits / 8);
  return value;
}

// "{%a0, %a1}"
inline std::string RegisterList(char name, uint32_t count) {
  std::string text = "{";
  for (uint32_t i = 0; i < count; ++i) {
    text += (i == 0 ? "%" : ", %") + std::string(1, name) + std::to_string(i);
  }
  return text + "}";
}

}  // namespace gpuloom::conformance
