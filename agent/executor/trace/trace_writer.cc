// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/trace/trace_writer.h"

#include <errno.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "proto/channel/region.h"

namespace gpuloom::executor {

using wire::kTraceNameBytes;
using wire::TraceRecord;

// The descriptor came from the scheduler. The region's size must be sealed: if it could shrink,
// writing to it would end this process with SIGBUS.
bool TraceWriter::Map(int memory, uint64_t most_records) {
  Unmap();
  most_records_ = std::min(most_records, wire::kTraceRecords);
  if (!channel::IsSealedMemory(memory, wire::kTraceRegionBytes)) {
    errno = EINVAL;
    return false;
  }
  return region_.Map(memory, wire::kTraceRegionBytes, SharedRegion::Access::kReadWrite);
}

void TraceWriter::Unmap() {
  region_ = {};
  records_ = name_bytes_ = 0;
  names_.clear();
}

// The region is new and zero, so texts have their NUL.
void TraceWriter::Begin(wire::TraceSource source, std::string_view reason, uint64_t begin_ns) {
  wire::TraceHeader* const its = header();
  its->source = static_cast<uint32_t>(source);
  const size_t length = std::min(reason.size(), sizeof(its->source_reason) - 1);
  std::memcpy(its->source_reason, reason.data(), length);
  its->begin_ns = begin_ns;
  name_bytes_ = 1;  // place 0 means no name
}

// Counted in our own memory; what the region says is for its readers, who see a record only when it
// is whole.
void TraceWriter::Write(const TraceRecord& record) {
  if (records_ == most_records_) {
    ++header()->dropped;
    return;
  }
  std::memcpy(region_.data() + wire::kTraceRecordsAt + records_ * sizeof(record), &record,
              sizeof(record));
  std::atomic_ref(header()->records).store(++records_, std::memory_order_release);
}

// A name that has no room is looked for in vain each time: its records have none.
uint32_t TraceWriter::Name(std::string_view name) {
  name = name.substr(0, std::min(name.find('\0'), wire::kTraceLongestName));
  if (name.empty()) return 0;
  const auto known = names_.find(name);
  if (known != names_.end()) return known->second;
  uint32_t place = 0;
  if (name.size() < kTraceNameBytes - name_bytes_) {
    place = static_cast<uint32_t>(name_bytes_);
    // The NUL behind it is there already.
    std::memcpy(region_.data() + wire::kTraceNamesAt + place, name.data(), name.size());
    name_bytes_ += name.size() + 1;
    std::atomic_ref(header()->name_bytes).store(name_bytes_, std::memory_order_release);
    names_.emplace(name, place);
  }
  return place;
}

}  // namespace gpuloom::executor
