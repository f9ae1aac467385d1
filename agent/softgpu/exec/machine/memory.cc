// SPDX-License-Identifier: Apache-2.0
// From device addresses to pointers, with every check that a GPU makes: bounds and alignment.
#include <cstdio>
#include <cstring>

#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

bool Fits(uint64_t offset, uint64_t size_bytes, uint64_t limit) {
  return offset <= limit && size_bytes <= limit - offset;
}

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
  if (space == ptx::Space::kGeneric && (address & kWindowMask) != 0) {
    const uint64_t window = address & kWindowMask;
    offset = address & ~kWindowMask;
    if (window == kSharedWindow)
      space = ptx::Space::kShared;
    else if (window == kLocalWindow)
      space = ptx::Space::kLocal;
    else if (window == kParamWindow)
      space = ptx::Space::kParam;
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
    case ptx::Space::kReg:
      offset += warp.frame->local_base;
      if (!Fits(offset, size_bytes, warp.local_bytes())) return nullptr;
      return warp.LocalOf(lane, static_cast<uint32_t>(offset));
    case ptx::Space::kParam:
      if (write || !Fits(offset, size_bytes, run.params.size())) return nullptr;
      return run.params.data() + offset;
    default:
      if (!run.ranges.Allows(address, size_bytes, write)) {
        return nullptr;
      }
      return reinterpret_cast<std::byte*>(address);
  }
}

// What one look at all lanes' addresses tells. Without branches, so that the loop becomes a few vector
// instructions: a negative difference has its highest bit set.
struct AddressFacts {
  uint64_t outside = 0;    // its highest bit: some lane does not lie in [begin, end)
  uint64_t low_bits = 0;   // of all addresses together
  uint64_t scattered = 0;  // 0: lane after lane
};

[[gnu::always_inline]] inline AddressFacts Look(const uint64_t* addresses, uint64_t first,
                                                uint64_t begin, uint64_t end, uint64_t size_bytes) {
  AddressFacts facts;
  const uint64_t last = end - size_bytes;
  for (uint32_t i = 0; i < kLanes; ++i) {
    facts.outside |= (addresses[i] - begin) | (last - addresses[i]);
    facts.low_bits |= addresses[i];
    facts.scattered |= addresses[i] ^ (first + i * size_bytes);
  }
  return facts;
}

AddressFacts LookPlainly(const uint64_t* addresses, uint64_t first, uint64_t begin, uint64_t end,
                         uint64_t size_bytes) {
  return Look(addresses, first, begin, end, size_bytes);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) AddressFacts LookFast(const uint64_t* addresses, uint64_t first,
                                                      uint64_t begin, uint64_t end,
                                                      uint64_t size_bytes) {
  return Look(addresses, first, begin, end, size_bytes);
}
const auto LookAtAddresses = __builtin_cpu_supports("avx2") != 0 ? LookFast : LookPlainly;
#else
const auto LookAtAddresses = LookPlainly;
#endif

}  // namespace

std::byte* Warp::LocalOf(uint32_t lane, uint32_t offset) {
  return local_.get() + size_t{lane} * local_stride_ + offset;
}

std::byte* Warp::PointerFor(uint32_t lane, ptx::Space space, uint64_t address, uint32_t size_bytes,
                            bool write) {
  return PointerTo(*this, lane, space, address, size_bytes, write);
}

bool Warp::Resolve(const Instr& in, uint32_t size_bytes, bool write, Pointers* out) {
  uint64_t addresses[kLanes];
  if (in.flags & kAddress32) {
    const uint32_t* a = Source<uint32_t>(in.a);
    const uint32_t offset = static_cast<uint32_t>(in.imm);
    for (uint32_t i = 0; i < kLanes; ++i) addresses[i] = a[i] + offset;
  } else {
    const uint64_t* a = Source<uint64_t>(in.a);
    const uint64_t offset = static_cast<uint64_t>(in.imm);
    for (uint32_t i = 0; i < kLanes; ++i) addresses[i] = a[i] + offset;
  }
  return ResolveAddresses(addresses, in.flags, size_bytes, write, out);
}

// Where the address `of` one lane lies; what the others have there too needs no further question.
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
      area.end = area.begin + block_.shared_bytes();
      area.base = reinterpret_cast<uint64_t>(block_.shared()) - area.begin;
      return area;
    case ptx::Space::kParam:
      if (write) return {};
      area.end = run.params.size();
      area.base = reinterpret_cast<uint64_t>(run.params.data());
      return area;
    case ptx::Space::kReg:
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

bool Warp::ResolveAddresses(uint64_t* addresses, uint8_t flags, uint32_t size_bytes, bool write,
                            Pointers* out) {
  const auto space = static_cast<ptx::Space>(flags & kSpaceMask);
  const uint64_t first = addresses[std::countr_zero(exec)];
  if (exec != kAllLanes) {
    for (uint32_t i = 0; i < kLanes; ++i) addresses[i] = (exec >> i) & 1 ? addresses[i] : first;
  }
  out->contiguous = false;
  const Area area = AreaOf(first, space, write);
  if (area.end - area.begin >= size_bytes) {
    const AddressFacts facts = LookAtAddresses(addresses, first, area.begin, area.end, size_bytes);
    if (!(facts.outside >> 63) && (facts.low_bits & (size_bytes - 1)) == 0) {
      if (facts.scattered == 0 && area.stride == 0) {
        out->contiguous = true;
        out->lane[0] = reinterpret_cast<std::byte*>(area.base + first);
      } else {
        for (uint32_t i = 0; i < kLanes; ++i) {
          out->lane[i] =
              reinterpret_cast<std::byte*>(area.base + addresses[i] + uint64_t{i} * area.stride);
        }
      }
      return true;
    }
  }
  // Several ranges, or a mistake: one lane after the other.
  for (uint32_t rest = exec; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint64_t address = addresses[lane];
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

}  // namespace gpuloom::softgpu
