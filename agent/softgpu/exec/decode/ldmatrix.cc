// SPDX-License-Identifier: Apache-2.0
// ldmatrix, stmatrix and movmatrix: matrices of eight rows of eight elements of 16 bits. Lane l
// holds the elements 2 * (l % 4) and the next of row l / 4 in one register.
#include <cstring>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/matrix.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint32_t kSide = 8;
using Rows = uint16_t[kSide][kSide];

// The lower or upper element of the lane's register; transposed, rows and columns change places.
uint16_t& ElementOf(Rows& rows, bool transposed, uint32_t lane, uint32_t half) {
  const uint32_t across = lane % 4 * 2 + half;
  return transposed ? rows[across][lane / 4] : rows[lane / 4][across];
}

void ToLanes(Rows& rows, bool transposed, uint32_t* words) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    words[lane] = static_cast<uint32_t>(ElementOf(rows, transposed, lane, 1)) << 16 |
                  ElementOf(rows, transposed, lane, 0);
  }
}

void FromLanes(const uint32_t* words, bool transposed, Rows& rows) {
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    ElementOf(rows, transposed, lane, 0) = static_cast<uint16_t>(words[lane]);
    ElementOf(rows, transposed, lane, 1) = static_cast<uint16_t>(words[lane] >> 16);
  }
}

// Lane 8 * i + j gives the address of row j of matrix i. extra: how many matrices; the table: their
// registers, then whether they are transposed.
template <bool kStore>
Step Transfer(Warp& warp, const Instr& in) {
  // The instruction takes whole warps: PTX leaves it undefined otherwise.
  if (warp.exec != kAllLanes) {
    return warp.Fault(Outcome::kIllegalInstruction, 0, "ldmatrix or stmatrix by a part of a warp");
  }
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const bool transposed = refs[in.extra] != 0;
  const auto space = static_cast<ptx::Space>(in.flags & kSpaceMask);
  std::byte* at[kLanes];
  // All addresses first: a destination may be the register that they come from.
  for (uint32_t lane = 0; lane < kSide * in.extra; ++lane) {
    const uint64_t address =
        warp.AddressOf(in.a, (in.flags & kAddress32) != 0, lane) + static_cast<uint64_t>(in.imm);
    constexpr uint32_t kRowBytes = kSide * sizeof(uint16_t);
    if (address % kRowBytes != 0) {
      return warp.Fault(Outcome::kMisaligned, address, "a row of a matrix");
    }
    // Both forms of addresses are of shared memory.
    if (space == ptx::Space::kGeneric && (address & kWindowMask) != kSharedWindow) {
      return warp.Fault(Outcome::kIllegalAddress, address,
                        "a row of a matrix outside of shared memory");
    }
    at[lane] = warp.PointerFor(lane, space, address, kRowBytes, kStore);
    if (at[lane] == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, address, "a row of a matrix outside of memory");
    }
  }
  for (uint32_t i = 0; i < in.extra; ++i) {
    Rows rows;
    if constexpr (kStore) FromLanes(warp.Source<uint32_t>(refs[i]), transposed, rows);
    for (uint32_t j = 0; j < kSide; ++j) {
      std::byte* const row = at[kSide * i + j];
      if constexpr (kStore) {
        std::memcpy(row, rows[j], sizeof(rows[j]));
      } else {
        std::memcpy(rows[j], row, sizeof(rows[j]));
      }
    }
    if constexpr (!kStore) ToLanes(rows, transposed, warp.Destination<uint32_t>(refs[i]));
  }
  return Step::kNext;
}

Step Transpose(Warp& warp, const Instr& in) {
  if (warp.exec != kAllLanes) {
    return warp.Fault(Outcome::kIllegalInstruction, 0, "movmatrix by a part of a warp");
  }
  Rows rows;
  FromLanes(warp.Source<uint32_t>(in.a), false, rows);
  ToLanes(rows, true, warp.Destination<uint32_t>(in.d));
  return Step::kNext;
}

bool DecodeTransfer(Decoder& decoder, Op& op, bool store) {
  if (!op.mods.Take("sync") || !op.mods.Take("aligned") || !op.mods.Take("m8n8")) return false;
  const std::string_view count = op.mods.TakeOneOf({"x1", "x2", "x4"});
  if (count.empty() || op.count() != 2) return false;
  const bool transposed = op.mods.Take("trans");
  // A generic address must lie in the block's shared memory, too.
  const auto space = op.mods.Take("shared") || op.mods.Take("shared::cta") ? ptx::Space::kShared
                                                                           : ptx::Space::kGeneric;
  if (!op.mods.Take("b16")) return false;
  Instr in;
  in.extra = static_cast<uint16_t>(count[1] - '0');
  const ptx::Operand* const parts = PartsOf(op[store ? 1 : 0], in.extra);
  if (parts == nullptr) return false;
  std::vector<uint32_t> refs;
  for (size_t i = 0; i < in.extra; ++i) {
    refs.push_back(store ? decoder.Source(parts[i], 4) : decoder.Destination(parts[i], 4));
  }
  refs.push_back(transposed ? 1 : 0);
  if (!decoder.Address(op[store ? 0 : 1], space, &in)) return false;
  in.target = AddTable(decoder, std::move(refs));
  // Lanes that have diverged come together first.
  return EmitSyncWarp(decoder) && decoder.Emit(store ? Transfer<true> : Transfer<false>, in);
}

}  // namespace

bool DecodeLdmatrix(Decoder& decoder, Op& op) { return DecodeTransfer(decoder, op, false); }
bool DecodeStmatrix(Decoder& decoder, Op& op) { return DecodeTransfer(decoder, op, true); }

bool DecodeMovmatrix(Decoder& decoder, Op& op) {
  for (const char* part : {"sync", "aligned", "m8n8", "trans", "b16"}) {
    if (!op.mods.Take(part)) return false;
  }
  if (op.count() != 2) return false;
  Instr in;
  in.d = decoder.Destination(op[0], 4);
  in.a = decoder.Source(op[1], 4);
  return EmitSyncWarp(decoder) && decoder.Emit(Transpose, in);
}

}  // namespace gpuloom::softgpu
