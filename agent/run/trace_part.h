// SPDX-License-Identifier: Apache-2.0
// One executor's part of a trace, read from the region that it has written (proto/control/trace_region.h) and believed
// in nothing: every place is checked, every time is cut to when the trace was, and a session counts only if the scheduler has
// named it as this executor's. So whatever an executor writes concerns its own domain's records only.
//
// Owns the mapping. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "agent/node/shared_region.h"
#include "proto/control/client.h"
#include "proto/control/trace_region.h"

namespace gpuloom::run {

// On CLOCK_MONOTONIC: from before the trace was asked for until after it was had.
struct TraceWindow {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

class TracePart {
 public:
  // `sessions`: those of the whole trace; outlives this. Returns false with errno if the region cannot be mapped.
  [[nodiscard]] bool Open(const control::Client::Part& part,
                          const std::vector<control::TraceSession>& sessions,
                          const TraceWindow& window);

  // What it says of itself, as far as it makes sense.
  control::TraceSource source() const { return source_; }
  std::string source_reason() const;
  uint64_t dropped() const { return header_.dropped; }
  uint64_t lost() const { return header_.lost; }
  uint64_t incomplete() const { return header_.incomplete; }
  const TraceWindow& window() const { return window_; }

  // Calls `take` for each record that makes sense, with its times cut to window(). The session is null for what is nobody's;
  // then session_id is 0 or kTraceOfExecutor.
  using Take = std::function<void(const control::TraceRecord&, const control::TraceSession*)>;
  void ForEach(const Take& take) const;
  // Empty: none.
  std::string Name(uint32_t place_untrusted) const;

 private:
  control::TraceRecord Copy(uint64_t index) const;
  const control::TraceSession* SessionOf(const control::TraceRecord& record) const;

  SharedRegion region_;
  control::TraceHeader header_{};
  control::TraceSource source_ = control::TraceSource::kNone;
  TraceWindow window_;
  uint64_t records_ = 0;
  uint64_t name_bytes_ = 0;
  std::unordered_map<uint64_t, const control::TraceSession*> sessions_;
  // Of launches of graphs. Their nodes may run in streams of CUDA's own, which are nobody's.
  std::unordered_map<uint32_t, uint64_t> session_of_launch_;
};

}  // namespace gpuloom::run
