// SPDX-License-Identifier: Apache-2.0
// setp and set.
#include <cmath>

#include "agent/softgpu/exec/decode/decoder.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/half.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

// What is done with the comparison: combine it with a predicate, write a second one, or a register.
enum Extra : uint16_t {
  kCombineMask = 0x03,  // 0 none, 1 and, 2 or, 3 xor
  kNegates = 0x04,      // the predicate that is combined
  kSecond = 0x08,       // e: predicate for the opposite
  kFtz = 0x10,
};

// The result of the executing lanes' comparison, with the other predicate.
uint32_t Combine(Warp& warp, const Instr& in, uint32_t bits) {
  if ((in.extra & kCombineMask) == 0) return bits;
  const uint32_t other = in.extra & kNegates ? ~warp.Predicate(in.c) : warp.Predicate(in.c);
  switch (in.extra & kCombineMask) {
    case 1:
      return bits & other;
    case 2:
      return bits | other;
    default:
      return bits ^ other;
  }
}

// Of all lanes; those that are off are masked when the result is written.
template <class T, class F>
uint32_t Compare(Warp& warp, const Instr& in, F) {
  const T* a = warp.Source<T>(in.a);
  const T* b = warp.Source<T>(in.b);
  if constexpr (std::is_same_v<T, float>) {
    if (in.extra & kFtz) {
      return MaskOf([=](uint32_t i) { return F{}(Flushed(a[i]), Flushed(b[i])); });
    }
  }
  return MaskOf([=](uint32_t i) { return F{}(a[i], b[i]); });
}

template <class T, class F>
Step SetPredicates(Warp& warp, const Instr& in) {
  const uint32_t bits = Compare<T>(warp, in, F{});
  // Both before either is written: d or e may be the predicate that is combined. The second one is
  // the opposite, combined in the same way.
  const uint32_t first = Combine(warp, in, bits);
  const uint32_t second = Combine(warp, in, ~bits);
  warp.SetPredicate(in.d, first);
  if (in.extra & kSecond) warp.SetPredicate(in.e, second);
  return Step::kNext;
}

// imm: what a lane gets where the comparison holds: all ones, or 1.0 in the format of the result.
template <class T, class F, class R>
Step SetRegister(Warp& warp, const Instr& in) {
  const uint32_t bits = Combine(warp, in, Compare<T>(warp, in, F{}));
  const R one = static_cast<R>(in.imm);
  return Apply<R>(warp, in, [=](uint32_t i) { return IsOn(bits, i) ? one : R{0}; });
}

enum class Into { kPredicates, kWord, kHalf };

template <class T, class F>
Handler Make(Into into, F) {
  if (into == Into::kPredicates) return ForVectors<SetPredicates<T, F>>();
  if (into == Into::kWord) return SetRegister<T, F, uint32_t>;
  return SetRegister<T, F, uint16_t>;
}

template <class T>
Handler IntegerCompare(std::string_view how, Into into) {
  if (how == "eq") return Make<T>(into, [](T a, T b) { return a == b; });
  if (how == "ne") return Make<T>(into, [](T a, T b) { return a != b; });
  if (how == "lt") return Make<T>(into, [](T a, T b) { return a < b; });
  if (how == "le") return Make<T>(into, [](T a, T b) { return a <= b; });
  if (how == "gt") return Make<T>(into, [](T a, T b) { return a > b; });
  if (how == "ge") return Make<T>(into, [](T a, T b) { return a >= b; });
  return nullptr;
}

// V: float or double, the result of Value().
template <class V>
bool Unordered(V a, V b) {
  return std::isnan(a) || std::isnan(b);
}

// T holds a value that Value(T) turns into float or double.
template <class T>
Handler FloatCompare(std::string_view how, Into into) {
  if (how == "eq") return Make<T>(into, [](T a, T b) { return Value(a) == Value(b); });
  // Unlike C++'s `!=`, ne is false for a not-a-number.
  if (how == "ne") {
    return Make<T>(into, [](T a, T b) { return Value(a) < Value(b) || Value(a) > Value(b); });
  }
  if (how == "lt") return Make<T>(into, [](T a, T b) { return Value(a) < Value(b); });
  if (how == "le") return Make<T>(into, [](T a, T b) { return Value(a) <= Value(b); });
  if (how == "gt") return Make<T>(into, [](T a, T b) { return Value(a) > Value(b); });
  if (how == "ge") return Make<T>(into, [](T a, T b) { return Value(a) >= Value(b); });
  // The forms that end in u are true for a not-a-number: each negates the ordered comparison that
  // is its opposite.
  if (how == "equ") {
    return Make<T>(into, [](T a, T b) { return !(Value(a) < Value(b) || Value(a) > Value(b)); });
  }
  if (how == "neu") return Make<T>(into, [](T a, T b) { return !(Value(a) == Value(b)); });
  if (how == "ltu") return Make<T>(into, [](T a, T b) { return !(Value(a) >= Value(b)); });
  if (how == "leu") return Make<T>(into, [](T a, T b) { return !(Value(a) > Value(b)); });
  if (how == "gtu") return Make<T>(into, [](T a, T b) { return !(Value(a) <= Value(b)); });
  if (how == "geu") return Make<T>(into, [](T a, T b) { return !(Value(a) < Value(b)); });
  if (how == "num") return Make<T>(into, [](T a, T b) { return !Unordered(Value(a), Value(b)); });
  if (how == "nan") return Make<T>(into, [](T a, T b) { return Unordered(Value(a), Value(b)); });
  return nullptr;
}

Handler Find(ptx::Type type, std::string_view how, Into into) {
  // For unsigned numbers lo, ls, hi and hs are the same comparisons under other names.
  if (ptx::IsUnsigned(type)) {
    if (how == "lo") how = "lt";
    if (how == "ls") how = "le";
    if (how == "hi") how = "gt";
    if (how == "hs") how = "ge";
  }
  switch (type) {
    case ptx::Type::kF32:
      return FloatCompare<float>(how, into);
    case ptx::Type::kF64:
      return FloatCompare<double>(how, into);
    case ptx::Type::kF16:
      return FloatCompare<Half>(how, into);
    case ptx::Type::kBf16:
      return FloatCompare<Bfloat>(how, into);
    case ptx::Type::kB16:
    case ptx::Type::kB32:
    case ptx::Type::kB64:
      // Bits have no order.
      if (how != "eq" && how != "ne") return nullptr;
      break;
    default:
      break;
  }
  return ForInteger(type, [&](auto x) { return IntegerCompare<decltype(x)>(how, into); });
}

std::string_view TakeComparison(Op& op) {
  return op.mods.TakeOneOf({"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ",
                            "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
}

// `at`: where the predicate that is combined stands, behind the operands.
bool TakeCombination(Decoder& decoder, Op& op, size_t at, Instr* in) {
  const std::string_view combine = op.mods.TakeOneOf({"and", "or", "xor"});
  if (combine.empty()) return op.count() == at;
  if (op.count() != at + 1) return false;
  const PredicateRef other = decoder.SourcePredicate(op[at]);
  in->c = other.number;
  in->extra |= combine == "and" ? 1 : combine == "or" ? 2 : 3;
  if (other.negated) in->extra |= kNegates;
  return true;
}

// Half `k` of both sources, in registers of their own.
bool TakeHalves(Decoder& decoder, Op& op, size_t k, Instr* part) {
  part->a = decoder.NewRegister(2);
  part->b = decoder.NewRegister(2);
  for (const auto& [to, from] : {std::pair{part->a, size_t{1}}, std::pair{part->b, size_t{2}}}) {
    Instr take;
    take.d = to;
    take.a = decoder.Source(op[from], 4);
    const Handler low = Map1<uint16_t, uint32_t>([](uint32_t x) { return x; });
    const Handler high = Map1<uint16_t, uint32_t>([](uint32_t x) { return x >> 16; });
    if (!decoder.Emit(k == 0 ? low : high, take)) return false;
  }
  return true;
}

// setp.f16x2 gives one predicate for each half: two comparisons of halves taken apart.
bool DecodePairCompare(Decoder& decoder, Op& op, ptx::Type type, std::string_view how, Instr in) {
  const ptx::Type half = type == ptx::Type::kF16x2 ? ptx::Type::kF16 : ptx::Type::kBf16;
  if (op[0].kind != ptx::Operand::kPair) return false;
  for (size_t k = 0; k < 2; ++k) {
    Instr part = in;
    if (!TakeHalves(decoder, op, k, &part)) return false;
    part.d = decoder.DestinationPredicate(op[0].parts[k]);
    if (!decoder.Emit(Find(half, how, Into::kPredicates), part)) return false;
  }
  return true;
}

// set.f16x2.f16x2 and set.u32.f16x2, in the same way; in.imm is what a half becomes.
bool DecodePairSet(Decoder& decoder, Op& op, ptx::Type type, std::string_view how, Instr in) {
  const bool is_half = type == ptx::Type::kF16x2;
  Instr join;
  Ref results[2] = {};
  for (size_t k = 0; k < 2; ++k) {
    Instr part = in;
    if (!TakeHalves(decoder, op, k, &part)) return false;
    part.d = results[k] = decoder.NewRegister(2);
    const ptx::Type half = is_half ? ptx::Type::kF16 : ptx::Type::kBf16;
    if (!decoder.Emit(Find(half, how, Into::kHalf), part)) return false;
  }
  join.d = decoder.Destination(op[0], 4);
  join.a = results[0];
  join.b = results[1];
  return decoder.Emit(Map2<uint32_t, uint16_t, uint16_t>([](uint16_t low, uint16_t high) {
                        return (static_cast<uint32_t>(high) << 16) | low;
                      }),
                      join);
}

// testp.
template <class T, class F>
Step TestLanes(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  uint32_t bits = 0;
  for (uint32_t i = 0; i < kLanes; ++i) bits |= (F{}(a[i]) ? 1u : 0u) << i;
  warp.SetPredicate(in.d, bits);
  return Step::kNext;
}

template <class T, class F>
Handler Test(F) {
  return TestLanes<T, F>;
}

template <class T>
Handler TestOf(std::string_view what) {
  if (what == "finite") return Test<T>([](T a) { return std::isfinite(a); });
  if (what == "infinite") return Test<T>([](T a) { return std::isinf(a); });
  if (what == "number") return Test<T>([](T a) { return !std::isnan(a); });
  if (what == "notanumber") return Test<T>([](T a) { return std::isnan(a); });
  if (what == "normal") return Test<T>([](T a) { return std::isnormal(a); });
  if (what == "subnormal") return Test<T>([](T a) { return std::fpclassify(a) == FP_SUBNORMAL; });
  return nullptr;
}

}  // namespace

bool DecodeSetp(Decoder& decoder, Op& op) {
  const std::string_view how = TakeComparison(op);
  Instr in;
  if (op.mods.Take("ftz")) in.extra |= kFtz;
  if (!TakeCombination(decoder, op, 3, &in)) return false;
  const ptx::Type type = op.mods.TakeType();
  if (how.empty()) return false;
  if (type == ptx::Type::kF16x2 || type == ptx::Type::kBf16x2) {
    return DecodePairCompare(decoder, op, type, how, in);
  }
  in.a = decoder.Source(op[1], type);
  in.b = decoder.Source(op[2], type);
  if (op[0].kind == ptx::Operand::kPair) {
    in.extra |= kSecond;
    in.d = decoder.DestinationPredicate(op[0].parts[0]);
    in.e = decoder.DestinationPredicate(op[0].parts[1]);
  } else {
    in.d = decoder.DestinationPredicate(op[0]);
  }
  return decoder.Emit(Find(type, how, Into::kPredicates), in);
}

bool DecodeSet(Decoder& decoder, Op& op) {
  const std::string_view how = TakeComparison(op);
  Instr in;
  if (op.mods.Take("ftz")) in.extra |= kFtz;
  if (!TakeCombination(decoder, op, 3, &in)) return false;
  const ptx::Type to = op.mods.TakeType();
  const ptx::Type type = op.mods.TakeType();
  if (type == ptx::Type::kF16x2 || type == ptx::Type::kBf16x2) {
    const bool is_mask = to == ptx::Type::kU32 || to == ptx::Type::kS32;
    // All ones in a half, or 1.0 of its format.
    in.imm = is_mask ? 0xffff : type == ptx::Type::kF16x2 ? 0x3c00 : 0x3f80;
    return (to == type || is_mask) && !how.empty() && DecodePairSet(decoder, op, type, how, in);
  }
  Into into = Into::kWord;
  switch (to) {
    case ptx::Type::kU32:
    case ptx::Type::kS32:
      in.imm = 0xffffffff;
      break;
    case ptx::Type::kF32:
      in.imm = 0x3f800000;
      break;
    case ptx::Type::kU16:
    case ptx::Type::kS16:
      into = Into::kHalf;
      in.imm = 0xffff;
      break;
    // 1.0 in half precision, and below in bfloat16.
    case ptx::Type::kF16:
      into = Into::kHalf;
      in.imm = 0x3c00;
      break;
    case ptx::Type::kBf16:
      into = Into::kHalf;
      in.imm = 0x3f80;
      break;
    default:
      return false;
  }
  in.d = decoder.Destination(op[0], ptx::SizeBytes(to));
  in.a = decoder.Source(op[1], type);
  in.b = decoder.Source(op[2], type);
  return !how.empty() && decoder.Emit(Find(type, how, into), in);
}

bool DecodeTestp(Decoder& decoder, Op& op) {
  const std::string_view what =
      op.mods.TakeOneOf({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  const ptx::Type type = op.mods.TakeType();
  if (op.count() != 2) return false;
  Instr in;
  in.d = decoder.DestinationPredicate(op[0]);
  in.a = decoder.Source(op[1], type);
  if (type == ptx::Type::kF32) return decoder.Emit(TestOf<float>(what), in);
  if (type == ptx::Type::kF64) return decoder.Emit(TestOf<double>(what), in);
  return false;
}

}  // namespace gpuloom::softgpu
