// SPDX-License-Identifier: Apache-2.0
// Kernels of a library: their parameters, attributes and occupancy.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/attribute.h"
#include "proto/wire/command.h"
#include "proto/wire/launch_commands.h"
#include "proto/wire/library_commands.h"

namespace gpuloom::wire {

inline constexpr uint32_t kFunctionAttributes = 16;  // CU_FUNC_ATTRIBUTE_* 0..15 of CUDA 13.0

struct KernelParam {
  uint32_t offset_bytes;
  uint32_t size_bytes;
};

// Finds a kernel by name (payload, no NUL) and loads its code. Reply payload: one KernelParam per
// parameter.
struct KernelGet {
  static constexpr std::string_view kName = "KernelGet";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxNameBytes;
  struct Request {
    LibraryId library;
    KernelId kernel;  // unused so far
  };
  struct Reply {
    int32_t attributes[kFunctionAttributes];  // kNoAttribute where the driver has none
    uint32_t param_count;
    uint32_t param_bytes;  // size of the packed parameter buffer
    // Since minor version 8. 1: it may have atomic operations of the system's scope; 0: as far as is known, none.
    uint32_t system_atomics;
  };
};

// The parameters from `first` on, as many as a reply holds (payload: KernelParam each). For kernels with more than
// KernelGet's reply had room for.
struct KernelParams {
  static constexpr std::string_view kName = "KernelParams";
  static constexpr bool kReply = true;
  struct Request {
    KernelId kernel;
    uint32_t first;
  };
  struct Reply {};
};

struct KernelSetAttribute {
  static constexpr std::string_view kName = "KernelSetAttribute";
  static constexpr bool kReply = true;
  struct Request {
    KernelId kernel;
    int32_t attribute;  // CUfunction_attribute
    int32_t value;
  };
  struct Reply {
    int32_t attributes[kFunctionAttributes];  // all of them, after the change
  };
};

struct OccupancyBlocks {
  static constexpr std::string_view kName = "OccupancyBlocks";
  static constexpr bool kReply = true;
  struct Request {
    KernelId kernel;
    int32_t block_threads;
    uint64_t dynamic_shared_bytes;
    uint32_t flags;  // CUoccupancy_flags
    uint32_t unused;
  };
  struct Reply {
    int32_t blocks_per_sm;
  };
};

struct OccupancySharedMemory {
  static constexpr std::string_view kName = "OccupancySharedMemory";
  static constexpr bool kReply = true;
  struct Request {
    KernelId kernel;
    int32_t blocks_per_sm;
    int32_t block_threads;
  };
  struct Reply {
    uint64_t dynamic_shared_bytes;
  };
};

enum class ClusterQuestion : uint32_t { kMaxActiveClusters, kMaxPotentialSize };

struct OccupancyClusters {
  static constexpr std::string_view kName = "OccupancyClusters";
  static constexpr bool kReply = true;
  struct Request {
    KernelId kernel;
    ClusterQuestion question;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t dynamic_shared_bytes;
    LaunchAttributes attributes;
  };
  struct Reply {
    int32_t value;
  };
};

}  // namespace gpuloom::wire
