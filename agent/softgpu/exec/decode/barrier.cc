// SPDX-License-Identifier: Apache-2.0
// Barriers of a block and of a cluster, and memory fences.
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/fence.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

Step WaitHere(Warp& warp, const Instr& in) { return warp.WaitAtBarrier(in); }

Step FenceHere(Warp&, const Instr&) {
  Fence();
  return Step::kNext;
}

// Arrivals of the whole cluster are counted at its first block. Each lane remembers the phase in
// which it arrived, so that waiting is a comparison.
Step ClusterArrive(Warp& warp, const Instr&) {
  Fence();
  Block& block = warp.block();
  Block& first = *block.cluster[0];
  ForEach(warp.exec, [&](uint32_t lane) { warp.cluster_phase[lane] = first.cluster_phase; });
  first.cluster_arrived += static_cast<uint32_t>(std::popcount(warp.exec));
  first.OpenClusterBarrierIfFull();
  return Step::kNext;
}

// Lanes whose phase is not over try again later; see Warp::WaitForCluster().
Step ClusterWait(Warp& warp, const Instr&) {
  Block& block = warp.block();
  const uint64_t phase = block.cluster[0]->cluster_phase;
  uint32_t waiting = 0;
  ForEach(warp.exec,
          [&](uint32_t lane) { waiting |= (warp.cluster_phase[lane] == phase ? 1u : 0u) << lane; });
  if (waiting == 0) {
    Fence();
    return Step::kNext;
  }
  return warp.WaitForCluster(waiting);
}

// Reads "a{, b}" behind `at`.
bool TakeNumberAndCount(Decoder& decoder, Op& op, size_t at, Instr* in) {
  if (op.count() <= at || op.count() > at + 2) return false;
  in->a = decoder.Source(op[at], 4);
  // Without a count b is read as well, and its value is not used.
  in->b = in->a;
  if (op.count() == at + 2) {
    in->b = decoder.Source(op[at + 1], 4);
    in->extra |= kBarrierHasCount;
  }
  return true;
}

// bar.red: result, number, count if any, predicate.
bool DecodeReduction(Decoder& decoder, Op& op) {
  const std::string_view what = op.mods.TakeOneOf({"popc", "and", "or"});
  Instr in;
  if (what.empty() || op.count() < 3 || op.count() > 4) return false;
  if (what == "popc") {
    if (!op.mods.Take("u32")) return false;
    in.extra = kBarrierPopc;
    in.d = decoder.Destination(op[0], 4);
  } else {
    if (!op.mods.Take("pred")) return false;
    in.extra = what == "and" ? kBarrierAnd : kBarrierOr;
    in.d = decoder.DestinationPredicate(op[0]);
  }
  const PredicateRef by = decoder.SourcePredicate(op[op.count() - 1]);
  in.c = by.number;
  if (by.negated) in.extra |= kBarrierNegatesPredicate;
  in.a = in.b = decoder.Source(op[1], 4);
  if (op.count() == 4) {
    in.b = decoder.Source(op[2], 4);
    in.extra |= kBarrierHasCount;
  }
  return decoder.Emit(WaitHere, in);
}

bool DecodeClusterBarrier(Decoder& decoder, Op& op) {
  const bool arrives = op.mods.Take("arrive");
  if (!arrives && !op.mods.Take("wait")) return false;
  // Every arrival and every wait orders memory.
  op.mods.TakeOneOf({"release", "relaxed", "acquire"});
  op.mods.Take("aligned");
  return op.count() == 0 && decoder.Emit(arrives ? ClusterArrive : ClusterWait, Instr());
}

}  // namespace

bool DecodeBar(Decoder& decoder, Op& op) {
  if (op.mods.Has("warp")) return DecodeBarWarp(decoder, op);
  return DecodeBarrier(decoder, op);
}

bool DecodeBarrier(Decoder& decoder, Op& op) {
  if (op.mods.Take("cluster")) return DecodeClusterBarrier(decoder, op);
  op.mods.Take("cta");
  op.mods.Take("aligned");
  if (op.mods.Take("red")) return DecodeReduction(decoder, op);
  Instr in;
  if (op.mods.Take("arrive")) {
    in.extra = kBarrierArrive;
    if (op.count() != 2) return false;
  } else if (!op.mods.Take("sync")) {
    return false;
  }
  return TakeNumberAndCount(decoder, op, 0, &in) && decoder.Emit(WaitHere, in);
}

bool DecodeFence(Decoder& decoder, Op& op) {
  const bool of_barriers = op.mods.Take("mbarrier_init");
  op.mods.TakeOneOf({"sc", "acq_rel", "acquire", "release"});
  const std::string_view scope = op.mods.TakeOneOf({"cta", "cluster", "gpu", "sys"});
  // An instruction that orders memory beyond its cluster communicates with other blocks.
  if (!of_barriers && !op.mods.Has("proxy") && (scope == "gpu" || scope == "sys")) {
    decoder.KeepsOrder();
  }
  // Proxies are one memory here.
  size_t operands = 0;
  if (op.mods.Take("proxy") && !of_barriers) {
    const std::string_view proxy = op.mods.TakeOneOf(
        {"alias", "async", "async.global", "generic", "async::generic", "tensormap::generic"});
    // To acquire a tensor map, the instruction names its address and size.
    if (proxy == "tensormap::generic") operands = op.count() == 0 ? 0 : 2;
  }
  op.mods.Take("global");
  op.mods.TakePrefixed("shared");
  op.mods.TakePrefixed("sync_restrict::");
  return op.count() == operands && decoder.Emit(FenceHere, Instr());
}

bool DecodeMembar(Decoder& decoder, Op& op) {
  if (op.mods.Take("proxy")) {
    op.mods.TakeOneOf({"alias"});
  } else if (!op.mods.Take("cta")) {
    if (op.mods.TakeOneOf({"gl", "sys", "gpu"}).empty()) return false;
    decoder.KeepsOrder();
  }
  return op.count() == 0 && decoder.Emit(FenceHere, Instr());
}

}  // namespace gpuloom::softgpu
