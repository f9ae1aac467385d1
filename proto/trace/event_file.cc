// SPDX-License-Identifier: Apache-2.0
#include "proto/trace/event_file.h"

#include <nlohmann/json.hpp>

#include "proto/trace/kernel_name.h"

namespace gpuloom::trace {
namespace {

using wire::TraceKind;
using wire::TraceRecord;

// The field "cat".
const char* CategoryOf(TraceKind kind) {
  switch (kind) {
    case TraceKind::kKernel:
      return "kernel";
    case TraceKind::kCopyToDevice:
    case TraceKind::kCopyFromDevice:
    case TraceKind::kCopyOnDevice:
      return "copy";
    case TraceKind::kFill:
      return "fill";
    case TraceKind::kGraph:
      return "graph";
    case TraceKind::kOther:
      break;
  }
  return "other";
}

// How an event is called that has no name of its own.
const char* NameOf(TraceKind kind) {
  switch (kind) {
    case TraceKind::kCopyToDevice:
      return "copy to the device";
    case TraceKind::kCopyFromDevice:
      return "copy from the device";
    case TraceKind::kCopyOnDevice:
      return "copy on the device";
    default:
      return CategoryOf(kind);
  }
}

}  // namespace

const char* TextOf(wire::TraceSource source) {
  switch (source) {
    case wire::TraceSource::kCupti:
      return "cupti";
    case wire::TraceSource::kOwn:
      return "executor";
    case wire::TraceSource::kNone:
      break;
  }
  return "none";
}

std::string Quoted(const std::string& text) {
  // A file with a stray byte in it would not load at all.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

EventFile::EventFile(FILE* file, uint64_t begin_ns, const std::string& about)
    : file_(file), begin_ns_(begin_ns) {
  fprintf(file, "{\"displayTimeUnit\":\"ns\",\"otherData\":%s,\n\"traceEvents\":[", about.c_str());
}

void EventFile::Add(const Part& part, const Describe& describe) {
  // Session ids, streams and places of names mean something within one part only; processes go on
  // being counted, so that no two parts share one.
  processes_.clear();
  names_.clear();
  name_text_bytes_ = 0;
  part.ForEach([&](const TraceRecord& record) { AddRecord(part, record, describe); });
}

bool EventFile::End() {
  fputs("\n]}\n", file_);
  return fflush(file_) == 0 && ferror(file_) == 0;
}

// Begins an event: JSON allows no comma behind the last one.
void EventFile::Begin() { fputs(std::exchange(first_, false) ? "\n" : ",\n", file_); }

// A metadata event ("M"), which names a process or thread. `value` is JSON.
void EventFile::AddMetadata(const char* what, int process, uint32_t thread, const char* field,
                            const std::string& value) {
  Begin();
  fprintf(file_, R"({"ph":"M","name":"%s","pid":%d,"tid":%u,"args":{"%s":%s}})", what, process,
          thread, field, value.c_str());
}

EventFile::Process& EventFile::ProcessOf(uint64_t session_id, const Describe& describe) {
  const auto [it, is_new] = processes_.try_emplace(session_id, Process{last_process_ + 1, {}});
  Process& process = it->second;
  if (!is_new) return process;
  ++last_process_;
  const Labels labels = describe(session_id);
  AddMetadata("process_name", process.number, 0, "name", Quoted(labels.name));
  AddMetadata("process_labels", process.number, 0, "labels", Quoted(labels.further));
  AddMetadata("process_sort_index", process.number, 0, "sort_index",
              std::to_string(process.number));
  return process;
}

const EventFile::Names* EventFile::NamesOf(const Part& part, const TraceRecord& record) {
  if (static_cast<TraceKind>(record.kind) != TraceKind::kKernel) return nullptr;
  // Any bytes of an executor's that may have been taken over: quoted before they are written.
  const std::string_view whole = part.Name(record.name);
  if (whole.empty()) return nullptr;
  const auto [it, is_new] = names_.try_emplace(record.name);
  Names& names = it->second;
  if (is_new) {
    const std::string shown = ShortKernelName(whole);
    names.shown = Quoted(shown);
    if (shown != whole) names.whole = Quoted(std::string(whole));
  }
  // Each use counts, because each writes the name again.
  const size_t bytes = names.shown.size() + names.whole.size();
  if (bytes > kMostNameTextBytes - name_text_bytes_) return nullptr;
  name_text_bytes_ += bytes;
  return &names;
}

void EventFile::AddRecord(const Part& part, const TraceRecord& record, const Describe& describe) {
  Process& process = ProcessOf(record.session_id, describe);
  if (process.streams.insert(record.stream).second) {
    AddMetadata("thread_name", process.number, record.stream, "name",
                Quoted("stream " + std::to_string(record.stream)));
  }
  const auto kind = static_cast<TraceKind>(record.kind);
  const Names* const names = NamesOf(part, record);
  // Part::ForEach has cut the times to the trace, so neither difference wraps.
  const uint64_t at_ns = record.begin_ns - begin_ns_;
  const uint64_t took_ns = record.end_ns - record.begin_ns;
  Begin();
  fprintf(file_,
          R"({"ph":"X","pid":%d,"tid":%u,"ts":%llu.%03llu,"dur":%llu.%03llu,"cat":"%s","name":)",
          process.number, record.stream, static_cast<unsigned long long>(at_ns / 1000),
          static_cast<unsigned long long>(at_ns % 1000),
          static_cast<unsigned long long>(took_ns / 1000),
          static_cast<unsigned long long>(took_ns % 1000), CategoryOf(kind));
  if (names != nullptr) {
    fputs(names->shown.c_str(), file_);
  } else {
    fprintf(file_, "\"%s\"", NameOf(kind));
  }
  fprintf(file_, R"(,"args":{"commands":%u)", record.commands);
  if (names != nullptr && !names->whole.empty()) {
    fprintf(file_, R"(,"function":%s)", names->whole.c_str());
  }
  if (record.bytes != 0) {
    fprintf(file_, R"(,"bytes":%llu)", static_cast<unsigned long long>(record.bytes));
  }
  if (record.correlation != 0) fprintf(file_, R"(,"graph_launch":%u)", record.correlation);
  fputs("}}", file_);
}

}  // namespace gpuloom::trace
