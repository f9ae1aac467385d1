// SPDX-License-Identifier: Apache-2.0
// Green contexts: parts of the device's multiprocessors, and streams whose kernels run on one part. What a split
// yields depends on the chip, so the driver is asked; a split is a pure function of its input, so only its arguments
// are kept, and GreenCreate repeats it.
//
//   PartSplit(device, 16 each) → two groups of 16, 100 remain
//   GreenCreate(context 1, part 1 := group 0 of that split of the device)
//   PartSplit(part 1, 8 each) → …
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

// Chosen by the tenant, as other ids are.
enum class GreenContextId : uint32_t {};
// Identifies the multiprocessors of the contexts of one description; stays valid after those have ended. 0 is the
// device.
enum class DevicePartId : uint32_t {};

inline constexpr DevicePartId kWholeDevice{0};

inline constexpr uint32_t kMaxGreenContexts = 256;  // ids; an executor holds fewer per session
inline constexpr uint32_t kMaxDeviceParts = 1024;
// Twice what today's devices yield when split as finely as possible.
inline constexpr uint32_t kMaxSplitGroups = 256;

// CUdevSmResource. `count` 0: there is no such part.
struct Multiprocessors {
  uint32_t count;
  uint32_t min_partition;
  uint32_t alignment;
  uint32_t unused;
};

// cuDevSmResourceSplitByCount's arguments. `groups` is a maximum.
struct SplitArguments {
  uint32_t use_flags;
  uint32_t min_count;
  uint32_t groups;  // 1 … kMaxSplitGroups
  uint32_t unused;
};

struct PartGet {
  static constexpr std::string_view kName = "PartGet";
  static constexpr bool kReply = true;
  struct Request {
    DevicePartId part;
  };
  struct Reply {
    Multiprocessors has;
  };
};

struct PartSplit {
  static constexpr std::string_view kName = "PartSplit";
  static constexpr bool kReply = true;
  struct Request {
    DevicePartId part;
    uint32_t unused;
    SplitArguments split;
  };
  struct Reply {
    uint32_t groups;  // this many, all alike
    uint32_t unused;
    Multiprocessors group;
    Multiprocessors remaining;
  };
};

// One more piece of a context's resources: whatever a program has combined, in its order.
struct PartPick {
  enum class What : uint32_t { kWhole, kRemaining, kGroup };
  What what;
  uint32_t group;  // of the split
  SplitArguments split;
};
inline constexpr uint32_t kMaxPartPicks = 64;

// Creates a context with the picked groups of a split of `of`, or with all of `of`. From then on `part` identifies its
// multiprocessors. Payload: more PartPicks, of other splits or the same piece again.
struct GreenCreate {
  static constexpr std::string_view kName = "GreenCreate";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxPartPicks * sizeof(PartPick);
  struct Request {
    GreenContextId context;  // unused so far
    DevicePartId part;       // the same for the same description
    DevicePartId of;
    uint32_t whole;      // 1: `of` as it is; the rest is 0
    uint32_t remaining;  // 1: what the split leaves over
    uint32_t unused;
    SplitArguments split;
    uint64_t picked[kMaxSplitGroups / 64];  // one bit per group
  };
  struct Reply {
    Multiprocessors has;
  };
};

// The context is destroyed once its streams are.
struct GreenDestroy {
  static constexpr std::string_view kName = "GreenDestroy";
  static constexpr bool kReply = false;
  struct Request {
    GreenContextId context;
  };
  using Reply = NoReply;
};

// Like StreamCreate, in a green context, whose streams are all non-blocking.
struct GreenStreamCreate {
  static constexpr std::string_view kName = "GreenStreamCreate";
  static constexpr bool kReply = true;
  struct Request {
    StreamId stream;  // unused so far, 1 … kMaxStreams - 1
    GreenContextId context;
    uint32_t unused;
    int32_t priority;
  };
  struct Reply {};
};

}  // namespace gpuloom::wire
