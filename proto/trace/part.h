// SPDX-License-Identifier: Apache-2.0
// One executor's part of a trace, read from the region that it has written (proto/wire/trace_region.h) and believed
// in nothing: every place is checked, every time is cut to when the trace was, and a session counts only if the
// scheduler has named it as this executor's. So whatever an executor writes concerns its own domain's records only.
//
// The region is read with pread, never mapped: the executor may write it meanwhile, and a mapping would make pages of
// what nobody has written, on the reader's account. Names are copied when it is opened, and each byte belongs to one
// at most. So a part takes wire::kTraceNameBytes, whatever is in it.
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

// On CLOCK_MONOTONIC: from before the trace was asked for until after it was had.
struct Window {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

class Part {
 public:
  // `region`: to be read. `sessions`: this executor's, as the scheduler names them. Returns false with errno if the
  // region cannot be read.
  [[nodiscard]] bool Open(channel::UniqueFd region, const std::vector<uint64_t>& sessions,
                          const Window& window);

  // What it says of itself, as far as it makes sense.
  wire::TraceSource source() const { return source_; }
  std::string source_reason() const;  // any bytes
  uint64_t dropped() const { return header_.dropped; }
  uint64_t lost() const { return header_.lost; }
  uint64_t incomplete() const { return header_.incomplete; }
  const Window& window() const { return window_; }

  // Calls `take` for each record that makes sense, with its times cut to window(). Its session is one of Open's, or,
  // of what is nobody's, 0 or kTraceOfExecutor.
  using Take = std::function<void(const wire::TraceRecord&)>;
  void ForEach(const Take& take) const;
  // Empty: none. Lives as long as the part.
  std::string_view Name(uint32_t place_untrusted) const;

 private:
  bool Read(void* to, size_t bytes, size_t place) const;
  // All that there are, as they are now.
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
