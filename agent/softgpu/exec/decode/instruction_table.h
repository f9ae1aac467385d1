// SPDX-License-Identifier: Apache-2.0
// Every PTX instruction that softgpu supports. docs/softgpu.md shows this table; a test compares
// them. A constant table; the functions are called by Decoder, on the loader's thread.
#pragma once

#include <span>
#include <string_view>

namespace gpuloom::softgpu {

class Decoder;
struct Op;

struct Instruction {
  std::string_view name;
  std::string_view group;  // heading in the documentation
  std::string_view forms;  // modifiers and types, for people
  // Takes the modifiers that it knows and emits the code. False: not supported.
  bool (*decode)(Decoder&, Op&);
};

[[nodiscard]] const Instruction* FindInstruction(std::string_view name);
[[nodiscard]] std::span<const Instruction> AllInstructions();

// control.cc
bool DecodeBra(Decoder&, Op&);
bool DecodeBrx(Decoder&, Op&);
bool DecodeCall(Decoder&, Op&);
bool DecodeRet(Decoder&, Op&);
bool DecodeExit(Decoder&, Op&);
bool DecodeTrap(Decoder&, Op&);
bool DecodeBrkpt(Decoder&, Op&);
bool DecodeNanosleep(Decoder&, Op&);
bool DecodePmevent(Decoder&, Op&);
bool DecodeGridDependency(Decoder&, Op&);
bool DecodeSetmaxnreg(Decoder&, Op&);
// barrier.cc
bool DecodeBar(Decoder&, Op&);
bool DecodeBarrier(Decoder&, Op&);
bool DecodeBarWarp(Decoder&, Op&);
// texture.cc
bool DecodeTex(Decoder&, Op&);
bool DecodeTld4(Decoder&, Op&);
bool DecodeTxq(Decoder&, Op&);
// surface.cc
bool DecodeSuld(Decoder&, Op&);
bool DecodeSust(Decoder&, Op&);
bool DecodeSured(Decoder&, Op&);
bool DecodeSuq(Decoder&, Op&);
// warp.cc
bool DecodeFence(Decoder&, Op&);
bool DecodeMembar(Decoder&, Op&);
// memory.cc
bool DecodeLd(Decoder&, Op&);
bool DecodeLdu(Decoder&, Op&);
bool DecodeSt(Decoder&, Op&);
bool DecodePrefetch(Decoder&, Op&);
bool DecodeDiscard(Decoder&, Op&);
bool DecodeCreatepolicy(Decoder&, Op&);
bool DecodeAlloca(Decoder&, Op&);
bool DecodeStacksave(Decoder&, Op&);
bool DecodeStackrestore(Decoder&, Op&);
bool DecodeCvta(Decoder&, Op&);
bool DecodeIsspacep(Decoder&, Op&);
bool DecodeMapa(Decoder&, Op&);
bool DecodeGetctarank(Decoder&, Op&);
// copy.cc
bool DecodeCp(Decoder&, Op&);
// tensormap.cc
bool DecodeTensormap(Decoder&, Op&);
// mbarrier.cc
bool DecodeMbarrier(Decoder&, Op&);
// atomics.cc
bool DecodeAtom(Decoder&, Op&);
bool DecodeRed(Decoder&, Op&);
// move.cc
bool DecodeMov(Decoder&, Op&);
bool DecodeSelp(Decoder&, Op&);
bool DecodeSlct(Decoder&, Op&);
bool DecodePrmt(Decoder&, Op&);
// compare.cc
bool DecodeSetp(Decoder&, Op&);
bool DecodeSet(Decoder&, Op&);
bool DecodeTestp(Decoder&, Op&);
// convert.cc
bool DecodeCvt(Decoder&, Op&);
// pack.cc
bool DecodeVideo(Decoder&, Op&);
// arithmetic.cc: integer and floating point share these names
bool DecodeAdd(Decoder&, Op&);
bool DecodeSub(Decoder&, Op&);
bool DecodeMul(Decoder&, Op&);
bool DecodeMad(Decoder&, Op&);
bool DecodeDiv(Decoder&, Op&);
bool DecodeAbs(Decoder&, Op&);
bool DecodeNeg(Decoder&, Op&);
bool DecodeMinMax(Decoder&, Op&);
// integer.cc
bool DecodeMul24(Decoder&, Op&);
bool DecodeMad24(Decoder&, Op&);
bool DecodeSad(Decoder&, Op&);
bool DecodeRem(Decoder&, Op&);
bool DecodeAddc(Decoder&, Op&);
bool DecodeSubc(Decoder&, Op&);
bool DecodeMadc(Decoder&, Op&);
bool DecodeDp(Decoder&, Op&);
// bits.cc
bool DecodeLogic(Decoder&, Op&);
bool DecodeNot(Decoder&, Op&);
bool DecodeCnot(Decoder&, Op&);
bool DecodeLop3(Decoder&, Op&);
bool DecodeShift(Decoder&, Op&);
bool DecodeShf(Decoder&, Op&);
bool DecodeCount(Decoder&, Op&);
bool DecodeBfind(Decoder&, Op&);
bool DecodeFns(Decoder&, Op&);
bool DecodeBrev(Decoder&, Op&);
bool DecodeBfe(Decoder&, Op&);
bool DecodeBfi(Decoder&, Op&);
bool DecodeBmsk(Decoder&, Op&);
bool DecodeSzext(Decoder&, Op&);
// float.cc
bool DecodeFma(Decoder&, Op&);
bool DecodeRcp(Decoder&, Op&);
bool DecodeSqrt(Decoder&, Op&);
bool DecodeCopysign(Decoder&, Op&);
// approximate.cc
bool DecodeRsqrt(Decoder&, Op&);
bool DecodeSinCos(Decoder&, Op&);
bool DecodeLg2(Decoder&, Op&);
bool DecodeEx2(Decoder&, Op&);
bool DecodeTanh(Decoder&, Op&);
// mma.cc
bool DecodeMma(Decoder&, Op&);
// wmma.cc
bool DecodeWmma(Decoder&, Op&);
// wgmma.cc
bool DecodeWgmma(Decoder&, Op&);
// ldmatrix.cc
bool DecodeLdmatrix(Decoder&, Op&);
bool DecodeStmatrix(Decoder&, Op&);
bool DecodeMovmatrix(Decoder&, Op&);
// warp.cc
bool DecodeShfl(Decoder&, Op&);
bool DecodeVote(Decoder&, Op&);
bool DecodeMatch(Decoder&, Op&);
bool DecodeRedux(Decoder&, Op&);
bool DecodeActivemask(Decoder&, Op&);
bool DecodeElect(Decoder&, Op&);

}  // namespace gpuloom::softgpu
