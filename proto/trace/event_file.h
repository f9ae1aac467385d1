// SPDX-License-Identifier: Apache-2.0
// Writes a trace in the Trace Event Format, which Perfetto and chrome://tracing load (docs/tracing.md explains the
// fields):
//
//   EventFile events(file, begin_ns, about);
//   events.Add(part, describe);
//   if (!events.End()) …
//
// Whatever is in a part makes a file that loads, of a bounded size. The file is the caller's. One thread.
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

// Of the names of one part's kernels in the file, escaped: half a KiB for each record that there may be, which is
// more than programs have. Behind it kernels are called just that. Names that a taken-over executor has made up would
// come to 3 GiB.
inline constexpr uint64_t kMostNameTextBytes = 256u << 20;

// In the file, for the executor's own records and CUPTI's.
const char* TextOf(wire::TraceSource source);

// As text of JSON, quotes included; bytes that are no UTF-8 are replaced.
std::string Quoted(const std::string& text);

class EventFile {
 public:
  // How a process of the format is shown.
  struct Labels {
    std::string name;
    std::string further;
  };
  using Describe = std::function<Labels(uint64_t session_id)>;

  // Times are shown from `begin_ns` on. `about`: JSON, which becomes otherData.
  EventFile(FILE* file, uint64_t begin_ns, const std::string& about);
  // A process of the format is a session; a thread is one of its streams.
  void Add(const Part& part, const Describe& describe);
  // Returns false with errno if it could not be written whole.
  [[nodiscard]] bool End();

 private:
  struct Process {
    int number;
    std::set<uint32_t> streams;
  };
  // Of a kernel, quoted.
  struct Names {
    std::string shown;
    std::string whole;  // empty: the same
  };

  void Begin();
  void Say(const char* what, int process, uint32_t thread, const char* field,
           const std::string& value);
  Process& ProcessOf(uint64_t session_id, const Describe& describe);
  // Null: it has none.
  const Names* NamesOf(const Part& part, const wire::TraceRecord& record);
  void AddRecord(const Part& part, const wire::TraceRecord& record, const Describe& describe);

  FILE* const file_;
  const uint64_t begin_ns_;
  bool first_ = true;
  int last_process_ = 0;
  // Of the part.
  std::map<uint64_t, Process> processes_;
  std::unordered_map<uint32_t, Names> names_;  // by place
  uint64_t name_text_bytes_ = 0;
};

}  // namespace gpuloom::trace
