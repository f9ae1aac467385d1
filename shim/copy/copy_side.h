// SPDX-License-Identifier: Apache-2.0
// The kind of memory on a side of a copy, who does the copy, and whether its caller waits. Pure; safe from any thread.
#pragma once

#include <cstdint>

#include "shim/memory/memory.h"

namespace gpuloom {

// Whether a copy or fill returns before it is done, where CUDA's may.
enum class CopyTiming : bool { kSync, kAsync };

// To CUDA, managed memory counts here as the device's, though it is in the arena unless it migrates.
enum class CopySide : uint32_t { kDevice, kManaged, kPinned, kPageable, kArray };

inline CopySide SideOf(const KnownMemory& memory) {
  if (memory.kind == MemoryKind::kPinnedHost) return CopySide::kPinned;
  return IsInArena(memory) ? CopySide::kManaged : CopySide::kDevice;
}

// No device is involved: the caller copies, once the stream has come to it (SynchronizeForTurn).
inline bool CallerCopies(CopySide to, CopySide from) {
  const auto is_hosts = [](CopySide side) {
    return side == CopySide::kPinned || side == CopySide::kPageable;
  };
  if (to == CopySide::kPageable && from == CopySide::kManaged) return true;
  return is_hosts(to) && is_hosts(from);
}

}  // namespace gpuloom
