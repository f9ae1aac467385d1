// atom and red. Always the processor's atomics: other streams run on other threads, and other
// processes may map the same memory. Every operation is sequentially consistent, which is stronger
// than any of the orderings that PTX can ask for.
#include <algorithm>
#include <atomic>

#include "agent/softgpu/exec/decode_types.h"
#include "agent/softgpu/exec/half.h"
#include "agent/softgpu/exec/instruction_table.h"
#include "agent/softgpu/exec/integer.h"
#include "agent/softgpu/exec/lanes.h"
#include "agent/softgpu/exec/rounded.h"

namespace gpuloom::softgpu {
namespace {

template <class T, class F>
T Update(std::byte* at, F f) {
  using Word = std::conditional_t<sizeof(T) == 2, uint16_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  auto* const word = reinterpret_cast<Word*>(at);
  Word before = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (true) {
    const Word after = std::bit_cast<Word>(f(std::bit_cast<T>(before)));
    if (__atomic_compare_exchange_n(word, &before, after, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST)) {
      return std::bit_cast<T>(before);
    }
  }
}

// flags bit 7 is not part of an address: whether the old value is written to d.
constexpr uint8_t kReturnsOld = 0x80;

// *a = F(*a, b, c); the lanes one after another, as those of one warp that hit the same word do.
template <class T, class F>
Step Atomic(Warp& warp, const Instr& in) {
  Pointers at;
  if (!warp.Resolve(in, sizeof(T), true, &at)) return Step::kFault;
  const T* b = warp.Source<T>(in.b);
  const T* c = warp.Source<T>(in.c);
  T* d = warp.Destination<T>(in.d);
  ForEach(warp.exec, [&](uint32_t i) {
    std::byte* word = at.contiguous ? at.lane[0] + i * sizeof(T) : at.lane[i];
    const T y = b[i];
    const T z = c[i];
    const T before = Update<T>(word, [&](T old) { return static_cast<T>(F{}(old, y, z)); });
    if (in.flags & kReturnsOld) d[i] = before;
  });
  warp.Waited();
  return Step::kNext;
}

template <class T, class F>
Handler Make(F) {
  return Atomic<T, F>;
}

template <class T>
Handler IntegerAtomic(std::string_view what) {
  if (what == "add") return Make<T>([](T a, T b, T) { return AddWrap(a, b); });
  if (what == "min") return Make<T>([](T a, T b, T) { return std::min(a, b); });
  if (what == "max") return Make<T>([](T a, T b, T) { return std::max(a, b); });
  if constexpr (std::is_same_v<T, uint32_t>) {
    if (what == "inc") return Make<T>([](T a, T b, T) { return a >= b ? 0 : a + 1; });
    if (what == "dec") return Make<T>([](T a, T b, T) { return a == 0 || a > b ? b : a - 1; });
  }
  return nullptr;
}

template <class T>
Handler BitsAtomic(std::string_view what) {
  if (what == "and") return Make<T>([](T a, T b, T) { return a & b; });
  if (what == "or") return Make<T>([](T a, T b, T) { return a | b; });
  if (what == "xor") return Make<T>([](T a, T b, T) { return a ^ b; });
  if (what == "exch") return Make<T>([](T, T b, T) { return b; });
  if (what == "cas") return Make<T>([](T a, T b, T c) { return a == b ? c : a; });
  return nullptr;
}

template <class H>
uint16_t AddHalf(uint16_t a, uint16_t b) {
  const double sum = AddToOdd(ToFloat(H{a}), ToFloat(H{b}));
  if constexpr (std::is_same_v<H, Half>) return ToHalf(sum).bits;
  return ToBfloat(sum).bits;
}

template <class H>
Handler PairAdd() {
  return Make<uint32_t>([](uint32_t a, uint32_t b, uint32_t) {
    const uint32_t low = AddHalf<H>(static_cast<uint16_t>(a), static_cast<uint16_t>(b));
    const uint32_t high =
        AddHalf<H>(static_cast<uint16_t>(a >> 16), static_cast<uint16_t>(b >> 16));
    return (high << 16) | low;
  });
}

Handler FloatAdd(ptx::Type type, ptx::Space space) {
  switch (type) {
    case ptx::Type::kF32:
      // In global memory a GPU flushes subnormal numbers, in shared memory not.
      if (space != ptx::Space::kShared) {
        return Make<float>(
            [](float a, float b, float) { return Canonical(Flushed(Flushed(a) + Flushed(b))); });
      }
      return Make<float>([](float a, float b, float) { return Canonical(a + b); });
    case ptx::Type::kF64:
      return Make<double>([](double a, double b, double) { return a + b; });
    case ptx::Type::kF16:
      return Make<uint16_t>([](uint16_t a, uint16_t b, uint16_t) { return AddHalf<Half>(a, b); });
    case ptx::Type::kBf16:
      return Make<uint16_t>([](uint16_t a, uint16_t b, uint16_t) { return AddHalf<Bfloat>(a, b); });
    case ptx::Type::kF16x2:
      return PairAdd<Half>();
    case ptx::Type::kBf16x2:
      return PairAdd<Bfloat>();
    default:
      return nullptr;
  }
}

Handler Find(ptx::Type type, std::string_view what, ptx::Space space) {
  if (ptx::IsFloat(type)) return what == "add" ? FloatAdd(type, space) : nullptr;
  switch (type) {
    case ptx::Type::kU32:
      return IntegerAtomic<uint32_t>(what);
    case ptx::Type::kS32:
      return IntegerAtomic<int32_t>(what);
    case ptx::Type::kU64:
      return IntegerAtomic<uint64_t>(what);
    case ptx::Type::kS64:
      return IntegerAtomic<int64_t>(what);
    case ptx::Type::kB16:
      return what == "cas" ? BitsAtomic<uint16_t>(what) : nullptr;
    case ptx::Type::kB32:
      return BitsAtomic<uint32_t>(what);
    case ptx::Type::kB64:
      return BitsAtomic<uint64_t>(what);
    default:
      return nullptr;
  }
}

bool Decode(Decoder& decoder, Op& op, bool returns) {
  Instr in;
  op.mods.TakeOneOf({"relaxed", "acquire", "release", "acq_rel"});
  op.mods.TakeOneOf({"cta", "cluster", "gpu", "sys"});
  op.mods.TakePrefixed("L2::");
  op.mods.Take("noftz");
  ptx::Space space = ptx::Space::kGeneric;
  if (op.mods.Take("global"))
    space = ptx::Space::kGlobal;
  else if (op.mods.TakePrefixed("shared"))
    space = ptx::Space::kShared;
  const std::string_view what =
      op.mods.TakeOneOf({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"});
  const ptx::Type type = op.mods.TakeType();
  if (!returns && (what == "exch" || what == "cas")) return false;
  const size_t first = returns ? 1 : 0;
  const size_t values = what == "cas" ? 2 : 1;
  if (what.empty() || op.count() < first + 1 + values) return false;
  if (op.count() > first + 1 + values) return false;
  if (!decoder.Address(op[first], space, &in)) return false;
  in.b = decoder.Source(op[first + 1], type);
  in.c = values == 2 ? decoder.Source(op[first + 2], type) : in.b;
  if (returns) {
    in.d = decoder.Destination(op[0], ptx::SizeBytes(type));
    in.flags |= kReturnsOld;
  }
  return decoder.Emit(Find(type, what, space), in);
}

}  // namespace

bool DecodeAtom(Decoder& decoder, Op& op) { return Decode(decoder, op, true); }
bool DecodeRed(Decoder& decoder, Op& op) { return Decode(decoder, op, false); }

}  // namespace gpuloom::softgpu
