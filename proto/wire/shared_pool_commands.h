// SPDX-License-Identifier: Apache-2.0
// Pools of device memory that processes of one trust domain share (cuMemPoolExportToShareableHandle
// and its relatives; docs/design/memory.md). Pools themselves exist only in the tenant: here a
// shared one is a name for other processes, and the memory that its owner has put under it. Only a
// session that has opened the pool reaches that memory, and only by the number that the owner was given.
//
// Memory stays charged to the session it was granted to and lives until no session has it mapped
// any more; a session that ends removes only its own mappings.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

// Chosen by the tenant, like other ids; zero is never one.
enum class PoolId : uint32_t {};
inline constexpr uint32_t kMaxSharedPools = 1u << 12;

// Names a new pool to other processes of the domain.
struct PoolShare {
  static constexpr std::string_view kName = "PoolShare";
  static constexpr bool kReply = true;
  struct Request {
    PoolId pool;  // unused so far
  };
  struct Reply {
    Token token;
    uint64_t number;  // of the pool, for this executor's life; not secret, never 0
  };
};

// A pool that another session has shared. CUDA_ERROR_INVALID_HANDLE if this executor knows no such
// pool: it is another trust domain's, or no session has it open any more.
struct PoolOpen {
  static constexpr std::string_view kName = "PoolOpen";
  static constexpr bool kReply = true;
  struct Request {
    PoolId pool;  // unused so far
    uint32_t unused;
    Token token;
  };
  struct Reply {
    uint64_t number;
  };
};

// The id is free again; what is mapped stays.
struct PoolClose {
  static constexpr std::string_view kName = "PoolClose";
  static constexpr bool kReply = false;
  struct Request {
    PoolId pool;
  };
  using Reply = NoReply;
};

// Puts the memory of an allocation of MemAlloc, of a granule or more, under a pool that this
// session has shared. The same memory has the same number.
struct PoolPut {
  static constexpr std::string_view kName = "PoolPut";
  static constexpr bool kReply = true;
  struct Request {
    PoolId pool;
    uint32_t unused;
    DevicePtr address;  // where the allocation begins
  };
  struct Reply {
    uint64_t memory;  // its number in this pool; never 0
  };
};

// Maps memory that was put under the pool; from then on it is like an allocation of MemAlloc, and
// freed like one. CUDA_ERROR_INVALID_HANDLE if there is no such memory.
struct PoolTake {
  static constexpr std::string_view kName = "PoolTake";
  static constexpr bool kReply = true;
  struct Request {
    PoolId pool;
    uint32_t unused;
    uint64_t memory;
  };
  struct Reply {
    DevicePtr address;
    uint64_t size_bytes;
  };
};

}  // namespace gpuloom::wire
