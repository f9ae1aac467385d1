// SPDX-License-Identifier: Apache-2.0
// Approximations of functions: computed in double precision, which is nearer than the hardware's.
#include "agent/softgpu/exec/machine/approximate.h"

#include <bit>
#include <cmath>

#include "agent/softgpu/exec/decode/decoder.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

// All lanes by F::Near(), and again by the library those whose result is in doubt: where the ends
// of its error round to different floats, or F does not know the operand.
template <class F>
Step ApproximateBody(Warp& warp, const Instr& in) {
  const float* a = warp.Source<float>(in.a);
  const float least = LeastOf<float>(in.extra);
  float results[kLanes];
  const uint32_t doubtful = MaskOf([&](uint32_t i) {
    const float x = FlushedBelow(a[i], least);
    const double near = F::Near(static_cast<double>(x));
    const auto low = static_cast<float>(near * kBelow);
    const auto high = static_cast<float>(near * kAbove);
    results[i] = low;
    return std::bit_cast<uint32_t>(low) != std::bit_cast<uint32_t>(high) || !F::IsKnown(x);
  });
  ForEach(doubtful & warp.exec, [&](uint32_t i) {
    results[i] = static_cast<float>(F::Exact(static_cast<double>(FlushedBelow(a[i], least))));
  });
  return Apply<float>(warp, in, [&, mode = in.extra](uint32_t i) { return Out(results[i], mode); });
}

template <class F>
Handler Approximate() {
  return ForVectors<ApproximateBody<F>>();
}

// Computed with the library alone.
Step TanhLanes(Warp& warp, const Instr& in) {
  const float* a = warp.Source<float>(in.a);
  return ApplyEach<float>(warp, in, [a, mode = in.extra](uint32_t i) {
    return Out(static_cast<float>(std::tanh(static_cast<double>(In(a[i], mode)))), mode);
  });
}

// The form that these functions share: .approx, one operand, and at most .ftz.
bool DecodeApprox(Decoder& decoder, Op& op, Handler run) {
  if (!op.mods.Take("approx")) return false;
  Instr in;
  in.extra = TakeFloatMode(op);
  if (op.mods.TakeType() != ptx::Type::kF32 || !Operands(decoder, op, ptx::Type::kF32, 1, &in)) {
    return false;
  }
  return decoder.Emit(run, in);
}

}  // namespace

bool DecodeRsqrt(Decoder& decoder, Op& op) {
  if (TypeOf(op) == ptx::Type::kF32) return DecodeApprox(decoder, op, Approximate<InverseRoot>());
  if (!op.mods.Take("approx")) return false;
  // In double precision.
  Instr in;
  const bool upper_half = op.mods.Take("ftz");
  if (op.mods.TakeType() != ptx::Type::kF64 || !Operands(decoder, op, ptx::Type::kF64, 1, &in)) {
    return false;
  }
  if (!upper_half) {
    return decoder.Emit(Map1<double, double>([](double a) { return Made(1.0 / std::sqrt(a), a); }),
                        in);
  }
  return decoder.Emit(
      Map1<double, double>([](double a) { return UpperHalf(Made(1.0 / std::sqrt(a), a)); }), in);
}

bool DecodeSinCos(Decoder& decoder, Op& op) {
  return DecodeApprox(decoder, op,
                      op.mods.name() == "sin" ? Approximate<Sine>() : Approximate<Cosine>());
}

bool DecodeLg2(Decoder& decoder, Op& op) {
  return DecodeApprox(decoder, op, Approximate<Logarithm>());
}

bool DecodeEx2(Decoder& decoder, Op& op) {
  if (IsHalf(TypeOf(op))) return DecodeHalf(decoder, op, HalfOp::kEx2);
  return DecodeApprox(decoder, op, Approximate<Exponential>());
}

bool DecodeTanh(Decoder& decoder, Op& op) {
  if (IsHalf(TypeOf(op))) return DecodeHalf(decoder, op, HalfOp::kTanh);
  return DecodeApprox(decoder, op, TanhLanes);
}

}  // namespace gpuloom::softgpu
