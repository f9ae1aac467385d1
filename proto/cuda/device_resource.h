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

// What a CUdevResourceDesc points to. Two of the same content are one; CUDA knows no way to destroy
// them, so they stay.
struct ResourceDescription {
  uint32_t id;  // 1 … kMaxResourceDescriptions
  CUdevice device;
  uint32_t of;     // the description whose contexts' resource this is a part of; 0: the device's
  uint32_t count;  // of multiprocessors
  bool whole;      // all of it
  bool remaining;  // what the split leaves
  SmSplit split;
  uint64_t picked[kMaxResourceGroups / 64];  // which of the split's groups
};

// nullptr when it is none. From any thread.
[[nodiscard]] const ResourceDescription* FindDescription(CUdevResourceDesc handle);

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
