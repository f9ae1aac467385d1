// SPDX-License-Identifier: Apache-2.0
// atom and red. The processor's atomics, but in shared memory: other blocks and streams run on
// other threads, and other processes may map the same memory. Every operation is sequentially
// consistent, which is stronger than any of the orderings that PTX can ask for.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "agent/softgpu/exec/decode/bulk.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/half.h"
#include "agent/softgpu/exec/machine/integer.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

// By compare and exchange, whatever f does. f may be called again: when the word has changed
// meanwhile, the exchange fails and `before` holds what is there.
template <class T, class F>
T Update(std::byte* at, F f) {
  using Word = std::conditional_t<sizeof(T) == 2, uint16_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  auto* const word = reinterpret_cast<Word*>(at);
  // This is only a first guess.
  Word before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (true) {
    const Word after = std::bit_cast<Word>(f(std::bit_cast<T>(before)));
    if (__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
      return std::bit_cast<T>(before);
    }
  }
}

// The same on shared memory, which only this thread touches.
template <class T, class F>
T UpdateAlone(std::byte* at, F f) {
  T before;
  std::memcpy(&before, at, sizeof(T));
  const T after = f(before);
  std::memcpy(at, &after, sizeof(T));
  return before;
}

// flags bit 7 is not part of an address: whether the old value is written to d.
constexpr uint8_t kReturnsOld = 0x80;

// *a = F(*a, b, c); the lanes one after another, as those of one warp that hit the same word do.
template <class T, class F, bool kShared>
Step Atomic(Warp& warp, const Instr& in) {
  Pointers at;
  if (!warp.Resolve(in, sizeof(T), true, &at)) return Step::kFault;
  const T* b = warp.Source<T>(in.b);
  const T* c = warp.Source<T>(in.c);
  T* d = warp.Destination<T>(in.d);
  ForEach(warp.exec, [&](uint32_t i) {
    std::byte* word = at.At(i);
    // The operands first: d may be the register of one of them.
    const T y = b[i];
    const T z = c[i];
    const auto update = [&](T old) { return static_cast<T>(F{}(old, y, z)); };
    const T before = kShared ? UpdateAlone<T>(word, update) : Update<T>(word, update);
    if (in.flags & kReturnsOld) d[i] = before;
  });
  // A loop around an atomic waits for another thread.
  warp.Waited();
  return Step::kNext;
}

// The same on one word, for instructions that bring addresses and values of their own.
template <class T, class F>
void Reduce(std::byte* at, const std::byte* value, std::byte* before) {
  T y{};
  std::memcpy(&y, value, sizeof(T));
  const T old = Update<T>(at, [&](T x) { return static_cast<T>(F{}(x, y, y)); });
  if (before != nullptr) std::memcpy(before, &old, sizeof(T));
}

// An operation in three forms: on the words of many lanes, anywhere or in shared memory, and on a
// single word.
struct Operation {
  Handler handler = nullptr;
  Handler shared = nullptr;
  Reduction reduce = nullptr;
};

// Only the type of the function counts: a handler calls a new object of it.
template <class T, class F>
Operation Make(F) {
  return {Atomic<T, F, false>, Atomic<T, F, true>, Reduce<T, F>};
}

template <class T>
Operation IntegerAtomic(std::string_view what) {
  if (what == "add") return Make<T>([](T a, T b, T) { return AddWrap(a, b); });
  if (what == "min") return Make<T>([](T a, T b, T) { return std::min(a, b); });
  if (what == "max") return Make<T>([](T a, T b, T) { return std::max(a, b); });
  if constexpr (std::is_same_v<T, uint32_t>) {
    // inc counts from 0 up to b and then starts at 0 again; dec counts down from b, and starts at b
    // from 0 or above b.
    if (what == "inc") return Make<T>([](T a, T b, T) { return a >= b ? 0 : a + 1; });
    if (what == "dec") return Make<T>([](T a, T b, T) { return a == 0 || a > b ? b : a - 1; });
  }
  return {};
}

template <class T>
Operation BitsAtomic(std::string_view what) {
  if (what == "and") return Make<T>([](T a, T b, T) { return a & b; });
  if (what == "or") return Make<T>([](T a, T b, T) { return a | b; });
  if (what == "xor") return Make<T>([](T a, T b, T) { return a ^ b; });
  if (what == "exch") return Make<T>([](T, T b, T) { return b; });
  if (what == "cas") return Make<T>([](T a, T b, T c) { return a == b ? c : a; });
  return {};
}

// A float holds both operands exactly, and the sum is rounded to odd: so it is rounded to 16 bits
// once.
template <class H>
uint16_t AddHalf(uint16_t a, uint16_t b) {
  const double sum = AddRoundToOdd(ToFloat(H{a}), ToFloat(H{b}));
  if constexpr (std::is_same_v<H, Half>) return ToHalf(sum).bits;
  return ToBfloat(sum).bits;
}

// If one of them is not a number, the other one.
template <class H, bool kMax>
uint16_t PickHalf(uint16_t a, uint16_t b) {
  const float x = ToFloat(H{a});
  const float y = ToFloat(H{b});
  if (std::isnan(x)) return std::isnan(y) ? uint16_t{0x7fff} : b;
  // Of two zeros, the positive one is the larger.
  if (x == y) return (std::signbit(x) != kMax) ? a : b;
  return std::isnan(y) || (x > y) == kMax ? a : b;
}

template <uint16_t (*kOne)(uint16_t, uint16_t)>
Operation OfHalf(bool pair) {
  if (!pair) return Make<uint16_t>([](uint16_t a, uint16_t b, uint16_t) { return kOne(a, b); });
  return Make<uint32_t>([](uint32_t a, uint32_t b, uint32_t) {
    const uint32_t low = kOne(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
    const uint32_t high = kOne(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16));
    return (high << 16) | low;
  });
}

template <class H>
Operation HalfAtomic(std::string_view what, bool pair) {
  if (what == "add") return OfHalf<AddHalf<H>>(pair);
  if (what == "min") return OfHalf<PickHalf<H, false>>(pair);
  if (what == "max") return OfHalf<PickHalf<H, true>>(pair);
  return {};
}

Operation FloatAdd(ptx::Type type, ptx::Space space) {
  if (type == ptx::Type::kF64) {
    return Make<double>([](double a, double b, double) { return Made(a + b, a, b); });
  }
  // In global memory a GPU flushes subnormal numbers, in shared memory not. A generic address
  // counts as global.
  if (space != ptx::Space::kShared) {
    return Make<float>(
        [](float a, float b, float) { return Canonical(Flushed(Flushed(a) + Flushed(b))); });
  }
  return Make<float>([](float a, float b, float) { return Canonical(a + b); });
}

Operation Find(ptx::Type type, std::string_view what, ptx::Space space) {
  switch (type) {
    case ptx::Type::kF32:
    case ptx::Type::kF64:
      return what == "add" ? FloatAdd(type, space) : Operation();
    case ptx::Type::kF16:
    case ptx::Type::kF16x2:
      return HalfAtomic<Half>(what, type == ptx::Type::kF16x2);
    case ptx::Type::kBf16:
    case ptx::Type::kBf16x2:
      return HalfAtomic<Bfloat>(what, type == ptx::Type::kBf16x2);
    case ptx::Type::kU32:
      return IntegerAtomic<uint32_t>(what);
    case ptx::Type::kS32:
      return IntegerAtomic<int32_t>(what);
    case ptx::Type::kU64:
      return IntegerAtomic<uint64_t>(what);
    case ptx::Type::kS64:
      return IntegerAtomic<int64_t>(what);
    // PTX has only cas of 16 bits.
    case ptx::Type::kB16:
      return what == "cas" ? BitsAtomic<uint16_t>(what) : Operation();
    case ptx::Type::kB32:
      return BitsAtomic<uint32_t>(what);
    case ptx::Type::kB64:
      return BitsAtomic<uint64_t>(what);
    default:
      return {};
  }
}

// Places in the table of a vector's operation, then the registers of the values and of the results.
enum : uint32_t { kCount, kElementBytes, kVectorRegisters };

// Element after element: a vector is not touched as one. imm: the Reduction; target: the table. The
// address comes from a, as ever, and its offset from the table's last two words.
Step AtomicVector(Warp& warp, const Instr& in) {
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const auto reduce = reinterpret_cast<Reduction>(in.imm);
  const uint32_t count = refs[kCount];
  const uint32_t bytes = refs[kElementBytes];
  Instr place = in;
  place.imm = static_cast<int32_t>(refs.back());
  Pointers at;
  if (!warp.Resolve(place, count * bytes, true, &at)) return Step::kFault;
  ForEach(warp.exec, [&](uint32_t lane) {
    std::byte* const vector = at.At(lane);
    for (uint32_t i = 0; i < count; ++i) {
      const std::byte* const value =
          warp.Source<std::byte>(refs[kVectorRegisters + i]) + size_t{lane} * bytes;
      std::byte* const before =
          (in.flags & kReturnsOld) == 0
              ? nullptr
              : warp.Destination<std::byte>(refs[kVectorRegisters + count + i]) +
                    size_t{lane} * bytes;
      reduce(vector + size_t{i} * bytes, value, before);
    }
  });
  warp.Waited();
  return Step::kNext;
}

bool DecodeVector(Decoder& decoder, Op& op, uint32_t count, std::string_view what, ptx::Type type,
                  bool returns, Instr in) {
  const size_t first = returns ? 1 : 0;
  const uint32_t bytes = ptx::SizeBytes(type);
  if (!ptx::IsFloat(type) || type == ptx::Type::kF64 || count * bytes > 16 ||
      op[first + 1].parts.size() != count || (returns && op[0].parts.size() != count) ||
      in.imm != static_cast<int32_t>(in.imm)) {
    return false;
  }
  std::vector<uint32_t> refs = {count, bytes};
  for (const ptx::Operand& part : op[first + 1].parts) refs.push_back(decoder.Source(part, type));
  for (uint32_t i = 0; returns && i < count; ++i) {
    refs.push_back(decoder.Destination(op[0].parts[i], bytes));
  }
  refs.push_back(static_cast<uint32_t>(in.imm));
  if (returns) in.flags |= kReturnsOld;
  const Reduction reduce = Find(type, what, ptx::Space::kGlobal).reduce;
  if (reduce == nullptr) return false;
  in.imm = reinterpret_cast<int64_t>(reduce);
  std::vector<std::vector<uint32_t>>& tables = decoder.function().tables;
  in.target = static_cast<uint32_t>(tables.size());
  tables.push_back(std::move(refs));
  return decoder.Emit(AtomicVector, in);
}

// Blocks that do this to a word in any order leave the same value.
bool Commutes(std::string_view what, ptx::Type type) {
  return !ptx::IsFloat(type) && (what == "add" || what == "min" || what == "max" || what == "and" ||
                                 what == "or" || what == "xor");
}

// Order and scope of the operation are taken and forgotten.
bool Decode(Decoder& decoder, Op& op, bool returns) {
  Instr in;
  op.mods.TakeOneOf({"relaxed", "acquire", "release", "acq_rel"});
  op.mods.TakeOneOf({"cta", "cluster", "gpu", "sys"});
  const bool hinted = op.mods.Take("L2::cache_hint");  // a policy behind everything else
  op.mods.TakePrefixed("L2::");
  op.mods.Take("noftz");
  ptx::Space space = ptx::Space::kGeneric;
  if (op.mods.Take("global"))
    space = ptx::Space::kGlobal;
  else if (op.mods.TakePrefixed("shared"))
    space = ptx::Space::kShared;
  const std::string_view vector = op.mods.TakeOneOf({"v2", "v4", "v8"});
  const std::string_view what =
      op.mods.TakeOneOf({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"});
  const ptx::Type type = op.mods.TakeType();
  // Without a result they would be stores: PTX has no such red.
  if (!returns && (what == "exch" || what == "cas")) return false;
  const size_t first = returns ? 1 : 0;
  const size_t values = what == "cas" ? 2 : 1;
  if (what.empty() || op.count() != first + 1 + values + (hinted ? 1 : 0)) return false;
  if (!decoder.Address(op[first], space, &in)) return false;
  const bool is_shared = (in.flags & kSpaceMask) == static_cast<uint8_t>(ptx::Space::kShared);
  // A block's shared memory is its own; what blocks leave in global memory must not depend on which
  // comes first.
  if (!is_shared && !Commutes(what, type)) decoder.KeepsOrder();
  if (!vector.empty()) {
    return space != ptx::Space::kShared &&
           DecodeVector(decoder, op, static_cast<uint32_t>(vector[1] - '0'), what, type, returns,
                        in);
  }
  const bool is_half = ptx::IsFloat(type) && type != ptx::Type::kF32 && type != ptx::Type::kF64;
  if (is_half && what != "add") return false;  // of vectors only
  in.b = decoder.Source(op[first + 1], type);
  in.c = values == 2 ? decoder.Source(op[first + 2], type) : in.b;
  if (returns) {
    in.d = decoder.Destination(op[0], ptx::SizeBytes(type));
    // If nothing reads the result, the order of blocks does not show in it.
    if (!is_shared) decoder.ResultKeepsOrder(in.d);
    in.flags |= kReturnsOld;
  }
  const Operation operation = Find(type, what, space);
  return decoder.Emit(is_shared ? operation.shared : operation.handler, in);
}

}  // namespace

bool DecodeAtom(Decoder& decoder, Op& op) { return Decode(decoder, op, true); }
bool DecodeRed(Decoder& decoder, Op& op) {
  return op.mods.Take("async") ? DecodeRedAsync(decoder, op) : Decode(decoder, op, false);
}

Reduction FindReduction(ptx::Type type, std::string_view what, ptx::Space space) {
  return Find(type, what, space).reduce;
}

}  // namespace gpuloom::softgpu
