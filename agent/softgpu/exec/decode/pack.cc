// SPDX-License-Identifier: Apache-2.0
// Several small numbers in one register: pairs of 8-bit floating point, cvt.pack, and the video
// instructions of two and four parts.
#include <algorithm>
#include <cstdlib>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/half.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

struct ToBytesE4m3 {
  uint8_t operator()(float value) const { return ToE4m3(static_cast<double>(value)).bits; }
};
struct ToBytesE5m2 {
  uint8_t operator()(float value) const { return ToE5m2(static_cast<double>(value)).bits; }
};

float Relu(float value) { return value < 0 ? 0 : value; }  // not-a-number stays what it is

// d = F(a), F(b): a becomes the upper one.
template <class F, bool kRelu>
Step PackFloats(Warp& warp, const Instr& in) {
  const float* a = warp.Source<float>(in.a);
  const float* b = warp.Source<float>(in.b);
  return Apply<uint16_t>(warp, in, [=](uint32_t i) {
    const auto one = [](float value) -> uint32_t { return F{}(kRelu ? Relu(value) : value); };
    return static_cast<uint16_t>(one(a[i]) << 8 | one(b[i]));
  });
}

template <class F, bool kRelu>
Step PackHalves(Warp& warp, const Instr& in) {
  const uint32_t* a = warp.Source<uint32_t>(in.a);
  return Apply<uint16_t>(warp, in, [=](uint32_t i) {
    const auto one = [](uint32_t bits) -> uint32_t {
      const float value = ToFloat(Half{static_cast<uint16_t>(bits)});
      return F{}(kRelu ? Relu(value) : value);
    };
    return static_cast<uint16_t>(one(a[i] >> 16) << 8 | one(a[i]));
  });
}

// E: E4m3 or E5m2. Every one is a half precision number.
template <class E, bool kRelu>
Step UnpackHalves(Warp& warp, const Instr& in) {
  const uint16_t* a = warp.Source<uint16_t>(in.a);
  return Apply<uint32_t>(warp, in, [=](uint32_t i) {
    const auto one = [](uint32_t bits) -> uint32_t {
      const float value = ToFloat(E{static_cast<uint8_t>(bits)});
      return ToHalf(static_cast<double>(kRelu ? Relu(value) : value)).bits;
    };
    return one(a[i] >> 8u) << 16 | one(a[i]);
  });
}

// cvt.pack: two integers, limited to their parts. extra: bits of a part; flags: it is signed;
// kMerges: c moves up to make room.
template <bool kMerges>
Step PackIntegers(Warp& warp, const Instr& in) {
  const int32_t* a = warp.Source<int32_t>(in.a);
  const int32_t* b = warp.Source<int32_t>(in.b);
  const uint32_t* c = warp.Source<uint32_t>(in.c);
  const uint32_t bits = in.extra;
  const int32_t lowest = in.flags != 0 ? -(1 << (bits - 1)) : 0;
  const int32_t highest = in.flags != 0 ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
  return Apply<uint32_t>(warp, in, [=](uint32_t i) {
    const auto part = [=](int32_t value) {
      return static_cast<uint32_t>(std::clamp(value, lowest, highest)) & ((1u << bits) - 1);
    };
    const uint32_t both = part(a[i]) << bits | part(b[i]);
    return kMerges ? c[i] << (2 * bits) | both : both;
  });
}

enum VideoOp : uint16_t { kAdd, kSubtract, kDifference, kMinimum, kMaximum };

// Instr::flags
constexpr uint8_t kASigned = 0x01;
constexpr uint8_t kBSigned = 0x02;
constexpr uint8_t kResultSigned = 0x04;
constexpr uint8_t kSaturates = 0x08;
constexpr uint8_t kSumsUp = 0x10;  // all parts and c; else the parts stay apart

// Operands are parts of at most 16 bits, so nothing overflows.
int32_t Together(uint16_t op, int32_t a, int32_t b) {
  switch (op) {
    case kAdd:
      return a + b;
    case kSubtract:
      return a - b;
    case kDifference:
      return std::abs(a - b);
    case kMinimum:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

// extra: the VideoOp; imm: how many parts.
Step Video(Warp& warp, const Instr& in) {
  const uint32_t* a = warp.Source<uint32_t>(in.a);
  const uint32_t* b = warp.Source<uint32_t>(in.b);
  const uint32_t* c = warp.Source<uint32_t>(in.c);
  const auto parts = static_cast<uint32_t>(in.imm);
  const uint32_t bits = 32 / parts;
  const uint32_t mask = (1u << bits) - 1;
  const auto part = [=](uint32_t word, uint32_t k, bool is_signed) {
    const uint32_t value = word >> (bits * k) & mask;
    return is_signed ? static_cast<int32_t>(value << (32 - bits)) >> (32 - bits)
                     : static_cast<int32_t>(value);
  };
  // Saturation limits each part to the range of the result's type.
  const bool result_signed = (in.flags & kResultSigned) != 0;
  const int32_t lowest = result_signed ? -(1 << (bits - 1)) : 0;
  const int32_t highest = result_signed ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
  return Apply<uint32_t>(warp, in, [&](uint32_t i) {
    uint32_t packed = 0;
    uint32_t sum = c[i];
    for (uint32_t k = 0; k < parts; ++k) {
      int32_t value = Together(in.extra, part(a[i], k, (in.flags & kASigned) != 0),
                               part(b[i], k, (in.flags & kBSigned) != 0));
      if ((in.flags & kSaturates) != 0) value = std::clamp(value, lowest, highest);
      packed |= (static_cast<uint32_t>(value) & mask) << (bits * k);
      sum += static_cast<uint32_t>(value);
    }
    return (in.flags & kSumsUp) != 0 ? sum : packed;
  });
}

struct VideoName {
  std::string_view name;
  VideoOp op;
};
constexpr VideoName kVideoNames[] = {{"vadd", kAdd},
                                     {"vsub", kSubtract},
                                     {"vabsdiff", kDifference},
                                     {"vmin", kMinimum},
                                     {"vmax", kMaximum}};

// F packs, E is unpacked: they are the two directions of one format.
template <class F, class E, bool kRelu>
bool EmitEighth(Decoder& decoder, Op& op, bool widens) {
  Instr in;
  if (widens) {
    if (!op.mods.Take("f16x2") || op.count() != 2) return false;
    in.d = decoder.Destination(op[0], 4);
    in.a = decoder.Source(op[1], 2);
    return decoder.Emit(UnpackHalves<E, kRelu>, in);
  }
  if (!op.mods.Take("satfinite")) return false;
  const bool from_halves = op.mods.Take("f16x2");
  if (!from_halves && !op.mods.Take("f32")) return false;
  if (op.count() != (from_halves ? 2u : 3u)) return false;
  in.d = decoder.Destination(op[0], 2);
  in.a = from_halves ? decoder.Source(op[1], 4) : decoder.Source(op[1], ptx::Type::kF32);
  if (!from_halves) in.b = decoder.Source(op[2], ptx::Type::kF32);
  return decoder.Emit(from_halves ? PackHalves<F, kRelu> : PackFloats<F, kRelu>, in);
}

}  // namespace

bool DecodeCvtEighth(Decoder& decoder, Op& op) {
  // The first of the two types is the result's.
  std::string_view first;
  const auto take = [&](std::string_view part) {
    if (part != "e4m3x2" && part != "e5m2x2" && part != "f16x2" && part != "f32") return false;
    if (first.empty()) first = part;
    return part == "e4m3x2" || part == "e5m2x2";
  };
  std::string_view eighth;
  if (!op.mods.TakeFirst([&](std::string_view part) {
        if (!take(part)) return false;
        eighth = part;
        return true;
      }) ||
      !op.mods.Take("rn")) {
    return false;
  }
  const bool relu = op.mods.Take("relu");
  const bool widens = first == "f16x2";
  if (eighth == "e4m3x2") {
    return relu ? EmitEighth<ToBytesE4m3, E4m3, true>(decoder, op, widens)
                : EmitEighth<ToBytesE4m3, E4m3, false>(decoder, op, widens);
  }
  return relu ? EmitEighth<ToBytesE5m2, E5m2, true>(decoder, op, widens)
              : EmitEighth<ToBytesE5m2, E5m2, false>(decoder, op, widens);
}

bool DecodeCvtPack(Decoder& decoder, Op& op) {
  if (!op.mods.Take("sat")) return false;
  const std::string_view part =
      op.mods.TakeOneOf({"u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"});
  if (part.empty() || !op.mods.Take("s32")) return false;
  const bool merges = op.mods.Take("b32");
  Instr in;
  in.flags = part[0] == 's' ? 1 : 0;
  in.extra = part.size() == 3 ? 16 : static_cast<uint16_t>(part[1] - '0');
  if ((in.extra == 16) == merges || op.count() != (merges ? 4u : 3u)) return false;
  in.d = decoder.Destination(op[0], 4);
  in.a = decoder.Source(op[1], 4);
  in.b = decoder.Source(op[2], 4);
  in.c = merges ? decoder.Source(op[3], 4) : in.b;
  return decoder.Emit(merges ? PackIntegers<true> : PackIntegers<false>, in);
}

// vadd4 and the like, of whole registers: without masks and selected parts.
bool DecodeVideo(Decoder& decoder, Op& op) {
  const std::string_view name = op.mods.name();
  Instr in;
  in.imm = name.back() - '0';
  for (const VideoName& known : kVideoNames) {
    if (name.substr(0, name.size() - 1) == known.name) in.extra = known.op;
  }
  constexpr uint8_t kSigns[] = {kResultSigned, kASigned, kBSigned};
  for (const uint8_t sign : kSigns) {
    const ptx::Type type = op.mods.TakeType();
    if (type == ptx::Type::kS32) in.flags |= sign;
    if (type != ptx::Type::kS32 && type != ptx::Type::kU32) return false;
  }
  if (op.mods.Take("sat")) in.flags |= kSaturates;
  if (op.mods.Take("add")) in.flags |= kSumsUp;
  if ((in.flags & kSaturates) != 0 && (in.flags & kSumsUp) != 0) return false;
  return Operands(decoder, op, 4, 3, &in) && decoder.Emit(Video, in);
}

}  // namespace gpuloom::softgpu
