// SPDX-License-Identifier: Apache-2.0
// Requests a trace of this container's own work (proto/wire/trace.h) and writes it to a file
// (docs/tracing.md). AskForTrace blocks for as long as the trace lasts. Owns the trace in memory; the file stays the
// caller's. One thread.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "proto/channel/unique_fd.h"
#include "proto/trace/part.h"
#include "proto/wire/trace.h"

namespace gpuloom {

struct OwnTrace {
  std::string gpu_uuid;
  std::vector<wire::TraceSessionName> sessions;
  trace::Part part;
};

// Returns false with a message.
[[nodiscard]] bool AskForTrace(std::chrono::milliseconds time, OwnTrace* trace, std::string* error);

// Returns false with errno if the file could not be written completely. `summary` is one line about
// the trace.
[[nodiscard]] bool WriteOwnTrace(const OwnTrace& trace, FILE* file, std::string* summary);

// What is missing from the trace; empty if it is complete.
std::string Lack(const OwnTrace& trace);

}  // namespace gpuloom
