// SPDX-License-Identifier: Apache-2.0
// cp.async.bulk, cp.reduce.async.bulk, st.async and red.async: done at once, and reported at once.
#include "agent/softgpu/exec/decode/bulk.h"

#include <cstring>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/mbarrier.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint32_t kBulkBytes = 16;  // what addresses and sizes are multiples of

Step Nothing(Warp&, const Instr&) { return Step::kNext; }

// Places in the table of a bulk copy.
enum : uint32_t {
  kTo,
  kFrom = kTo + kAddressWords,
  kBarrier = kFrom + kAddressWords,
  kSize = kBarrier + kAddressWords,
  kMask,         // of blocks, when kMulticast
  kElementBytes  // of a reduction
};

// Instr::flags
constexpr uint8_t kReports = 0x01;
constexpr uint8_t kMulticast = 0x02;
constexpr uint8_t kWithinCluster = 0x04;  // from shared memory to shared memory

// Blocks reach each other in clusters only, and hardware insists on one even where a block reaches
// itself.
bool HasCluster(Warp& warp) {
  if (warp.block().run().grid.has_clusters) return true;
  warp.Fault(Outcome::kIllegalInstruction, 0, "a launch without clusters has no shared::cluster");
  return false;
}

// One copy, of one lane to one block. `to` and `barrier` come from the caller, as a multicast has
// others for each block.
bool CopyTo(Warp& warp, const Instr& in, const std::vector<uint32_t>& refs, uint32_t lane,
            uint64_t to, uint64_t barrier) {
  const TableAddress target = AddressIn(warp, &refs[kTo], lane);
  const TableAddress source = AddressIn(warp, &refs[kFrom], lane);
  const uint32_t size = warp.Source<uint32_t>(refs[kSize])[lane];
  if (size % kBulkBytes != 0 || to % kBulkBytes != 0 || source.address % kBulkBytes != 0) {
    warp.Fault(Outcome::kMisaligned, to % kBulkBytes != 0 ? to : source.address,
               "a bulk copy is not of whole, aligned 16 bytes");
    return false;
  }
  // The whole range at once: it lies in one piece or faults.
  std::byte* const at = warp.PointerFor(lane, target.space, to, size, true);
  const std::byte* const from = warp.PointerFor(lane, source.space, source.address, size, false);
  if (at == nullptr || from == nullptr) {
    warp.Fault(Outcome::kIllegalAddress, at == nullptr ? to : source.address,
               "a bulk copy touches what is no memory");
    return false;
  }
  if (const auto reduce = reinterpret_cast<Reduction>(in.imm); reduce != nullptr) {
    for (uint32_t i = 0; i < size; i += refs[kElementBytes]) reduce(at + i, from + i, nullptr);
  } else {
    // The two may overlap in shared memory.
    std::memmove(at, from, size);
  }
  return (in.flags & kReports) == 0 || Report(warp, lane, barrier, size);
}

// imm: a Reduction, or 0 to copy.
Step CopyBulk(Warp& warp, const Instr& in) {
  if ((in.flags & kWithinCluster) != 0 && !HasCluster(warp)) return Step::kFault;
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint64_t to = AddressIn(warp, &refs[kTo], lane).address;
    const uint64_t barrier =
        (in.flags & kReports) != 0 ? AddressIn(warp, &refs[kBarrier], lane).address : 0;
    if ((in.flags & kMulticast) == 0) {
      if (!CopyTo(warp, in, refs, lane, to, barrier)) return Step::kFault;
      continue;
    }
    // A bit for each rank of the cluster.
    const uint32_t mask = warp.Source<uint16_t>(refs[kMask])[lane];
    for (uint32_t rank = 0; rank < 16; ++rank) {
      if (((mask >> rank) & 1) == 0) continue;
      if (!CopyTo(warp, in, refs, lane, AddressOfRank(to, rank), AddressOfRank(barrier, rank))) {
        return Step::kFault;
      }
    }
  }
  return Step::kNext;
}

// Places in the table of st.async and red.async, then the registers.
enum : uint32_t { kStoreTo, kStoreBarrier = kStoreTo + kAddressWords, kCount = 6, kBytes, kValues };

Step StoreAsync(Warp& warp, const Instr& in) {
  if (!HasCluster(warp)) return Step::kFault;
  const std::vector<uint32_t>& refs = warp.frame->function->tables[in.target];
  const uint32_t bytes = refs[kBytes];
  // A vector is aligned as a whole.
  const uint32_t all = bytes * refs[kCount];
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint64_t to = AddressIn(warp, &refs[kStoreTo], lane).address;
    if (to % all != 0) return warp.Fault(Outcome::kMisaligned, to, "st.async is not aligned");
    std::byte* const at = warp.PointerFor(lane, ptx::Space::kShared, to, all, true);
    if (at == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, to, "st.async outside of shared memory");
    }
    const auto reduce = reinterpret_cast<Reduction>(in.imm);
    for (uint32_t i = 0; i < refs[kCount]; ++i) {
      const std::byte* const value =
          warp.Source<std::byte>(refs[kValues + i]) + size_t{lane} * bytes;
      if (reduce != nullptr) {
        reduce(at + size_t{i} * bytes, value, nullptr);
      } else {
        std::memcpy(at + size_t{i} * bytes, value, bytes);
      }
    }
    // All lanes report, each its own bytes.
    if (!Report(warp, lane, AddressIn(warp, &refs[kStoreBarrier], lane).address, all)) {
      return Step::kFault;
    }
  }
  return Step::kNext;
}

bool EmitStoreAsync(Decoder& decoder, Op& op, uint32_t count, ptx::Type type, Reduction reduce) {
  if (op.count() != 3 || !op.mods.Take("mbarrier::complete_tx::bytes")) return false;
  std::vector<uint32_t> refs;
  if (!AddAddress(decoder, op[0], ptx::Space::kShared, &refs) ||
      !AddAddress(decoder, op[2], ptx::Space::kShared, &refs)) {
    return false;
  }
  refs.push_back(count);
  refs.push_back(ptx::SizeBytes(type));
  if (count > 1 && op[1].parts.size() != count) return false;
  for (uint32_t i = 0; i < count; ++i) {
    refs.push_back(decoder.Source(count > 1 ? op[1].parts[i] : op[1], type));
  }
  Instr in;
  in.imm = reinterpret_cast<int64_t>(reduce);
  std::vector<std::vector<uint32_t>>& tables = decoder.function().tables;
  in.target = static_cast<uint32_t>(tables.size());
  tables.push_back(std::move(refs));
  return decoder.Emit(StoreAsync, in);
}

}  // namespace

// The words of a table have 32 bits, so larger offsets are not supported.
bool AddAddress(Decoder& decoder, const ptx::Operand& operand, ptx::Space space,
                std::vector<uint32_t>* refs) {
  Instr in;
  if (!decoder.Address(operand, space, &in) || in.imm != static_cast<int32_t>(in.imm)) return false;
  refs->insert(refs->end(), {in.a, in.flags, static_cast<uint32_t>(in.imm)});
  return true;
}

TableAddress AddressIn(const Warp& warp, const uint32_t* refs, uint32_t lane) {
  const auto offset = static_cast<uint64_t>(int64_t{static_cast<int32_t>(refs[2])});
  return {warp.AddressOf(refs[0], (refs[1] & kAddress32) != 0, lane) + offset,
          static_cast<ptx::Space>(refs[1] & kSpaceMask)};
}

// A rank that the address has already is replaced.
uint64_t AddressOfRank(uint64_t of, uint32_t rank) {
  return (of & ((uint64_t{1} << kClusterRankShift) - 1)) | (uint64_t{rank} + 1)
                                                               << kClusterRankShift;
}

// Not atomic: only the cluster's thread touches a barrier in shared memory.
bool Report(Warp& warp, uint32_t lane, uint64_t barrier, uint32_t size_bytes) {
  std::byte* const word =
      barrier % sizeof(uint64_t) == 0
          ? warp.PointerFor(lane, ptx::Space::kShared, barrier, sizeof(uint64_t), true)
          : nullptr;
  if (word == nullptr) {
    warp.Fault(Outcome::kIllegalAddress, barrier, "a copy reports to no mbarrier");
    return false;
  }
  Mbarrier state = Mbarrier::Load(word);
  state.Complete(size_bytes);
  state.Store(word);
  return true;
}

bool DecodeBulk(Decoder& decoder, Op& op, bool reduces) {
  if (op.mods.Take("tensor")) return DecodeTensorCopy(decoder, op, reduces);
  // All copies are done where they stand, so groups of them are empty.
  if (op.mods.Take("commit_group")) return op.count() == 0 && decoder.Emit(Nothing, Instr());
  if (op.mods.Take("wait_group")) {
    op.mods.Take("read");
    return op.count() == 1 && decoder.Emit(Nothing, Instr());
  }
  const bool hinted = op.mods.Take("L2::cache_hint");  // a policy behind everything else
  if (op.mods.Take("prefetch")) {
    Instr in;
    return op.mods.Take("L2") && op.mods.Take("global") && op.count() == (hinted ? 3u : 2u) &&
           decoder.Address(op[0], ptx::Space::kGlobal, &in) && decoder.Emit(Nothing, Instr());
  }
  const bool reports = op.mods.Take("mbarrier::complete_tx::bytes");
  if (!reports && !op.mods.Take("bulk_group")) return false;
  const bool multicast = op.mods.Take("multicast::cluster");
  const bool to_global = !reports;
  const bool from_global = reports && op.mods.Take("global");
  if (to_global && !op.mods.Take("global")) return false;
  if (!op.mods.TakePrefixed("shared")) return false;
  const size_t last = (reports ? 4u : 3u) + (multicast ? 1 : 0);
  if (op.count() != last + (hinted ? 1 : 0)) return false;
  const auto space = [](bool global) { return global ? ptx::Space::kGlobal : ptx::Space::kShared; };
  Instr in;
  std::vector<uint32_t> refs;
  // Without a barrier the third place holds an address that nobody reads.
  if (!AddAddress(decoder, op[0], space(to_global), &refs) ||
      !AddAddress(decoder, op[1], space(from_global), &refs) ||
      !AddAddress(decoder, op[reports ? 3 : 1], reports ? ptx::Space::kShared : space(from_global),
                  &refs)) {
    return false;
  }
  refs.push_back(decoder.Source(op[2], 4));
  refs.push_back(multicast ? decoder.Source(op[4], 2) : 0);
  refs.push_back(0);
  if (reports) in.flags |= kReports;
  if (multicast) in.flags |= kMulticast;
  // Only then does it need a cluster; a copy from global memory to the block itself does not.
  if (reports && !from_global) in.flags |= kWithinCluster;
  if (reduces) {
    // As in tensor.cc: what is added to may be other blocks' as well.
    decoder.KeepsOrder();
    const std::string_view what =
        op.mods.TakeOneOf({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
    op.mods.Take("noftz");
    const ptx::Type type = op.mods.TakeType();
    const Reduction reduce = FindReduction(type, what, space(to_global));
    if (what.empty() || reduce == nullptr || multicast || from_global) return false;
    refs[kElementBytes] = ptx::SizeBytes(type);
    in.imm = reinterpret_cast<int64_t>(reduce);
  }
  std::vector<std::vector<uint32_t>>& tables = decoder.function().tables;
  in.target = static_cast<uint32_t>(tables.size());
  tables.push_back(std::move(refs));
  return decoder.Emit(CopyBulk, in);
}

bool DecodeStAsync(Decoder& decoder, Op& op) {
  op.mods.Take("weak");
  if (!op.mods.Take("shared::cluster")) return false;
  const std::string_view vector = op.mods.TakeOneOf({"v2", "v4"});
  const ptx::Type type = op.mods.TakeType();
  if (ptx::SizeBytes(type) != 4 && ptx::SizeBytes(type) != 8) return false;
  const uint32_t count = vector.empty() ? 1 : static_cast<uint32_t>(vector[1] - '0');
  return EmitStoreAsync(decoder, op, count, type, nullptr);
}

bool DecodeRedAsync(Decoder& decoder, Op& op) {
  op.mods.Take("relaxed");
  op.mods.Take("cluster");
  if (!op.mods.Take("shared::cluster")) return false;
  const std::string_view what =
      op.mods.TakeOneOf({"add", "min", "max", "inc", "dec", "and", "or", "xor"});
  const ptx::Type type = op.mods.TakeType();
  if (what.empty() || ptx::IsFloat(type)) return false;
  const Reduction reduce = FindReduction(type, what, ptx::Space::kShared);
  return reduce != nullptr && EmitStoreAsync(decoder, op, 1, type, reduce);
}

}  // namespace gpuloom::softgpu
