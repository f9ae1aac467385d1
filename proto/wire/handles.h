// SPDX-License-Identifier: Apache-2.0
// The types of addresses, ids and tokens on the wire. Different things have different types, so that a tenant's address
// cannot be dereferenced on the node by accident, and a kernel's id cannot be mistaken for a stream's. Plain values.
#pragma once

#include <cstdint>

namespace gpuloom::wire {

// A device address as the tenant's kernels see it. Real: kernel arguments can have pointers inside
// structs, so nothing is translated.
enum class DevicePtr : uint64_t {};

// An address in the session's host arena, which tenant and executor map at the same address.
enum class HostPtr : uint64_t {};

// Ids are chosen by the tenant, one number space per type; the executor looks them up with the type
// they must have. Zero is never a library, kernel or event; stream 0 is the session's legacy
// default stream, which always exists.
enum class LibraryId : uint32_t {};
enum class KernelId : uint32_t {};
enum class StreamId : uint32_t {};
enum class EventId : uint32_t {};

inline constexpr StreamId kLegacyStream{0};

// Streams are also indices into CompletionRegion::completed, hence the bound. PyTorch makes 3 x 32
// per device.
inline constexpr uint32_t kMaxStreams = 4096;
// Limits what one session can make the executor hold. cuBLAS and cuDNN together have about 50,000
// kernels.
inline constexpr uint32_t kMaxLibraries = 1u << 16;
inline constexpr uint32_t kMaxKernels = 1u << 20;
inline constexpr uint32_t kMaxEvents = 1u << 20;

// Names memory or an event to other processes of the domain: 128 random bits that the executor
// chose and knows.
struct Token {
  uint64_t words[2];
};

// Commands are numbered 1, 2, 3 … in ring order by both sides (pad records are not counted). The
// number that a stream has reached tells the tenant what is done: see CompletionRegion.
enum class Ticket : uint64_t {};

}  // namespace gpuloom::wire
