// SPDX-License-Identifier: Apache-2.0
// Writes a trace in the Trace Event Format, which Perfetto and chrome://tracing load (docs/tracing.md explains the
// fields):
//
//   EventFile events(file, begin_ns, about);
//   events.Add(part, describe);
//   if (!events.End()) …
//
// Whatever a part contains, the file loads and its size is bounded. The caller owns the file. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "proto/trace/part.h"

namespace gpuloom::trace {

// The most text for names of one part's kernels in the file, escaped: half a KiB for each possible record, which is
// more than programs need. Beyond it kernels have no names of their own. Without a bound, names that a compromised
// executor invents could come to 3 GiB.
inline constexpr uint64_t kMostNameTextBytes = 256u << 20;

// The text in the file for the source of records: the executor's own, or CUPTI's.
const char* TextOf(wire::TraceSource source);

// The text as a JSON string, with its quotes; bytes that are not UTF-8 are replaced.
std::string Quoted(const std::string& text);

class EventFile {
 public:
  // How the file shows one of the format's processes.
  struct Labels {
    std::string name;
    std::string further;
  };
  using Describe = std::function<Labels(uint64_t session_id)>;

  // Times are shown relative to `begin_ns`. `about`: JSON, which becomes otherData.
  EventFile(FILE* file, uint64_t begin_ns, const std::string& about);
  // Adds a part. Each session is one of the format's processes, and each of its streams a thread.
  void Add(const Part& part, const Describe& describe);
  // Ends the file. Returns false with errno if it could not be written completely.
  [[nodiscard]] bool End();

 private:
  struct Process {
    int number;
    std::set<uint32_t> streams;
  };
  // The names of a kernel, quoted.
  struct Names {
    std::string shown;
    std::string whole;  // empty: the same as `shown`
  };

  void Begin();
  void AddMetadata(const char* what, int process, uint32_t thread, const char* field,
                   const std::string& value);
  Process& ProcessOf(uint64_t session_id, const Describe& describe);
  // Returns null if the record has no name.
  const Names* NamesOf(const Part& part, const wire::TraceRecord& record);
  void AddRecord(const Part& part, const wire::TraceRecord& record, const Describe& describe);

  FILE* const file_;
  const uint64_t begin_ns_;
  bool first_ = true;
  int last_process_ = 0;
  // For the part that is being added.
  std::map<uint64_t, Process> processes_;
  std::unordered_map<uint32_t, Names> names_;  // by place
  uint64_t name_text_bytes_ = 0;
};

}  // namespace gpuloom::trace
