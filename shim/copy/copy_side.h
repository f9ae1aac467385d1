// SPDX-License-Identifier: Apache-2.0
// What a side of a copy is, and who makes the copy.
#pragma once

#include <cstdint>

#include "shim/memory/memory.h"

namespace gpuloom {

// Managed memory is the device's to CUDA here, though it lies in the arena.
enum class CopySide : uint32_t { kDevice, kManaged, kPinned, kPageable, kArray };

inline CopySide SideOf(MemoryKind kind) {
  if (!LiesInArena(kind)) return CopySide::kDevice;
  return kind == MemoryKind::kManaged ? CopySide::kManaged : CopySide::kPinned;
}

// No device takes part: the caller copies, when the stream has come to it (SynchronizeForTurn).
inline bool CallerCopies(CopySide to, CopySide from) {
  const auto is_hosts = [](CopySide side) {
    return side == CopySide::kPinned || side == CopySide::kPageable;
  };
  if (to == CopySide::kPageable && from == CopySide::kManaged) return true;
  return is_hosts(to) && is_hosts(from);
}

}  // namespace gpuloom
