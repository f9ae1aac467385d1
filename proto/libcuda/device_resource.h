// SPDX-License-Identifier: Apache-2.0
// Device resources as programs hold them: what a CUdevResource carries in its opaque bytes, and descriptions of parts
// of the multiprocessors (CUdevResourceDesc). Compiled into the shim and into the software driver, which
// answer what a device has and what a split of it gives.
//
// A split cannot be split again; what a context made of it has can. So each description says which
// description's contexts it was split from, up to the device.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

inline constexpr uint32_t kMaxResourceGroups = 256;         // of one split
inline constexpr uint32_t kMaxResourceDescriptions = 1023;  // of a process
// Of one description: pieces of further splits, or the same again.
inline constexpr uint32_t kMaxMorePicks = 64;

struct SmCounts {
  uint32_t count;
  uint32_t min_partition;
  uint32_t alignment;
};

// cuDevSmResourceSplitByCount's arguments; `groups`: at most so many.
struct SmSplit {
  uint32_t use_flags;
  uint32_t min_count;
  uint32_t groups;
};

struct ResourcePick {
  bool whole;
  bool remaining;
  uint32_t group;  // when neither
  SmSplit split;
};

// What a CUdevResourceDesc points to. Two of the same content are one; CUDA knows no way to destroy
// them, so they stay.
struct ResourceDescription {
  uint32_t id;  // 1 … kMaxResourceDescriptions
  CUdevice device;
  uint32_t of;     // the description whose contexts' resource this is a part of; 0: the device's
  uint32_t count;  // of multiprocessors: the pieces' sum, which may be more than there are
  bool whole;      // all of it
  bool remaining;  // what the split leaves
  SmSplit split;
  uint64_t picked[kMaxResourceGroups / 64];  // which of the split's groups
  // What a program has put beside it: CUDA adds up whatever it is given.
  ResourcePick more[kMaxMorePicks];
  uint32_t more_count;
};

// INVALID_VALUE when it is none. Null stands for all of the device, as it does to CUDA. From any
// thread.
[[nodiscard]] CUresult FindDescription(CUdevResourceDesc handle, CUdevice device,
                                       const ResourceDescription** description);

// The library's own. `part`: a description's id, or 0 for the device.
//
// INVALID_DEVICE and the like.
[[nodiscard]] CUresult CheckResourceDevice(CUdevice device);
// What the device, or a context of the description, has.
[[nodiscard]] CUresult GetPart(CUdevice device, uint32_t part, SmCounts* has);
// `min_count` may be too large. `groups` are all alike; nothing remaining is a count of 0.
[[nodiscard]] CUresult SplitPart(CUdevice device, uint32_t part, const SmSplit& split,
                                 uint32_t* groups, SmCounts* group, SmCounts* remaining);
// Of which part the context may use the multiprocessors. INVALID_CONTEXT, also for null.
[[nodiscard]] CUresult PartOfContext(CUcontext context, CUdevice* device, uint32_t* part);
[[nodiscard]] CUresult PartOfGreenContext(CUgreenCtx context, CUdevice* device, uint32_t* part);

}  // namespace gpuloom
