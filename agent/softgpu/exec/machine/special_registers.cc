// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/machine/special_registers.h"

#include <chrono>

#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// The numbers of one vector register stand together in the order x, y, z: UniformValue() counts
// from the first. kTidX, kTidY and kTidZ are 0 to 2, as Warp::tid is indexed by them; ranges are
// compared in Read(), too.
enum Id : uint16_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneId,
  kWarpId,
  kNwarpId,
  kSmId,
  kNsmId,
  kGridId,
  kMaskEq,
  kMaskLe,
  kMaskLt,
  kMaskGe,
  kMaskGt,
  kClock,
  kClockHi,
  kClock64,
  kGlobalTimer,
  kGlobalTimerLo,
  kGlobalTimerHi,
  kDynamicShared,
  kTotalShared,
  kClusterIdX,
  kClusterIdY,
  kClusterIdZ,
  kNclusterX,
  kNclusterY,
  kNclusterZ,
  kClusterCtaX,
  kClusterCtaY,
  kClusterCtaZ,
  kClusterSizeX,
  kClusterSizeY,
  kClusterSizeZ,
  kClusterRank,
  kClusterCount,
  kZero,
  kGridBarrierHigh,
};

struct Row {
  std::string_view name;
  Id id;
};

// The names that a module may use: of vectors only the elements.
constexpr Row kRows[] = {
    {"%tid.x", kTidX},
    {"%tid.y", kTidY},
    {"%tid.z", kTidZ},
    {"%ntid.x", kNtidX},
    {"%ntid.y", kNtidY},
    {"%ntid.z", kNtidZ},
    {"%ctaid.x", kCtaidX},
    {"%ctaid.y", kCtaidY},
    {"%ctaid.z", kCtaidZ},
    {"%nctaid.x", kNctaidX},
    {"%nctaid.y", kNctaidY},
    {"%nctaid.z", kNctaidZ},
    {"%laneid", kLaneId},
    {"%warpid", kWarpId},
    {"%nwarpid", kNwarpId},
    {"%smid", kSmId},
    {"%nsmid", kNsmId},
    {"%gridid", kGridId},
    {"%lanemask_eq", kMaskEq},
    {"%lanemask_le", kMaskLe},
    {"%lanemask_lt", kMaskLt},
    {"%lanemask_ge", kMaskGe},
    {"%lanemask_gt", kMaskGt},
    {"%clock", kClock},
    {"%clock_hi", kClockHi},
    {"%clock64", kClock64},
    {"%globaltimer", kGlobalTimer},
    {"%globaltimer_lo", kGlobalTimerLo},
    {"%globaltimer_hi", kGlobalTimerHi},
    {"%dynamic_smem_size", kDynamicShared},
    {"%total_smem_size", kTotalShared},
    // The total and what the system reserves, which is nothing here.
    {"%aggr_smem_size", kTotalShared},
    {"%clusterid.x", kClusterIdX},
    {"%clusterid.y", kClusterIdY},
    {"%clusterid.z", kClusterIdZ},
    {"%nclusterid.x", kNclusterX},
    {"%nclusterid.y", kNclusterY},
    {"%nclusterid.z", kNclusterZ},
    {"%cluster_ctaid.x", kClusterCtaX},
    {"%cluster_ctaid.y", kClusterCtaY},
    {"%cluster_ctaid.z", kClusterCtaZ},
    {"%cluster_nctaid.x", kClusterSizeX},
    {"%cluster_nctaid.y", kClusterSizeY},
    {"%cluster_nctaid.z", kClusterSizeZ},
    {"%cluster_ctarank", kClusterRank},
    {"%cluster_nctarank", kClusterCount},
};

constexpr std::string_view kNames =
    "%tid %ntid %ctaid %nctaid %laneid %warpid %nwarpid %smid %nsmid %gridid %lanemask_eq "
    "%lanemask_le %lanemask_lt %lanemask_ge %lanemask_gt %clock %clock_hi %clock64 %globaltimer "
    "%globaltimer_lo %globaltimer_hi %dynamic_smem_size %total_smem_size %aggr_smem_size "
    "%clusterid %nclusterid %cluster_ctaid %cluster_nctaid %cluster_ctarank %cluster_nctarank "
    "%reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap %envreg";

// As nanoseconds: PTX leaves the unit of %clock open, and %globaltimer counts nanoseconds.
uint64_t NanosecondsOf(std::chrono::nanoseconds time) {
  return static_cast<uint64_t>(time.count());
}

uint64_t Clock() { return NanosecondsOf(std::chrono::steady_clock::now().time_since_epoch()); }

// Wall-clock time, as on a GPU; it may jump.
uint64_t GlobalTimer() {
  return NanosecondsOf(std::chrono::system_clock::now().time_since_epoch());
}

// The i-th of x, y, z.
uint32_t Part(const Dim3& v, uint32_t i) { return i == 0 ? v.x : i == 1 ? v.y : v.z; }

// Registers that are the same in all lanes.
uint64_t UniformValue(Warp& warp, uint16_t id) {
  Block& block = warp.block();
  const GridRun& run = block.run();
  const Grid& grid = run.grid;
  // `id` is in the group that begins at `x`.
  const auto part = [id](const Dim3& v, Id x) { return Part(v, id - static_cast<uint32_t>(x)); };
  const Dim3& c = grid.cluster;
  switch (id) {
    case kNtidX:
    case kNtidY:
    case kNtidZ:
      return part(grid.block, kNtidX);
    case kCtaidX:
    case kCtaidY:
    case kCtaidZ:
      return part(block.index(), kCtaidX);
    case kNctaidX:
    case kNctaidY:
    case kNctaidZ:
      return part(grid.grid, kNctaidX);
    case kWarpId:
      return warp.index();
    case kNwarpId:
      return kMaxThreadsPerBlock * 2 / kLanes;  // of a multiprocessor: 2048 threads
    // Blocks do not belong to a multiprocessor here, so all share one, however many the device
    // reports.
    case kSmId:
      return 0;
    case kNsmId:
      return 1;
    case kGridId:
      return run.grid_id;
    case kClock:
    case kClock64:
      return Clock();
    case kClockHi:
      return Clock() >> 32;
    case kGlobalTimer:
    case kGlobalTimerLo:
      return GlobalTimer();
    case kGlobalTimerHi:
      return GlobalTimer() >> 32;
    case kDynamicShared:
      return grid.dynamic_shared_bytes;
    case kTotalShared:
      return run.shared_bytes;
    case kClusterIdX:
    case kClusterIdY:
    case kClusterIdZ:
      return part(block.index(), kClusterIdX) / part(c, kClusterIdX);
    case kNclusterX:
    case kNclusterY:
    case kNclusterZ:
      return part(grid.grid, kNclusterX) / part(c, kNclusterX);
    case kClusterCtaX:
    case kClusterCtaY:
    case kClusterCtaZ:
      return part(block.index(), kClusterCtaX) % part(c, kClusterCtaX);
    case kClusterSizeX:
    case kClusterSizeY:
    case kClusterSizeZ:
      return part(c, kClusterSizeX);
    case kClusterRank:
      return block.cluster_rank;
    case kClusterCount:
      return uint64_t{c.x} * c.y * c.z;
    // Kernels put the address of a cooperative grid's barrier together from %envreg1 and %envreg2;
    // the low half of the window's address is 0, as kZero.
    case kGridBarrierHigh:
      return grid.cooperative ? kGridWindow >> 32 : 0;
    default:
      return 0;
  }
}

// Three kinds: a thread's index differs by lane and warp, lane masks by lane, and the rest is the
// same for all lanes.
template <class D>
Step Read(Warp& warp, const Instr& in) {
  const uint16_t id = in.extra;
  if (id <= kTidZ) {
    const uint32_t* tid = warp.tid[id];
    return Apply<D>(warp, in, [=](uint32_t i) { return static_cast<D>(tid[i]); });
  }
  // Registers that depend on a lane's number alone.
  const auto mask = [id](uint32_t i) -> uint32_t {
    const uint32_t eq = 1u << i;
    switch (id) {
      case kLaneId:
        return i;
      case kMaskEq:
        return eq;
      case kMaskLt:
        return eq - 1;
      case kMaskLe:
        return eq | (eq - 1);
      case kMaskGt:
        return ~(eq | (eq - 1));
      default:
        return ~(eq - 1);
    }
  };
  if (id == kLaneId || (id >= kMaskEq && id <= kMaskGt)) {
    return Apply<D>(warp, in, [=](uint32_t i) { return static_cast<D>(mask(i)); });
  }
  // A loop that reads the clock waits for time to pass.
  if (id >= kClock && id <= kGlobalTimerHi) warp.Waited();
  const D value = static_cast<D>(UniformValue(warp, id));
  return Apply<D>(warp, in, [=](uint32_t) { return value; });
}

// extra: whether imm counts from the running frame; else from dynamic shared memory, whose
// beginning the launch decides.
template <class D>
Step ReadAddress(Warp& warp, const Instr& in) {
  const uint64_t base =
      in.extra != 0 ? warp.frame->local_base : warp.block().run().dynamic_shared_base;
  const D value = static_cast<D>(base + static_cast<uint64_t>(in.imm));
  return Apply<D>(warp, in, [=](uint32_t) { return value; });
}

// A handler of its own only so that the decoder need not set `extra` for it.
template <class D>
Step ReadFrameAddress(Warp& warp, const Instr& in) {
  Instr frame = in;
  frame.extra = 1;
  return ReadAddress<D>(warp, frame);
}

}  // namespace

bool FindSpecialRegister(std::string_view name, Instr* in) {
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    in->extra = row.id;
    return true;
  }
  if (name == "%envreg1") {
    in->extra = kGridBarrierHigh;
    return true;
  }
  // Further environment registers and reserved shared memory read as 0. Numbers have one or two
  // digits.
  if ((name.starts_with("%envreg") && name.size() <= 9) ||
      name.starts_with("%reserved_smem_offset_")) {
    in->extra = kZero;
    return true;
  }
  return false;
}

Handler ReadSpecialRegister(uint32_t size_bytes) {
  switch (size_bytes) {
    case 2:
      return Read<uint16_t>;
    case 4:
      return Read<uint32_t>;
    case 8:
      return Read<uint64_t>;
    default:
      return nullptr;
  }
}

Handler RuntimeAddress(bool frame, uint32_t size_bytes) {
  if (size_bytes == 4) return frame ? ReadFrameAddress<uint32_t> : ReadAddress<uint32_t>;
  if (size_bytes == 8) return frame ? ReadFrameAddress<uint64_t> : ReadAddress<uint64_t>;
  return nullptr;
}

std::string_view SpecialRegisterNames() { return kNames; }

}  // namespace gpuloom::softgpu
