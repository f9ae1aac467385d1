// SPDX-License-Identifier: Apache-2.0
// The commands between tenant and executor. Each is a type with a name, a request and a reply; AllCommands
// (command_list.h) is the protocol: opcodes, names, sizes, the client's calls, the executor's dispatch, tests and
// fuzzers derive from it. This header has the commands that every program needs; others are in headers of their own,
// named by topic (<noun>_commands.h). All are plain values.
//
// kReply says whether the tenant waits: commands without a reply are fire and forget, and CompletionRegion::completed
// of their stream shows their completion. A reply carries a CUresult beside Reply (ReplySlot::result); the fields of
// Reply are valid only if that is CUDA_SUCCESS. A command may declare kMaxPayloadBytes: a variable tail after the
// request.
//
// To add one: write it here or in its topic's header, append it to AllCommands, write its handler in agent/executor
// (without it the build fails), raise kWireMinor, update tests/golden/wire_layout.txt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/wire/handles.h"
#include "proto/wire/regions.h"
#include "proto/wire/wire_struct.h"

namespace gpuloom::wire {

struct NoReply {};

inline constexpr uint32_t kMaxNameBytes = 16u
                                          << 10;  // mangled C++ names get long; CUDA sets no limit
inline constexpr uint32_t kMaxKernelParamBytes = 32764;  // CUDA 12.1's limit on sm_70 and later
inline constexpr uint32_t kMaxInlineCopyBytes =
    64u << 10;  // up to here CUDA itself makes pageable HtoD asynchronous
inline constexpr uint32_t kFunctionAttributes = 16;  // CU_FUNC_ATTRIBUTE_* 0..15 of CUDA 13.0

// ---- modules ----

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

// The library's kernels and globals are gone for the tenant at once; it is unloaded when the device is idle.
struct LibraryUnload {
  static constexpr std::string_view kName = "LibraryUnload";
  static constexpr bool kReply = true;
  struct Request {
    LibraryId library;
  };
  struct Reply {};
};

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
  };
};
inline constexpr int32_t kNoAttribute = INT32_MIN;

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

// ---- memory ----

struct MemAlloc {
  static constexpr std::string_view kName = "MemAlloc";
  static constexpr bool kReply = true;
  struct Request {
    uint64_t size_bytes;
  };
  struct Reply {
    DevicePtr address;
  };
};

// Answered when the session's work so far is done and the memory is unmapped. Never waits for
// another tenant.
struct MemFree {
  static constexpr std::string_view kName = "MemFree";
  static constexpr bool kReply = true;
  struct Request {
    DevicePtr address;
  };
  struct Reply {};
};

struct MemInfo {
  static constexpr std::string_view kName = "MemInfo";
  static constexpr bool kReply = true;
  struct Request {};
  struct Reply {
    uint64_t free_bytes;
    uint64_t total_bytes;  // the allocation's quota
  };
};

// Makes a page-aligned part of the arena, already populated by the tenant, reachable by the device
// (pins it).
struct HostRegister {
  static constexpr std::string_view kName = "HostRegister";
  static constexpr bool kReply = true;
  struct Request {
    HostPtr address;
    uint64_t size_bytes;
  };
  struct Reply {};
};

// Exactly a registered part. Answered when the session's work so far is done; unpinned when the
// device is idle.
struct HostUnregister {
  static constexpr std::string_view kName = "HostUnregister";
  static constexpr bool kReply = true;
  struct Request {
    HostPtr address;
    uint64_t size_bytes;
  };
  struct Reply {};
};

enum class CopyKind : uint32_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kHostToHost };

// Host sides lie in the arena; device sides in the session's own memory or its modules' globals.
struct Copy {
  static constexpr std::string_view kName = "Copy";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
    CopyKind kind;
    uint64_t destination;
    uint64_t source;
    uint64_t size_bytes;
  };
  using Reply = NoReply;
};

// A small host-to-device copy that travels in the ring (payload).
struct CopyInline {
  static constexpr std::string_view kName = "CopyInline";
  static constexpr bool kReply = false;
  static constexpr uint32_t kMaxPayloadBytes = kMaxInlineCopyBytes;
  struct Request {
    StreamId stream;
    uint32_t unused;
    DevicePtr destination;
  };
  using Reply = NoReply;
};

// Writes `count` elements of 1, 2 or 4 bytes, to device memory or to the arena's registered memory.
struct Fill {
  static constexpr std::string_view kName = "Fill";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
    uint32_t element_bytes;
    uint32_t value;
    uint32_t unused;
    uint64_t destination;
    uint64_t count;
  };
  using Reply = NoReply;
};

// ---- work ----

// Payload: the packed parameter buffer, exactly KernelGet's param_bytes.
struct Launch {
  static constexpr std::string_view kName = "Launch";
  static constexpr bool kReply = false;
  static constexpr uint32_t kMaxPayloadBytes = kMaxKernelParamBytes;
  struct Request {
    StreamId stream;
    KernelId kernel;
    uint32_t grid[3];
    uint32_t block[3];
    uint32_t dynamic_shared_bytes;
    uint32_t flags;  // none so far: must be 0 (attributes: LaunchEx)
  };
  using Reply = NoReply;
};

struct StreamCreate {
  static constexpr std::string_view kName = "StreamCreate";
  static constexpr bool kReply = true;
  struct Request {
    StreamId stream;       // unused so far, 1 … kMaxStreams - 1
    uint32_t nonblocking;  // 1: takes no part in the legacy default stream's barrier
    int32_t priority;
  };
  struct Reply {};
};

// The tenant may not name the stream any more; what was queued still runs. This is the stream's last
// command: when its ticket is done, the id is free again.
struct StreamDestroy {
  static constexpr std::string_view kName = "StreamDestroy";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
  };
  using Reply = NoReply;
};

struct EventCreate {
  static constexpr std::string_view kName = "EventCreate";
  static constexpr bool kReply = false;
  struct Request {
    EventId event;    // unused so far
    uint32_t timing;  // 1: EventElapsed may be asked of it
  };
  using Reply = NoReply;
};

struct EventDestroy {
  static constexpr std::string_view kName = "EventDestroy";
  static constexpr bool kReply = false;
  struct Request {
    EventId event;
  };
  using Reply = NoReply;
};

// Done when completed[stream] has reached this command's ticket.
struct EventRecord {
  static constexpr std::string_view kName = "EventRecord";
  static constexpr bool kReply = false;
  struct Request {
    EventId event;
    StreamId stream;
  };
  using Reply = NoReply;
};

// Later work of `stream` waits for the event's latest record before this command; if there is none, it does not wait.
struct StreamWaitEvent {
  static constexpr std::string_view kName = "StreamWaitEvent";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
    EventId event;
  };
  using Reply = NoReply;
};

// CUDA_ERROR_NOT_READY unless both events are done.
struct EventElapsed {
  static constexpr std::string_view kName = "EventElapsed";
  static constexpr bool kReply = true;
  struct Request {
    EventId start;
    EventId end;
  };
  struct Reply {
    uint32_t milliseconds_bits;  // of a float
  };
};

}  // namespace gpuloom::wire
