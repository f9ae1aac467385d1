// SPDX-License-Identifier: Apache-2.0
// Device resources as programs hold them: the contents of a CUdevResource's opaque bytes, and descriptions of parts of
// the multiprocessors (CUdevResourceDesc). Compiled into the shim and into the software driver, which report what a
// device has and how it splits.
//
// This library owns the descriptions, which live as long as the process: equal ones are one object, so a program that asks
// again and again does not fill the table. All functions are safe from any thread. Failures are CUDA's codes for the
// program's call; beyond the limits below they are OUT_OF_MEMORY.
//
// A split cannot be split again; the resource of a context made from it can. So each description records which
// description's contexts it was split from, up to the device.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

inline constexpr uint32_t kMaxResourceGroups = 256;         // of one split
inline constexpr uint32_t kMaxResourceDescriptions = 1023;  // of a process
// The most further pieces of one description: those of other splits, or the same ones again.
inline constexpr uint32_t kMaxMorePicks = 64;

struct SmCounts {
  uint32_t count;
  uint32_t min_partition;
  uint32_t alignment;
};

// cuDevSmResourceSplitByCount's arguments; `groups` is a maximum.
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

// The object to which a CUdevResourceDesc points. Equal descriptions are one object; CUDA has no way to destroy them,
// so they stay.
struct ResourceDescription {
  uint32_t id;  // 1 … kMaxResourceDescriptions
  CUdevice device;
  uint32_t of;     // the description whose contexts' resource this is a part of; 0: the device's
  uint32_t count;  // multiprocessors: the pieces' sum, which may be more than there are
  bool whole;      // all of it
  bool remaining;  // what the split leaves over
  SmSplit split;
  uint64_t picked[kMaxResourceGroups / 64];  // which of the split's groups
  // The pieces that a program has added: CUDA accepts any combination and adds up their counts.
  ResourcePick more[kMaxMorePicks];
  uint32_t more_count;
};

// INVALID_VALUE if it is not one. Null stands for the whole device, as in CUDA. Safe from any thread.
[[nodiscard]] CUresult FindDescription(CUdevResourceDesc handle, CUdevice device,
                                       const ResourceDescription** description);

// Provided by each library. `part`: a description's id, or 0 for the device.
//
// Returns INVALID_DEVICE or the like.
[[nodiscard]] CUresult CheckResourceDevice(CUdevice device);
// The multiprocessors of the device, or of a context of the description.
[[nodiscard]] CUresult GetPart(CUdevice device, uint32_t part, SmCounts* has);
// `min_count` may be too large. All `groups` are alike; if nothing remains, its count is 0.
[[nodiscard]] CUresult SplitPart(CUdevice device, uint32_t part, const SmSplit& split,
                                 uint32_t* groups, SmCounts* group, SmCounts* remaining);
// The part whose multiprocessors the context may use. INVALID_CONTEXT, also for null.
[[nodiscard]] CUresult PartOfContext(CUcontext context, CUdevice* device, uint32_t* part);
[[nodiscard]] CUresult PartOfGreenContext(CUgreenCtx context, CUdevice* device, uint32_t* part);

}  // namespace gpuloom
