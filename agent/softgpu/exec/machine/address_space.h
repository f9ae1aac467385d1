// SPDX-License-Identifier: Apache-2.0
// Which addresses a kernel may touch. Device pointers are CPU addresses of this process: the driver
// maps device memory and answers here where it lies; the machine asks before it touches anything.
//
// Owned by the driver; outlives every Run() that was given it. Every method may be called from any
// thread at any time.
#pragma once

#include <cstdint>
#include <memory>

#include "agent/softgpu/exec/machine/image.h"

namespace gpuloom::softgpu {

class AddressSpace {
 public:
  // [begin, end) is mapped, and may be written when `writable`. {0, 0} stands for "nothing".
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
    bool writable = false;
  };

  virtual ~AddressSpace() = default;

  // The mapped range that holds `address`, or {0, 0}. The machine keeps answers while generation()
  // stays the same, so a range must stay mapped until no kernel that could have seen it runs.
  [[nodiscard]] virtual Range Find(uint64_t address) const = 0;

  // Returns a different number whenever a range was unmapped or lost its writability since the last
  // call.
  [[nodiscard]] virtual uint64_t generation() const = 0;

  // What the handle of a texture or surface stands for; nullptr for a handle that is none. Neither
  // changes while somebody holds it.
  [[nodiscard]] virtual std::shared_ptr<const Texture> FindTexture(uint64_t) const {
    return nullptr;
  }
  [[nodiscard]] virtual std::shared_ptr<const Image> FindSurface(uint64_t) const { return nullptr; }
};

// Generic addresses of what is not global memory. They lie above every address that a process on
// x86-64 or arm64 can map (2^56 with five-level paging), so they never collide with a device
// pointer.
inline constexpr uint64_t kSharedWindow = uint64_t{1} << 56;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << 56;
inline constexpr uint64_t kParamWindow = uint64_t{3} << 56;
inline constexpr uint64_t kFunctionWindow = uint64_t{4} << 56;
// What a cooperative grid's blocks meet at.
inline constexpr uint64_t kGridWindow = uint64_t{5} << 56;
// A shared address of another block of the cluster has that block's rank + 1 above this many bits.
inline constexpr uint32_t kClusterRankShift = 24;
// Handles of a module's texture and surface references: their numbers in the module.
inline constexpr uint64_t kReferenceWindow = uint64_t{6} << 56;
inline constexpr uint64_t kWindowMask = uint64_t{0xff} << 56;

}  // namespace gpuloom::softgpu
