// SPDX-License-Identifier: Apache-2.0
// Writes an executor's part of a trace into its region (proto/wire/trace_region.h): records, and each name once.
// Records and names that find no room are dropped and counted.
//
// Owned by the tracer. Used by one thread at a time, the one that records, unless stated otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "agent/node/shared_region.h"
#include "proto/wire/trace_region.h"

namespace gpuloom::executor {

class TraceWriter {
 public:
  // Makes room for `most_records`, kTraceRecords at most. Returns false with errno if the memory cannot be mapped, or
  // could be truncated while we use it.
  [[nodiscard]] bool Map(int memory, uint64_t most_records = wire::kTraceRecords);
  bool mapped() const { return region_.data() != nullptr; }
  void Unmap();

  // Call before anything is written. After it the ring thread may set when the trace began and ended, while another
  // thread records.
  void Begin(wire::TraceSource source, std::string_view reason, uint64_t begin_ns);
  void SetBegin(uint64_t begin_ns) { header()->begin_ns = begin_ns; }
  void SetEnd(uint64_t end_ns) { header()->end_ns = end_ns; }

  void Write(const wire::TraceRecord& record);
  // The name's index among the names; 0 if there is no room for it.
  uint32_t Name(std::string_view name);
  void NoteIncomplete() { ++header()->incomplete; }
  void SetLost(uint64_t records) { header()->lost = records; }

 private:
  wire::TraceHeader* header() const { return reinterpret_cast<wire::TraceHeader*>(region_.data()); }

  SharedRegion region_;
  // Kept in private memory: other writers of the region must not lead us outside of it.
  uint64_t most_records_ = 0;
  uint64_t records_ = 0;
  uint64_t name_bytes_ = 0;
  // Lets a name be found without copying it, because it is looked up for every record.
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> names_;
};

}  // namespace gpuloom::executor
