// SPDX-License-Identifier: Apache-2.0
// Libraries: loading them, what the executor may already have of them (docs/design/module-loading.md), and what is in them.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"
#include "proto/wire/link_commands.h"

namespace gpuloom::wire {

inline constexpr uint32_t kMaxNameBytes = 16u
                                          << 10;  // mangled C++ names get long; CUDA sets no limit

// Loads a fatbin, cubin or PTX image that lies in the arena. The executor copies it before looking
// at it. Reply payload: the JIT's error log (text), also when loading failed.
struct LibraryLoad {
  static constexpr std::string_view kName = "LibraryLoad";
  static constexpr bool kReply = true;
  struct Request {
    LibraryId library;  // unused so far
    uint32_t unused;
    HostPtr image;  // in the arena
    uint64_t image_bytes;
  };
  struct Reply {
    uint32_t kernel_count;
    // Not 0: nothing is loaded yet; LibraryPlace gives the `__managed__` variables their place.
    uint32_t managed_bytes;
  };
};

// Images of at least this size are first requested by their hash; sending smaller ones costs less than that.
inline constexpr uint64_t kByHashBytes = 64u << 10;

// Hashing an image of at least this size takes longer than asking first whether one of its size is known.
inline constexpr uint64_t kBySizeBytes = 1u << 20;

// Whether an image of this size is known, or will be soon because a session of this trust domain has just loaded it. If
// not, its hash is not worth computing: the tenant sends the bytes. Any size is allowed.
struct LibrarySizeKnown {
  static constexpr std::string_view kName = "LibrarySizeKnown";
  static constexpr bool kReply = true;
  struct Request {
    uint64_t image_bytes;
  };
  struct Reply {
    uint32_t known;  // 0 or 1
    uint32_t unused;
  };
};

// LibraryLoad of an image that a session of this trust domain has sent before, named by the SHA-256 of its bytes. If
// none is known the result is success with known == 0, the id stays unused, and the tenant sends the bytes. Reply
// payload: the JIT's error log (text).
struct LibraryLoadByHash {
  static constexpr std::string_view kName = "LibraryLoadByHash";
  static constexpr bool kReply = true;
  struct Request {
    LibraryId library;  // unused so far
    uint32_t unused;
    uint64_t hash[4];  // as in memory
  };
  struct Reply {
    uint32_t kernel_count;
    uint32_t known;
  };
};

// LibraryLoad with JIT options, returning the compiler's report. What is loaded is this tenant's alone. Payload:
// LinkOption each. The command's result is success whatever became of the image, so that the reply's fields are valid.
struct LibraryCompile {
  static constexpr std::string_view kName = "LibraryCompile";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxLinkOptions * sizeof(LinkOption);
  struct Request {
    LibraryId library;             // unused so far
    uint32_t info_capacity_bytes;  // as in LinkReport
    HostPtr image;                 // in the arena
    uint64_t image_bytes;
    HostPtr texts;
    uint32_t error_capacity_bytes;
    uint32_t unused;
  };
  struct Reply {
    uint32_t result;  // CUresult; when it is not CUDA_SUCCESS, `library` stays unused
    uint32_t kernel_count;
    uint32_t managed_bytes;  // as in LibraryLoad
    uint32_t unused;
    JitReport report;
  };
};

// The library's kernels and globals are gone for the tenant at once; it is unloaded when the device is idle.
struct LibraryUnload {
  static constexpr std::string_view kName = "LibraryUnload";
  static constexpr bool kReply = true;
  struct Request {
    LibraryId library;
  };
  struct Reply {};
};

// The names of all kernels of a library, each ended by a NUL: the part from `offset_bytes` on, as much as a reply
// holds.
struct LibraryKernels {
  static constexpr std::string_view kName = "LibraryKernels";
  static constexpr bool kReply = true;
  struct Request {
    LibraryId library;
    uint32_t offset_bytes;
  };
  struct Reply {
    uint32_t kernel_count;
    uint32_t names_bytes;  // of all of them
  };
};

// Finds a __device__ or __constant__ variable by name (payload, no NUL).
struct GlobalGet {
  static constexpr std::string_view kName = "GlobalGet";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxNameBytes;
  struct Request {
    LibraryId library;
  };
  struct Reply {
    DevicePtr address;
    uint64_t size_bytes;
  };
};

}  // namespace gpuloom::wire
