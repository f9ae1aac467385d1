// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/ptx/types.h"

namespace gpuloom::softgpu::ptx {
namespace {

struct Row {
  std::string_view name;
  uint32_t size_bytes;
  char kind;  // b bits, u unsigned, s signed, f float
};

// In the order of the enumeration.
constexpr Row kRows[] = {
    {"", 0, '-'},    {"pred", 0, '-'},  {"b8", 1, 'b'},   {"b16", 2, 'b'},    {"b32", 4, 'b'},
    {"b64", 8, 'b'}, {"b128", 16, 'b'}, {"u8", 1, 'u'},   {"u16", 2, 'u'},    {"u32", 4, 'u'},
    {"u64", 8, 'u'}, {"s8", 1, 's'},    {"s16", 2, 's'},  {"s32", 4, 's'},    {"s64", 8, 's'},
    {"f16", 2, 'f'}, {"f16x2", 4, 'f'}, {"bf16", 2, 'f'}, {"bf16x2", 4, 'f'}, {"f32", 4, 'f'},
    {"f64", 8, 'f'},
};

const Row& RowOf(Type type) { return kRows[static_cast<size_t>(type)]; }

}  // namespace

// The first row is kNone, whose name no type has.
Type FindType(std::string_view name) {
  for (size_t i = 1; i < sizeof(kRows) / sizeof(kRows[0]); ++i) {
    if (kRows[i].name == name) return static_cast<Type>(i);
  }
  return Type::kNone;
}

std::string_view TypeName(Type type) { return RowOf(type).name; }
uint32_t SizeBytes(Type type) { return RowOf(type).size_bytes; }
bool IsSigned(Type type) { return RowOf(type).kind == 's'; }
bool IsUnsigned(Type type) { return RowOf(type).kind == 'u'; }
bool IsFloat(Type type) { return RowOf(type).kind == 'f'; }
bool IsBits(Type type) { return RowOf(type).kind == 'b'; }

}  // namespace gpuloom::softgpu::ptx
