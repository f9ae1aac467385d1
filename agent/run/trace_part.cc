// SPDX-License-Identifier: Apache-2.0
#include "agent/run/trace_part.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <atomic>

#include "agent/node/one_line.h"
#include "proto/channel/region.h"

namespace gpuloom::run {

using control::TraceRecord;
using control::TraceSource;

bool TracePart::Open(const control::Client::Part& part,
                     const std::vector<control::TraceSession>& sessions,
                     const TraceWindow& window) {
  const int memory = part.region.get();
  if (!channel::IsSealedMemory(memory, control::kTraceRegionBytes)) {
    errno = EINVAL;
    return false;
  }
  if (!region_.Map(memory, control::kTraceRegionBytes, SharedRegion::Access::kReadOnly)) {
    return false;
  }
  // A load needs no writable memory, but atomic_ref a type that is not const.
  auto* const shared = reinterpret_cast<control::TraceHeader*>(region_.data());
  records_ = std::min(std::atomic_ref(shared->records).load(std::memory_order_acquire),
                      control::kTraceRecords);
  name_bytes_ = std::min(std::atomic_ref(shared->name_bytes).load(std::memory_order_acquire),
                         control::kTraceNameBytes);
  memcpy(&header_, shared, sizeof(header_));
  if (header_.source <= static_cast<uint32_t>(TraceSource::kCupti)) {
    source_ = static_cast<TraceSource>(header_.source);
  }
  window_.begin_ns = std::clamp(header_.begin_ns, window.begin_ns, window.end_ns);
  // It has not said when: it was lost meanwhile.
  const uint64_t end_ns = header_.end_ns == 0 ? window.end_ns : header_.end_ns;
  window_.end_ns = std::clamp(end_ns, window_.begin_ns, window.end_ns);
  for (const control::TraceSession& session : sessions) {
    if (session.executor_id == part.part.executor_id)
      sessions_.emplace(session.session_id, &session);
  }
  for (uint64_t i = 0; i < records_; ++i) {
    const TraceRecord record = Copy(i);
    if (record.correlation == 0 || !sessions_.contains(record.session_id)) continue;
    session_of_launch_.emplace(record.correlation, record.session_id);
  }
  return true;
}

std::string TracePart::source_reason() const {
  return OneLine({header_.source_reason, control::TextLength(header_.source_reason)},
                 sizeof(header_.source_reason));
}

TraceRecord TracePart::Copy(uint64_t index) const {
  TraceRecord record;
  memcpy(&record, region_.data() + control::kTraceRecordsAt + index * sizeof(record),
         sizeof(record));
  return record;
}

const control::TraceSession* TracePart::SessionOf(const TraceRecord& record) const {
  uint64_t id = record.session_id;
  if (id == 0 && record.correlation != 0) {
    const auto launch = session_of_launch_.find(record.correlation);
    if (launch != session_of_launch_.end()) id = launch->second;
  }
  const auto session = sessions_.find(id);
  return session == sessions_.end() ? nullptr : session->second;
}

void TracePart::ForEach(const Take& take) const {
  for (uint64_t i = 0; i < records_; ++i) {
    TraceRecord record = Copy(i);
    if (record.end_ns < record.begin_ns || record.end_ns < window_.begin_ns ||
        record.begin_ns > window_.end_ns || record.kind >= control::kTraceKinds) {
      continue;
    }
    record.begin_ns = std::max(record.begin_ns, window_.begin_ns);
    record.end_ns = std::min(record.end_ns, window_.end_ns);
    const control::TraceSession* const session = SessionOf(record);
    if (session != nullptr) {
      record.session_id = session->session_id;
    } else if (record.session_id != control::kTraceOfExecutor) {
      record.session_id = 0;
    }
    take(record, session);
  }
}

std::string TracePart::Name(uint32_t place_untrusted) const {
  if (place_untrusted == 0 || place_untrusted >= name_bytes_) return {};
  const auto* const name =
      reinterpret_cast<const char*>(region_.data()) + control::kTraceNamesAt + place_untrusted;
  const size_t most = std::min<size_t>(control::kTraceLongestName, name_bytes_ - place_untrusted);
  return std::string(name, strnlen(name, most));
}

}  // namespace gpuloom::run
