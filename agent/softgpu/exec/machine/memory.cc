// SPDX-License-Identifier: Apache-2.0
// From device addresses to pointers, with every check that a GPU makes: bounds and alignment.
//
// A kernel's addresses are those of a hostile tenant, and they are addresses of this process: none
// that it computes is followed without having been through here. There are three ways, each for
// more cases and slower than the one before: ResolveAsRow() for 32 lanes in a row,
// ResolveTogether() for lanes in one area, and ResolveEach(), which also finds out what is wrong.
#include <cstdio>
#include <cstring>

#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// Without a sum that could wrap: `offset` may be any number.
bool Fits(uint64_t offset, uint64_t size_bytes, uint64_t limit) {
  return offset <= limit && size_bytes <= limit - offset;
}

// Addresses of shared memory may name another block of the cluster (kClusterRankShift). Such a
// block may have ended; its memory stays until the whole cluster has.
std::byte* SharedAt(Block& block, uint64_t offset, uint32_t size_bytes) {
  Block* owner = &block;
  if (const uint64_t rank = offset >> kClusterRankShift; rank != 0) {
    // A block without a cluster is one of its own.
    if (rank > block.cluster.size()) return nullptr;
    owner = block.cluster[rank - 1];
    offset &= (1u << kClusterRankShift) - 1;
  }
  return Fits(offset, size_bytes, owner->shared_bytes()) ? owner->shared() + offset : nullptr;
}

// The address of one lane, or null when it may not be touched.
std::byte* PointerTo(Warp& warp, uint32_t lane, ptx::Space space, uint64_t address,
                     uint32_t size_bytes, bool write) {
  Block& block = warp.block();
  GridRun& run = block.run();
  uint64_t offset = address;
  // A generic address with a window is of another space than global memory; the rest of it is an
  // offset there.
  if (space == ptx::Space::kGeneric && (address & kWindowMask) != 0) {
    const uint64_t window = address & kWindowMask;
    offset = address & ~kWindowMask;
    if (window == kSharedWindow)
      space = ptx::Space::kShared;
    else if (window == kLocalWindow)
      space = ptx::Space::kLocal;
    else if (window == kParamWindow)
      space = ptx::Space::kParam;
    // Only a cooperative launch has this window, and it may be written: blocks meet there by atomic
    // operations on it.
    else if (window == kGridWindow && run.grid.cooperative &&
             Fits(offset, size_bytes, sizeof(run.grid_barrier)))
      return reinterpret_cast<std::byte*>(run.grid_barrier) + offset;
    else
      return nullptr;
  }
  switch (space) {
    case ptx::Space::kShared:
      return SharedAt(block, offset, size_bytes);
    case ptx::Space::kLocal:
      if (!Fits(offset, size_bytes, warp.local_bytes())) return nullptr;
      return warp.LocalOf(lane, static_cast<uint32_t>(offset));
    // The running frame's own variables: PTX names them, so they are relative to wherever the frame
    // lies.
    case ptx::Space::kReg:
      offset += warp.frame->local_base;
      if (!Fits(offset, size_bytes, warp.local_bytes())) return nullptr;
      return warp.LocalOf(lane, static_cast<uint32_t>(offset));
    // A kernel's parameters are read-only: st.param to them does not exist.
    case ptx::Space::kParam:
      if (write || !Fits(offset, size_bytes, run.params.size())) return nullptr;
      return run.params.data() + offset;
    // Global and constant memory, and generic addresses without a window.
    default:
      if (!run.ranges.Allows(address, size_bytes, write)) {
        return nullptr;
      }
      return reinterpret_cast<std::byte*>(address);
  }
}

// The bits in which some executing lane's address is not begin + i * step. Without branches, so
// that the loop becomes a few vector instructions; the compare is left to the caller, once for all
// lanes.
template <uint32_t kCount, class A>
[[gnu::always_inline]] inline A Differences(const A* addresses, A offset, uint32_t on, A begin,
                                            A step) {
  A bits = 0;
  if (on == kAllLanes >> (kLanes - kCount)) {
    ForAll<kCount>([&](uint32_t i) { bits |= (addresses[i] + offset) ^ (begin + i * step); });
  } else {
    ForAll<kCount>([&](uint32_t i) {
      const A mask = IsOn(on, i) ? ~A{0} : 0;
      bits |= ((addresses[i] + offset) ^ (begin + i * step)) & mask;
    });
  }
  return bits;
}

// Whether the addresses of kCount lanes that all execute lie one after another or all at one place:
// then `step` says which. The first two tell how the others must lie.
template <uint32_t kCount, class A>
[[gnu::always_inline]] inline bool FindStep(const A* addresses, A offset, A size_bytes, A* step) {
  *step = addresses[1] - addresses[0];
  if (*step != 0 && *step != size_bytes) return false;
  return Differences<kCount>(addresses, offset, kAllLanes >> (kLanes - kCount),
                             addresses[0] + offset, *step) == 0;
}

// Whether an executing lane's address is not aligned or not in [begin, end). `last` is the highest
// address at which an access still fits. Both differences are taken modulo 2^N, and a wrong one has
// its highest bit set as long as the area is smaller than half of what A can say: that is why
// 32-bit addresses need `end` below 2^31.
template <class A>
[[gnu::always_inline]] inline bool AnyWrong(const A* addresses, A offset, uint32_t exec, A begin,
                                            A end, A size_bytes) {
  A outside = 0;
  A low_bits = 0;
  const A last = end - size_bytes;
  ForAll([&](uint32_t i) {
    const A mask = IsOn(exec, i) ? ~A{0} : 0;
    const A address = addresses[i] + offset;
    outside |= ((address - begin) | (last - address)) & mask;
    low_bits |= address & mask;
  });
  return (outside >> (8 * sizeof(A) - 1)) != 0 || (low_bits & (size_bytes - 1)) != 0;
}

}  // namespace

std::byte* Warp::LocalOf(uint32_t lane, uint32_t offset) {
  return local_.get() + size_t{lane} * local_stride_ + offset;
}

std::byte* Warp::PointerFor(uint32_t lane, ptx::Space space, uint64_t address, uint32_t size_bytes,
                            bool write) {
  return PointerTo(*this, lane, space, address, size_bytes, write);
}

// Where the address `of` one lane lies; what the others have there too needs no further question.
// An empty area means that the slow way has to look: other windows, or no memory at all.
Warp::Area Warp::AreaOf(uint64_t of, ptx::Space space, bool write) {
  GridRun& run = block_.run();
  Area area;
  if (space == ptx::Space::kGeneric) {
    const uint64_t window = of & kWindowMask;
    if (window == kSharedWindow) {
      space = ptx::Space::kShared;
      area.begin = window;
    } else if (window == kLocalWindow) {
      space = ptx::Space::kLocal;
      area.begin = window;
    } else if (window != 0) {
      return {};
    }
  }
  switch (space) {
    case ptx::Space::kShared:
      // `base` + address is the pointer, so a window's begin is subtracted once here.
      area.end = area.begin + block_.shared_bytes();
      area.base = reinterpret_cast<uint64_t>(block_.shared()) - area.begin;
      return area;
    case ptx::Space::kParam:
      if (write) return {};
      area.end = run.params.size();
      area.base = reinterpret_cast<uint64_t>(run.params.data());
      return area;
    case ptx::Space::kReg:
      // As in PointerTo(): addresses of this space count from the frame's beginning.
      area.end = local_bytes_ - frame->local_base;
      area.base = reinterpret_cast<uint64_t>(local_.get()) + frame->local_base;
      area.stride = local_stride_;
      return area;
    case ptx::Space::kLocal:
      area.end = area.begin + local_bytes_;
      area.base = reinterpret_cast<uint64_t>(local_.get()) - area.begin;
      area.stride = local_stride_;
      return area;
    default: {
      const AddressSpace::Range range = run.ranges.RangeOf(of);
      if (write && !range.writable) return {};
      area.begin = range.begin;
      area.end = range.end;
      return area;
    }
  }
}

// Lane by lane, with the fault of the lowest lane that has one.
[[gnu::noinline]] bool Warp::ResolveEach(const uint64_t* addresses, uint8_t flags,
                                         uint32_t size_bytes, bool write, Pointers* out) {
  const auto space = static_cast<ptx::Space>(flags & kSpaceMask);
  out->regular = false;
  for (uint32_t rest = exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint64_t address = addresses[lane];
    // Alignment comes first: a misaligned address outside of all memory is reported as misaligned.
    if (address % size_bytes != 0) {
      Fault(Outcome::kMisaligned, address,
            "an access of " + std::to_string(size_bytes) + " bytes is not aligned");
      return false;
    }
    out->lane[lane] = PointerTo(*this, lane, space, address, size_bytes, write);
    if (out->lane[lane] == nullptr) {
      char text[96];
      std::snprintf(text, sizeof(text), "no memory to %s at address 0x%llx, %u bytes",
                    write ? "write" : "read", static_cast<unsigned long long>(address), size_bytes);
      Fault(Outcome::kIllegalAddress, address, text);
      return false;
    }
  }
  return true;
}

// True: the executing lanes of a half lie one after another, or all at one place, where they may.
template <class A>
[[gnu::always_inline]] inline bool Warp::ResolveHalf(const Area& area, const A* addresses, A offset,
                                                     uint32_t on, uint32_t size_bytes,
                                                     Pointers::Half* half) {
  // An idle half stays empty: At() is not called for lanes that do not execute.
  if (on == 0) {
    *half = {};
    return true;
  }
  const auto lead = static_cast<uint32_t>(std::countr_zero(on));
  const uint64_t span = static_cast<uint32_t>(std::bit_width(on)) - 1 - lead;
  const A first = addresses[lead] + offset;
  A step = 0;
  // The first two lanes of a full half say which step it may be. With lanes missing, both are
  // tried.
  if (on == kAllLanes >> kHalf) {
    if (!FindStep<kHalf, A>(addresses, offset, size_bytes, &step)) return false;
  } else if (Differences<kHalf, A>(addresses, offset, on, first, 0) != 0) {
    step = size_bytes;
    const A begin = first - static_cast<A>(lead) * step;
    if (Differences<kHalf, A>(addresses, offset, on, begin, step) != 0) return false;
  }
  // In 64 bits, so that 32-bit addresses that wrap show as beyond the area's end.
  const uint64_t last = first + span * step;
  if (first < area.begin || last < first || last > area.end - size_bytes ||
      (first & (size_bytes - 1)) != 0) {
    return false;
  }
  // In local memory each lane has bytes of its own, so even equal addresses are `stride` apart.
  half->step_bytes = area.stride + step;
  half->first = area.base + first - lead * uint64_t{step};
  return true;
}

// True: all lanes execute, and lie one after another or all at one place, where they may. What most
// accesses are, so it does without everything else.
template <class A>
[[gnu::always_inline]] inline bool Warp::ResolveAsRow(const A* addresses, A offset, uint8_t flags,
                                                      uint32_t size_bytes, bool write,
                                                      Pointers* out) {
  A step = 0;
  if (!FindStep<kLanes, A>(addresses, offset, size_bytes, &step)) return false;
  const A first = addresses[0] + offset;
  const Area area = AreaOf(first, static_cast<ptx::Space>(flags & kSpaceMask), write);
  const uint64_t last = first + (kLanes - 1) * uint64_t{step};
  if (area.end - area.begin < size_bytes || first < area.begin || last < first ||
      // A row of 32-bit addresses must not wrap: the pointers behind would follow the 64-bit sum.
      last != static_cast<A>(last) || last > area.end - size_bytes ||
      (first & (size_bytes - 1)) != 0) {
    return false;
  }
  const uint64_t step_bytes = area.stride + step;
  out->regular = true;
  out->half[0] = {area.base + first, step_bytes};
  out->half[1] = {area.base + first + kHalf * step_bytes, step_bytes};
  return true;
}

// Returns true if all executing lanes lie in the area of the first and may access it; `out` then
// says where.
template <class A>
[[gnu::always_inline]] inline bool Warp::ResolveTogether(const A* addresses, A offset,
                                                         uint8_t flags, uint32_t size_bytes,
                                                         bool write, Pointers* out) {
  const A first = addresses[std::countr_zero(exec)] + offset;
  const Area area = AreaOf(first, static_cast<ptx::Space>(flags & kSpaceMask), write);
  if (area.end - area.begin < size_bytes) return false;
  // AnyWrong() compares in 32 bits, see there. Shared, local and parameter memory always lie below;
  // for anything else the slow way decides.
  if (sizeof(A) == 4 && area.end > (uint64_t{1} << 31)) return false;
  out->regular = true;
  Pointers::Half* const half = out->half;
  constexpr uint32_t kLowHalf = kAllLanes >> kHalf;
  if (ResolveHalf<A>(area, addresses, offset, exec & kLowHalf, size_bytes, &half[0]) &&
      ResolveHalf<A>(area, addresses + kHalf, offset, exec >> kHalf, size_bytes, &half[1])) {
    // Each lane's local memory lies `stride` further than that of the lane before.
    if ((exec >> kHalf) != 0) half[1].first += kHalf * area.stride;
    return true;
  }
  out->regular = false;
  // Not regular, but all in one area: one check for all lanes, and a pointer for each.
  if (AnyWrong<A>(addresses, offset, exec, static_cast<A>(area.begin), static_cast<A>(area.end),
                  static_cast<A>(size_bytes))) {
    return false;
  }
  // For all lanes, executing or not: nothing is read through the pointers of the others.
  for (uint32_t i = 0; i < kLanes; ++i) {
    const A address = addresses[i] + offset;
    out->lane[i] = reinterpret_cast<std::byte*>(area.base + address + i * area.stride);
  }
  return true;
}

// The resolver of a warp. 32- and 64-bit address registers are different types here, so that a row
// of 32-bit ones takes half of the vector instructions.
bool Warp::ResolveRow(Warp& warp, const Instr& in, uint32_t size_bytes, bool write, Pointers* out) {
  if (warp.exec == kAllLanes) {
    const bool found = in.flags & kAddress32
                           ? warp.ResolveAsRow<uint32_t>(warp.Source<uint32_t>(in.a),
                                                         static_cast<uint32_t>(in.imm), in.flags,
                                                         size_bytes, write, out)
                           : warp.ResolveAsRow<uint64_t>(warp.Source<uint64_t>(in.a),
                                                         static_cast<uint64_t>(in.imm), in.flags,
                                                         size_bytes, write, out);
    if (found) return true;
  }
  return warp.any_resolver_(warp, in, size_bytes, write, out);
}

bool Warp::ResolveAny(Warp& warp, const Instr& in, uint32_t size_bytes, bool write, Pointers* out) {
  uint64_t addresses[kLanes];
  if (in.flags & kAddress32) {
    const uint32_t* a = warp.Source<uint32_t>(in.a);
    const auto offset = static_cast<uint32_t>(in.imm);
    if (warp.ResolveTogether<uint32_t>(a, offset, in.flags, size_bytes, write, out)) return true;
    for (uint32_t i = 0; i < kLanes; ++i) addresses[i] = a[i] + offset;
  } else {
    const uint64_t* a = warp.Source<uint64_t>(in.a);
    const auto offset = static_cast<uint64_t>(in.imm);
    if (warp.ResolveTogether<uint64_t>(a, offset, in.flags, size_bytes, write, out)) return true;
    for (uint32_t i = 0; i < kLanes; ++i) addresses[i] = a[i] + offset;
  }
  // Several ranges, or a mistake: one lane after the other.
  return warp.ResolveEach(addresses, in.flags, size_bytes, write, out);
}

Warp::Resolver Warp::FindResolver() { return ForVectors<ResolveRow>(); }
Warp::Resolver Warp::FindAnyResolver() { return ForVectors<ResolveAny>(); }

// For instructions whose addresses are not in the registers that Instr names.
bool Warp::ResolveAddresses(const uint64_t* addresses, uint8_t flags, uint32_t size_bytes,
                            bool write, Pointers* out) {
  return ResolveTogether<uint64_t>(addresses, 0, flags, size_bytes, write, out) ||
         ResolveEach(addresses, flags, size_bytes, write, out);
}

}  // namespace gpuloom::softgpu
