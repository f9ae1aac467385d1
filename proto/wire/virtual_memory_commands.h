// SPDX-License-Identifier: Apache-2.0
// Physical memory and where it is mapped (CUDA's virtual memory functions), and memory of one process that another of the
// same trust domain opens.
//
// Physical memory is created by the scheduler and charged to the session that created it. It is
// freed when no session of the domain holds it any more, neither by an id nor by a mapping. What
// outlives its session is charged to one that still holds it.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

// Chosen by the tenant, like other ids; zero is never one.
enum class PhysicalId : uint32_t {};
inline constexpr uint32_t kMaxPhysicals = 1u << 20;

// The range where the tenant may map: it cuts its reservations out of this part of its device
// range, which MemAlloc does not use.
struct AddressSpace {
  static constexpr std::string_view kName = "AddressSpace";
  static constexpr bool kReply = true;
  struct Request {};
  struct Reply {
    uint64_t begin;
    uint64_t size_bytes;
  };
};

// Memory of whole granules, not mapped: cleared, or released by this session before.
struct PhysicalCreate {
  static constexpr std::string_view kName = "PhysicalCreate";
  static constexpr bool kReply = true;
  struct Request {
    PhysicalId physical;  // unused so far
    uint32_t unused;
    uint64_t size_bytes;
  };
  struct Reply {};
};

// The id is free again; mappings stay.
struct PhysicalRelease {
  static constexpr std::string_view kName = "PhysicalRelease";
  static constexpr bool kReply = true;
  struct Request {
    PhysicalId physical;
  };
  struct Reply {};
};

struct PhysicalExport {
  static constexpr std::string_view kName = "PhysicalExport";
  static constexpr bool kReply = true;
  struct Request {
    PhysicalId physical;
  };
  struct Reply {
    Token token;
  };
};

// CUDA_ERROR_INVALID_HANDLE if this executor knows no such memory.
struct PhysicalImport {
  static constexpr std::string_view kName = "PhysicalImport";
  static constexpr bool kReply = true;
  struct Request {
    PhysicalId physical;  // unused so far
    uint32_t unused;
    Token token;
  };
  struct Reply {
    uint64_t size_bytes;
  };
};

// The physical memory behind an allocation of MemAlloc, for PhysicalImport elsewhere. Small
// allocations share theirs.
struct MemExport {
  static constexpr std::string_view kName = "MemExport";
  static constexpr bool kReply = true;
  struct Request {
    DevicePtr address;
  };
  struct Reply {
    Token token;
    uint64_t offset_bytes;  // of the address, inside the physical memory
    uint64_t size_bytes;    // of the physical memory
  };
};

// Maps all of a physical memory, at addresses of AddressSpace where nothing is mapped. Without
// access.
struct MemMap {
  static constexpr std::string_view kName = "MemMap";
  static constexpr bool kReply = true;
  struct Request {
    DevicePtr address;
    uint64_t size_bytes;
    PhysicalId physical;
    uint32_t unused;
  };
  struct Reply {};
};

// Unmaps exactly one mapping. Answered when the session's work so far is done and the memory is unmapped.
struct MemUnmap {
  static constexpr std::string_view kName = "MemUnmap";
  static constexpr bool kReply = true;
  struct Request {
    DevicePtr address;
    uint64_t size_bytes;
  };
  struct Reply {};
};

// Sets the access of whole mappings without gaps. Reducing access waits for the session's work so far.
struct MemSetAccess {
  static constexpr std::string_view kName = "MemSetAccess";
  static constexpr bool kReply = true;
  struct Request {
    DevicePtr address;
    uint64_t size_bytes;
    uint32_t flags;  // CUmemAccess_flags
    uint32_t unused;
  };
  struct Reply {};
};

}  // namespace gpuloom::wire
