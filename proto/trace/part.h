// SPDX-License-Identifier: Apache-2.0
// One executor's part of a trace, read from the region that the executor has written (proto/wire/trace_region.h).
// Nothing in it is trusted: every index is checked, every time is cut to the time of the trace, and a session counts
// only if the scheduler has named it as this executor's. So whatever an executor writes affects only its own domain's
// records.
//
// The region is read with pread, never mapped: the executor may write it meanwhile, and a mapping would create pages
// for its unwritten parts, charged to the reader. Names are copied when the part is opened, and each byte belongs to
// at most one name. So a part takes wire::kTraceNameBytes of memory, whatever is in it.
//
// Owns the descriptor. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "proto/channel/unique_fd.h"
#include "proto/wire/trace_region.h"

namespace gpuloom::trace {

// The time of the trace, on CLOCK_MONOTONIC: from before it was requested until after it was received.
struct Window {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

class Part {
 public:
  // Opens the region, of which it takes ownership. `sessions`: this executor's, as the scheduler names them. Returns
  // false with errno if the region cannot be read.
  [[nodiscard]] bool Open(channel::UniqueFd region, const std::vector<uint64_t>& sessions,
                          const Window& window);

  // What the part's header says, as far as it is plausible.
  wire::TraceSource source() const { return source_; }
  std::string source_reason() const;  // any bytes
  uint64_t dropped() const { return header_.dropped; }
  uint64_t lost() const { return header_.lost; }
  uint64_t incomplete() const { return header_.incomplete; }
  const Window& window() const { return window_; }

  // Calls `take` for each plausible record, with its times cut to window(). Its session is one of Open's, or, for
  // work of no session, 0 or kTraceOfExecutor.
  using Take = std::function<void(const wire::TraceRecord&)>;
  void ForEach(const Take& take) const;
  // The name at this place; empty: none. Lives as long as the part.
  std::string_view Name(uint32_t place_untrusted) const;

 private:
  bool Read(void* to, size_t bytes, size_t place) const;
  // Reads all present records, unchecked.
  void ReadRecords(const Take& take_untrusted) const;

  channel::UniqueFd region_;
  wire::TraceHeader header_{};
  wire::TraceSource source_ = wire::TraceSource::kNone;
  Window window_;
  uint64_t records_ = 0;
  std::string names_;
  std::unordered_set<uint64_t> sessions_;
};

}  // namespace gpuloom::trace
