// cp: copies that run beside the program on a GPU, and are done at once here.
#include <cstring>

#include "agent/softgpu/exec/block.h"
#include "agent/softgpu/exec/decode_types.h"
#include "agent/softgpu/exec/instruction_table.h"
#include "agent/softgpu/exec/lanes.h"
#include "agent/softgpu/exec/mbarrier.h"

namespace gpuloom::softgpu {
namespace {

Step Nothing(Warp&, const Instr&) { return Step::kNext; }

// cp.async, done at once: reads `extra` bytes, or as many as c says, and fills up with zeros.
template <uint32_t kBytes>
Step CopyToShared(Warp& warp, const Instr& in) {
  Pointers to;
  if (!warp.Resolve(in, kBytes, true, &to)) return Step::kFault;
  const uint64_t* source = warp.Source<uint64_t>(in.b);
  const uint32_t* size = warp.Source<uint32_t>(in.c);
  uint64_t addresses[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) addresses[i] = source[i] + static_cast<uint64_t>(in.target);
  std::byte copies[kLanes][kBytes] = {};
  const uint32_t all = warp.exec;
  // Lanes that read nothing must not fault.
  uint32_t reads = 0;
  ForEach(all, [&](uint32_t i) { reads |= (size[i] != 0 ? 1u : 0u) << i; });
  if (reads != 0) {
    warp.exec = reads;
    Pointers from;
    const bool ok = warp.ResolveAddresses(addresses, static_cast<uint8_t>(ptx::Space::kGlobal),
                                          kBytes, false, &from);
    warp.exec = all;
    if (!ok) return Step::kFault;
    ForEach(reads, [&](uint32_t i) {
      const std::byte* at = from.contiguous ? from.lane[0] + size_t{i} * kBytes : from.lane[i];
      std::memcpy(copies[i], at, size[i] < kBytes ? size[i] : kBytes);
    });
  }
  ForEach(all, [&](uint32_t i) {
    std::byte* at = to.contiguous ? to.lane[0] + size_t{i} * kBytes : to.lane[i];
    std::memcpy(at, copies[i], kBytes);
  });
  return Step::kNext;
}

// Instr::flags of a bulk copy, above those of its destination's address.
constexpr uint8_t kSource32 = 0x40;
constexpr uint8_t kBarrier32 = 0x80;

// cp.async.bulk: c bytes from b + target to a, then, with a barrier at e, reports them there.
// extra: the source's space; kReports when there is a barrier, in shared memory.
constexpr uint16_t kReports = 0x10;

Step CopyBulk(Warp& warp, const Instr& in) {
  const uint32_t* sizes = warp.Source<uint32_t>(in.c);
  const auto from_space = static_cast<ptx::Space>(in.extra & 0x0f);
  const auto to_space = static_cast<ptx::Space>(in.flags & kSpaceMask);
  for (uint32_t rest = warp.exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint32_t size = sizes[lane];
    const uint64_t to =
        warp.AddressOf(in.a, in.flags & kAddress32, lane) + static_cast<uint64_t>(in.imm);
    const uint64_t from = warp.AddressOf(in.b, in.flags & kSource32, lane) + in.target;
    if (size % 16 != 0 || to % 16 != 0 || from % 16 != 0) {
      return warp.Fault(Outcome::kMisaligned, to % 16 != 0 ? to : from,
                        "a bulk copy is not of whole, aligned 16 bytes");
    }
    std::byte* const at = warp.PointerFor(lane, to_space, to, size, true);
    const std::byte* const source = warp.PointerFor(lane, from_space, from, size, false);
    if (at == nullptr || source == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, at == nullptr ? to : from,
                        "a bulk copy touches what is no memory");
    }
    std::memmove(at, source, size);
    if (!(in.extra & kReports)) continue;
    const uint64_t barrier_at = warp.AddressOf(in.e, in.flags & kBarrier32, lane);
    std::byte* const word = barrier_at % 8 == 0
                                ? warp.PointerFor(lane, ptx::Space::kShared, barrier_at, 8, true)
                                : nullptr;
    if (word == nullptr) {
      return warp.Fault(Outcome::kIllegalAddress, barrier_at, "a bulk copy reports to no mbarrier");
    }
    Mbarrier barrier = Mbarrier::Load(word);
    barrier.Complete(size);
    barrier.Store(word);
  }
  return Step::kNext;
}

bool DecodeBulk(Decoder& decoder, Op& op) {
  if (op.mods.Take("commit_group")) return op.count() == 0 && decoder.Emit(Nothing, Instr());
  if (op.mods.Take("wait_group")) {
    op.mods.Take("read");
    return op.count() == 1 && decoder.Emit(Nothing, Instr());
  }
  if (op.mods.Take("prefetch")) {
    Instr in;
    return op.mods.Take("L2") && op.mods.Take("global") && op.count() == 2 &&
           decoder.Address(op[0], ptx::Space::kGlobal, &in) && decoder.Emit(Nothing, Instr());
  }
  const bool hinted = op.mods.Take("L2::cache_hint");
  const bool reports = op.mods.Take("mbarrier::complete_tx::bytes");
  if (!reports && !op.mods.Take("bulk_group")) return false;
  const bool to_global = !reports;
  const bool from_global = reports && op.mods.Take("global");
  if (to_global && !op.mods.Take("global")) return false;
  if (!op.mods.TakePrefixed("shared")) return false;
  if (op.count() != (reports ? 4u : 3u) + (hinted ? 1 : 0)) return false;
  const auto space = [](bool global) { return global ? ptx::Space::kGlobal : ptx::Space::kShared; };
  Instr in;
  Instr source;
  if (!decoder.Address(op[0], space(to_global), &in)) return false;
  if (!decoder.Address(op[1], space(from_global), &source)) return false;
  if (source.imm < 0 || source.imm > INT32_MAX) return false;
  in.b = source.a;
  in.target = static_cast<uint32_t>(source.imm);
  if (source.flags & kAddress32) in.flags |= kSource32;
  in.c = decoder.Source(op[2], 4);
  in.extra = static_cast<uint16_t>(source.flags & kSpaceMask);
  if (reports) {
    Instr barrier;
    if (!decoder.Address(op[3], ptx::Space::kShared, &barrier) || barrier.imm != 0) return false;
    in.e = barrier.a;
    if (barrier.flags & kAddress32) in.flags |= kBarrier32;
    in.extra |= kReports;
  }
  return decoder.Emit(CopyBulk, in);
}

bool DecodeAsyncCopy(Decoder& decoder, Op& op) {
  if (op.mods.Take("bulk")) return DecodeBulk(decoder, op);
  if (op.mods.Take("mbarrier")) return DecodeCopyArrive(decoder, op);
  if (op.mods.Take("commit_group") || op.mods.Take("wait_all")) {
    return op.count() == 0 && decoder.Emit(Nothing, Instr());
  }
  if (op.mods.Take("wait_group")) return op.count() == 1 && decoder.Emit(Nothing, Instr());
  if (op.mods.TakeOneOf({"ca", "cg"}).empty() || !op.mods.TakePrefixed("shared") ||
      !op.mods.Take("global")) {
    return false;
  }
  op.mods.TakePrefixed("L2::");
  if (op.count() < 3 || op.count() > 4 || op[2].kind != ptx::Operand::kInt) return false;
  Instr in;
  if (!decoder.Address(op[0], ptx::Space::kShared, &in)) return false;
  Instr source;
  if (!decoder.Address(op[1], ptx::Space::kGlobal, &source)) return false;
  if ((source.flags & kAddress32) != 0 || source.imm < 0 || source.imm > INT32_MAX) return false;
  in.b = source.a;
  in.target = static_cast<uint32_t>(source.imm);
  in.c = op.count() == 4 ? decoder.Source(op[3], 4) : decoder.Constant(op[2].bits, 4);
  switch (op[2].bits) {
    case 4:
      return decoder.Emit(CopyToShared<4>, in);
    case 8:
      return decoder.Emit(CopyToShared<8>, in);
    case 16:
      return decoder.Emit(CopyToShared<16>, in);
    default:
      return false;
  }
}

}  // namespace

bool DecodeCp(Decoder& decoder, Op& op) {
  return op.mods.Take("async") && DecodeAsyncCopy(decoder, op);
}

}  // namespace gpuloom::softgpu
