// From device addresses to pointers, with every check that a GPU makes: bounds and alignment.
#include <cstring>

#include "agent/softgpu/exec/block.h"
#include "agent/softgpu/exec/lanes.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint32_t kClusterRankShift = 24;  // of shared addresses made by mapa: rank + 1 above it

bool Fits(uint64_t offset, uint64_t size_bytes, uint64_t limit) {
  return offset <= limit && size_bytes <= limit - offset;
}

std::byte* SharedAt(Block& block, uint64_t offset, uint32_t size_bytes) {
  Block* owner = &block;
  if (const uint64_t rank = offset >> kClusterRankShift; rank != 0) {
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
      if (!run.ranges.Allows(address, size_bytes, write && space != ptx::Space::kConst)) {
        return nullptr;
      }
      return reinterpret_cast<std::byte*>(address);
  }
}

}  // namespace

std::byte* Warp::LocalOf(uint32_t lane, uint32_t offset) {
  return local_.get() + size_t{lane} * local_stride_ + offset;
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

bool Warp::ResolveAddresses(const uint64_t* addresses, uint8_t flags, uint32_t size_bytes,
                            bool write, Pointers* out) {
  const auto space = static_cast<ptx::Space>(flags & kSpaceMask);
  out->contiguous = false;
  const bool per_thread = space == ptx::Space::kLocal || space == ptx::Space::kReg;
  if (exec == kAllLanes && !per_thread) {
    uint64_t difference = 0;
    const uint64_t first = addresses[0];
    for (uint32_t i = 0; i < kLanes; ++i) difference |= addresses[i] ^ (first + i * size_bytes);
    const bool local = space == ptx::Space::kGeneric && (first & kWindowMask) == kLocalWindow;
    if (difference == 0 && first % size_bytes == 0 && !local) {
      std::byte* const all = PointerTo(*this, 0, space, first, size_bytes * kLanes, write);
      if (all != nullptr) {
        out->contiguous = true;
        out->lane[0] = all;
        return true;
      }
    }
  }
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
