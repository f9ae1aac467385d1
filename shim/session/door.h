// SPDX-License-Identifier: Apache-2.0
// How this process finds the allocation's socket, and how it introduces itself there. Reads the environment; keeps no
// state; safe from any thread. Used by both libraries that a tenant is given, and by gpuloom-trace.
#pragma once

#include <time.h>

#include <cstddef>
#include <cstdint>

#include "proto/channel/unique_fd.h"
#include "proto/wire/session.h"
#include "shim/process/log.h"

namespace gpuloom {

inline constexpr size_t kDoorPathBytes = 4096;

// Connects to the scheduler, which has `answer_timeout_s` for each answer. Invalid if it cannot be reached, with the
// reason in `failures`. Writes the socket's path to `path`.
[[nodiscard]] channel::UniqueFd ConnectToScheduler(FailureLog* failures, time_t answer_timeout_s,
                                                   char (&path)[kDoorPathBytes]);

// `magic` says what is wanted: wire::kHelloMagic for a session, wire::kQueryMagic for an answer.
wire::Hello MakeHello(uint32_t magic);

// Reads GPULOOM_LOG for this library's log level.
void ReadLogLevel();

// "GPU-01020304-0506-…", as NVIDIA's tools write a UUID.
inline constexpr size_t kUuidTextBytes = 41;
void WriteUuid(const uint8_t (&uuid)[16], char (&text)[kUuidTextBytes]);

}  // namespace gpuloom
