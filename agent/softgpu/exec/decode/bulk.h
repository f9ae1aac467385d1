// SPDX-License-Identifier: Apache-2.0
// What the copies and reductions have in common that report to an mbarrier, or touch whole blocks of memory. The
// Decode… functions run while a module is loaded, on the loader's thread; the others on the thread that runs the warp.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/warp.h"

namespace gpuloom::softgpu {

// *at = op(*at, *value), atomically; `before`, if not null, gets the previous value.
using Reduction = void (*)(std::byte* at, const std::byte* value, std::byte* before);
// nullptr when there is no such reduction. atomics.cc
[[nodiscard]] Reduction FindReduction(ptx::Type type, std::string_view what, ptx::Space space);

// Stores an address operand in a table: where the address comes from, Instr::flags, and what is added to it.
inline constexpr uint32_t kAddressWords = 3;
bool AddAddress(Decoder& decoder, const ptx::Operand& operand, ptx::Space space,
                std::vector<uint32_t>* refs);
struct TableAddress {
  uint64_t address = 0;
  ptx::Space space = ptx::Space::kGeneric;
};
[[nodiscard]] TableAddress AddressIn(const Warp& warp, const uint32_t* refs, uint32_t lane);

// The address in the shared memory of the block with this rank in the cluster that corresponds to `of`.
[[nodiscard]] uint64_t AddressOfRank(uint64_t of, uint32_t rank);

// Tells the mbarrier at a shared address that this many bytes have arrived. False when there is no mbarrier, and the
// warp's fault was set.
bool Report(Warp& warp, uint32_t lane, uint64_t barrier, uint32_t size_bytes);

// Decodes cp.async.bulk and cp.reduce.async.bulk, from the words that follow these.
bool DecodeBulk(Decoder& decoder, Op& op, bool reduces);
// The same with .tensor. tensor.cc
bool DecodeTensorCopy(Decoder& decoder, Op& op, bool reduces);
bool DecodeStAsync(Decoder& decoder, Op& op);
bool DecodeRedAsync(Decoder& decoder, Op& op);

}  // namespace gpuloom::softgpu
