// SPDX-License-Identifier: Apache-2.0
#include "proto/trace/part.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <utility>

#include "proto/channel/region.h"

namespace gpuloom::trace {

using wire::TraceRecord;
using wire::TraceSource;

bool Part::Open(channel::UniqueFd region, const std::vector<uint64_t>& sessions,
                const Window& window) {
  if (!channel::IsSealedMemory(region.get(), wire::kTraceRegionBytes)) {
    errno = EINVAL;
    return false;
  }
  region_ = std::move(region);
  if (!Read(&header_, sizeof(header_), 0)) return false;
  // What they count was there before them.
  std::atomic_thread_fence(std::memory_order_acquire);
  records_ = std::min(header_.records, wire::kTraceRecords);
  names_.resize(std::min(header_.name_bytes, wire::kTraceNameBytes));
  if (!Read(names_.data(), names_.size(), wire::kTraceNamesAt)) return false;
  if (header_.source <= static_cast<uint32_t>(TraceSource::kCupti)) {
    source_ = static_cast<TraceSource>(header_.source);
  }
  window_.begin_ns = std::clamp(header_.begin_ns, window.begin_ns, window.end_ns);
  // 0: the executor was lost before it stopped recording.
  const uint64_t end_ns = header_.end_ns == 0 ? window.end_ns : header_.end_ns;
  window_.end_ns = std::clamp(end_ns, window_.begin_ns, window.end_ns);
  sessions_.insert(sessions.begin(), sessions.end());
  return true;
}

std::string Part::source_reason() const {
  const char* const reason = header_.source_reason;
  return std::string(reason, strnlen(reason, sizeof(header_.source_reason)));
}

bool Part::Read(void* to, size_t bytes, size_t place) const {
  const ssize_t got = pread(region_.get(), to, bytes, static_cast<off_t>(place));
  if (got >= 0 && static_cast<size_t>(got) < bytes) errno = EIO;
  return got == static_cast<ssize_t>(bytes);
}

void Part::ReadRecords(const Take& take_untrusted) const {
  // Records per read: few system calls, little memory.
  constexpr uint64_t kAtOnce = 1024;
  std::vector<TraceRecord> some;
  for (uint64_t i = 0; i < records_; i += some.size()) {
    some.resize(std::min(kAtOnce, records_ - i));
    if (!Read(some.data(), some.size() * sizeof(TraceRecord),
              wire::kTraceRecordsAt + i * sizeof(TraceRecord))) {
      return;
    }
    for (const TraceRecord& record : some) take_untrusted(record);
  }
}

void Part::ForEach(const Take& take) const {
  // The sessions of launches of graphs, whose nodes may run in CUDA's internal streams, which belong to no session.
  // Made anew for each call, because those of all parts together would take a gigabyte.
  std::unordered_map<uint32_t, uint64_t> session_of_launch;
  ReadRecords([&](const TraceRecord& record) {
    if (record.correlation == 0 || !sessions_.contains(record.session_id)) return;
    session_of_launch.emplace(record.correlation, record.session_id);
  });
  // 0 for a session that is not this executor's: what it writes about others is not attributed to them.
  const auto session_of = [&](const TraceRecord& record) {
    uint64_t id = record.session_id;
    if (id == wire::kTraceOfExecutor) return id;
    if (id == 0 && record.correlation != 0) {
      const auto launch = session_of_launch.find(record.correlation);
      if (launch != session_of_launch.end()) id = launch->second;
    }
    return sessions_.contains(id) ? id : 0;
  };
  ReadRecords([&](TraceRecord record) {
    if (record.end_ns < record.begin_ns || record.end_ns < window_.begin_ns ||
        record.begin_ns > window_.end_ns || record.kind >= wire::kTraceKinds) {
      return;
    }
    record.begin_ns = std::max(record.begin_ns, window_.begin_ns);
    record.end_ns = std::min(record.end_ns, window_.end_ns);
    record.session_id = session_of(record);
    take(record);
  });
}

std::string_view Part::Name(uint32_t place_untrusted) const {
  // A name must follow the end of another, as executors write them: otherwise places within names could turn one MiB of
  // names into a gigabyte.
  if (place_untrusted == 0 || place_untrusted >= names_.size() ||
      names_[place_untrusted - 1] != '\0') {
    return {};
  }
  const std::string_view name =
      std::string_view(names_).substr(place_untrusted, wire::kTraceLongestName);
  return name.substr(0, name.find('\0'));
}

}  // namespace gpuloom::trace
