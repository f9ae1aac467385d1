// SPDX-License-Identifier: Apache-2.0
// The fundamental types and state spaces of PTX. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpuloom::softgpu::ptx {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kF32,
  kF64,
};

enum class Space : uint8_t { kGeneric, kReg, kGlobal, kConst, kShared, kLocal, kParam };

// The type spelt `name` ("u32"), or kNone.
[[nodiscard]] Type FindType(std::string_view name);
[[nodiscard]] std::string_view TypeName(Type type);
// Size of one value; 0 for kNone and kPred.
[[nodiscard]] uint32_t SizeBytes(Type type);
[[nodiscard]] bool IsSigned(Type type);
[[nodiscard]] bool IsUnsigned(Type type);
[[nodiscard]] bool IsFloat(Type type);
[[nodiscard]] bool IsBits(Type type);

}  // namespace gpuloom::softgpu::ptx
