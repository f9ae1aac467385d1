// SPDX-License-Identifier: Apache-2.0
// What the decoders of instructions share, and how the decoders of instructions with several types find the file for
// theirs. Used while a module is loaded, on the loader's thread. False: the form is not supported.
#pragma once

#include "agent/softgpu/exec/decode/decoder.h"

namespace gpuloom::softgpu {

// The type that op's decoder would take next.
[[nodiscard]] ptx::Type TypeOf(const Op& op);
// Reads the destination and 1 to 4 sources, all of one size. False when their number differs.
bool Operands(Decoder& decoder, Op& op, uint32_t size_bytes, uint32_t sources, Instr* in);
bool Operands(Decoder& decoder, Op& op, ptx::Type type, uint32_t sources, Instr* in);
// Takes .rn, .rz, .rm, .rp, .ftz and .sat into FloatMode bits.
[[nodiscard]] uint16_t TakeFloatMode(Op& op);

// cvt of pairs of 8-bit floating point, and cvt.pack (pack.cc).
bool DecodeCvtEighth(Decoder& decoder, Op& op);
bool DecodeCvtPack(Decoder& decoder, Op& op);
bool DecodeCopyArrive(Decoder& decoder, Op& op);  // cp.async.mbarrier, in mbarrier.cc
bool DecodeCarrySum(Decoder& decoder, Op& op, bool subtract);
bool DecodeCarryMad(Decoder& decoder, Op& op, bool with_carry);
bool DecodeFloatSum(Decoder& decoder, Op& op, bool subtract);
bool DecodeFloatMul(Decoder& decoder, Op& op);
bool DecodeFloatDiv(Decoder& decoder, Op& op);
bool DecodeFloatSign(Decoder& decoder, Op& op, bool negate);
bool DecodeFloatMinMax(Decoder& decoder, Op& op, bool max);

// Lets all lanes of a warp come together (warp.cc).
bool EmitSyncWarp(Decoder& decoder);

// Half precision and bfloat16, alone or in pairs (half.cc).
enum class HalfOp { kAdd, kSub, kMul, kFma, kMin, kMax, kAbs, kNeg, kEx2, kTanh };
bool DecodeHalf(Decoder& decoder, Op& op, HalfOp what);
[[nodiscard]] bool IsHalf(ptx::Type type);

}  // namespace gpuloom::softgpu
