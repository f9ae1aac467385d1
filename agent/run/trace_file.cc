// SPDX-License-Identifier: Apache-2.0
#include "agent/run/trace_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>
#include <utility>

#include "agent/node/one_line.h"
#include "agent/run/kernel_name.h"
#include "proto/control/version.h"

namespace gpuloom::run {
namespace {

using control::TraceKind;
using control::TraceRecord;
using control::TraceSession;
using Json = nlohmann::ordered_json;

constexpr size_t kLongestName = 300;

template <size_t N>
std::string Text(const char (&field)[N]) {
  return OneLine({field, control::TextLength(field)}, kLongestName);
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string NameOf(const TraceSession& session) {
  return Text(session.pod_namespace) + "/" + Text(session.pod) + "/" + Text(session.container);
}

TraceKind KindOf(const TraceRecord& record) { return static_cast<TraceKind>(record.kind); }

bool IsCopy(const TraceRecord& record) {
  const TraceKind kind = KindOf(record);
  return kind == TraceKind::kCopyToDevice || kind == TraceKind::kCopyFromDevice ||
         kind == TraceKind::kCopyOnDevice;
}

// What a tenant is charged as computing: all but what the copy engines do.
bool Computes(const TraceRecord& record) {
  return KindOf(record) != TraceKind::kCopyToDevice && KindOf(record) != TraceKind::kCopyFromDevice;
}

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

const char* TextOf(control::TraceSource source) {
  switch (source) {
    case control::TraceSource::kCupti:
      return "cupti";
    case control::TraceSource::kOwn:
      return "executor";
    case control::TraceSource::kNone:
      break;
  }
  return "none";
}

const char* TextOf(uint32_t end_untrusted) {
  switch (static_cast<control::TraceEnd>(end_untrusted)) {
    case control::TraceEnd::kWhole:
      return "whole";
    case control::TraceEnd::kLost:
      return "executor ended";
    case control::TraceEnd::kSilent:
      break;
  }
  return "executor did not answer";
}

using Interval = std::pair<uint64_t, uint64_t>;

uint64_t UnionNs(std::vector<Interval>* intervals) {
  std::sort(intervals->begin(), intervals->end());
  uint64_t sum_ns = 0;
  uint64_t until_ns = 0;
  for (const auto& [begin_ns, end_ns] : *intervals) {
    const uint64_t from_ns = std::max(begin_ns, until_ns);
    if (end_ns > from_ns) sum_ns += end_ns - from_ns;
    until_ns = std::max(until_ns, end_ns);
  }
  return sum_ns;
}

Json Describe(const std::vector<TracedGpu>& gpus, const std::vector<TracePartSum>& sums) {
  Json about = {{"version", kVersion}, {"gpus", Json::array()}};
  auto sum = sums.begin();
  for (const TracedGpu& gpu : gpus) {
    Json parts = Json::array();
    for (size_t i = 0; i < gpu.parts.size(); ++i, ++sum) {
      const TracePart& part = gpu.parts[i];
      const control::TracePart& said = gpu.trace.parts[i].part;
      uint64_t charged_ns = 0;
      Json sessions = Json::array();
      for (const TraceSession& session : gpu.trace.sessions) {
        if (session.executor_id != said.executor_id) continue;
        charged_ns += session.time.compute_ns;
        const auto its = sum->sums.find(session.session_id);
        const TraceSum mine = its == sum->sums.end() ? TraceSum{} : its->second;
        sessions.push_back({{"session", session.session_id},
                            {"namespace", Text(session.pod_namespace)},
                            {"pod", Text(session.pod)},
                            {"pod_uid", Text(session.pod_uid)},
                            {"container", Text(session.container)},
                            {"kernels", mine.kernels},
                            {"copies", mine.copies},
                            {"compute_seconds", Seconds(mine.compute_ns)},
                            {"charged_seconds",
                             {{"compute", Seconds(session.time.compute_ns)},
                              {"copy_to_device", Seconds(session.time.copy_to_device_ns)},
                              {"copy_from_device", Seconds(session.time.copy_from_device_ns)}}},
                            {"queue_seconds", Seconds(session.time.queue_ns)}});
      }
      parts.push_back({{"trust_domain", Text(said.trust_domain)},
                       {"source", TextOf(part.source())},
                       {"source_reason", part.source_reason()},
                       {"end", TextOf(said.end)},
                       {"end_reason", Text(said.message)},
                       {"seconds", Seconds(part.window().end_ns - part.window().begin_ns)},
                       {"records", sum->records},
                       {"dropped", part.dropped()},
                       {"lost", part.lost()},
                       {"incomplete", part.incomplete()},
                       {"compute_seconds", Seconds(sum->compute_ns)},
                       {"charged_seconds", Seconds(charged_ns)},
                       {"sessions", std::move(sessions)}});
    }
    about["gpus"].push_back(
        {{"gpu", gpu.name}, {"lack", gpu.trace.lack}, {"parts", std::move(parts)}});
  }
  return about;
}

// The events of the file. A process of the format is a session; a thread is one of its streams.
class Events {
 public:
  Events(FILE* file, uint64_t begin_ns) : file_(file), begin_ns_(begin_ns) {}

  void Add(const TracedGpu& gpu, size_t index) {
    const TracePart& part = gpu.parts[index];
    processes_.clear();
    names_.clear();
    part.ForEach([&](const TraceRecord& record, const TraceSession* session) {
      AddRecord(gpu, index, record, session);
    });
  }

 private:
  struct Process {
    int number;
    std::set<uint32_t> streams;
  };

  void Begin() { fputs(std::exchange(first_, false) ? "\n" : ",\n", file_); }

  void Describe(const char* what, int process, uint32_t thread, const char* field,
                const std::string& value) {
    Begin();
    fprintf(file_, R"({"ph":"M","name":"%s","pid":%d,"tid":%u,"args":{"%s":%s}})", what, process,
            thread, field, value.c_str());
  }

  Process& ProcessOf(const TracedGpu& gpu, size_t index, const TraceRecord& record,
                     const TraceSession* session) {
    const auto [it, is_new] =
        processes_.try_emplace(record.session_id, Process{last_process_ + 1, {}});
    Process& process = it->second;
    if (!is_new) return process;
    ++last_process_;
    const std::string domain = Text(gpu.trace.parts[index].part.trust_domain);
    const std::string name = session != nullptr ? NameOf(*session)
                             : record.session_id == control::kTraceOfExecutor
                                 ? "gpuloom itself, for " + domain
                                 : "unknown tenant of " + domain;
    Describe("process_name", process.number, 0, "name", Quoted(name));
    std::string labels = gpu.name + ", domain " + domain;
    if (session != nullptr) labels += ", session " + std::to_string(session->session_id);
    Describe("process_labels", process.number, 0, "labels", Quoted(labels));
    Describe("process_sort_index", process.number, 0, "sort_index", std::to_string(process.number));
    return process;
  }

  // Quoted: shown, and whole.
  const std::pair<std::string, std::string>& NamesOf(const TracePart& part, uint32_t place) {
    const auto [it, is_new] = names_.try_emplace(place);
    if (is_new) {
      const std::string whole = part.Name(place);
      it->second = {Quoted(ShortKernelName(whole)), Quoted(whole)};
    }
    return it->second;
  }

  void AddRecord(const TracedGpu& gpu, size_t index, const TraceRecord& record,
                 const TraceSession* session) {
    Process& process = ProcessOf(gpu, index, record, session);
    if (process.streams.insert(record.stream).second) {
      Describe("thread_name", process.number, record.stream, "name",
               Quoted("stream " + std::to_string(record.stream)));
    }
    const TraceKind kind = KindOf(record);
    const auto& [shown, whole] = NamesOf(gpu.parts[index], record.name);
    const bool named = kind == TraceKind::kKernel && whole != "\"\"";
    const uint64_t at_ns = record.begin_ns - begin_ns_;
    const uint64_t took_ns = record.end_ns - record.begin_ns;
    Begin();
    fprintf(file_,
            R"({"ph":"X","pid":%d,"tid":%u,"ts":%llu.%03llu,"dur":%llu.%03llu,"cat":"%s","name":)",
            process.number, record.stream, static_cast<unsigned long long>(at_ns / 1000),
            static_cast<unsigned long long>(at_ns % 1000),
            static_cast<unsigned long long>(took_ns / 1000),
            static_cast<unsigned long long>(took_ns % 1000), CategoryOf(kind));
    if (named) {
      fputs(shown.c_str(), file_);
    } else {
      fprintf(file_, "\"%s\"", NameOf(kind));
    }
    fprintf(file_, R"(,"args":{"commands":%u)", record.commands);
    if (named && shown != whole) fprintf(file_, R"(,"function":%s)", whole.c_str());
    if (record.bytes != 0) {
      fprintf(file_, R"(,"bytes":%llu)", static_cast<unsigned long long>(record.bytes));
    }
    if (record.correlation != 0) fprintf(file_, R"(,"graph_launch":%u)", record.correlation);
    fputs("}}", file_);
  }

  FILE* const file_;
  const uint64_t begin_ns_;
  bool first_ = true;
  int last_process_ = 0;
  std::map<uint64_t, Process> processes_;  // of the part
  std::unordered_map<uint32_t, std::pair<std::string, std::string>> names_;
};

}  // namespace

std::vector<TracePartSum> SumUp(const std::vector<TracedGpu>& gpus) {
  std::vector<TracePartSum> sums;
  for (const TracedGpu& gpu : gpus) {
    for (const TracePart& part : gpu.parts) {
      TracePartSum& sum = sums.emplace_back();
      std::vector<Interval> all;
      std::map<uint64_t, std::vector<Interval>> by_session;
      part.ForEach([&](const TraceRecord& record, const TraceSession* session) {
        ++sum.records;
        TraceSum& its = sum.sums[record.session_id];
        its.session = session;
        if (KindOf(record) == TraceKind::kKernel) its.kernels += record.commands;
        if (IsCopy(record)) its.copies += record.commands;
        if (!Computes(record)) return;
        all.emplace_back(record.begin_ns, record.end_ns);
        by_session[record.session_id].emplace_back(record.begin_ns, record.end_ns);
      });
      sum.compute_ns = UnionNs(&all);
      for (auto& [id, intervals] : by_session) sum.sums[id].compute_ns = UnionNs(&intervals);
    }
  }
  return sums;
}

bool WriteTraceFile(const std::vector<TracedGpu>& gpus, const std::vector<TracePartSum>& sums,
                    FILE* file) {
  uint64_t begin_ns = UINT64_MAX;
  for (const TracedGpu& gpu : gpus) {
    for (const TracePart& part : gpu.parts) begin_ns = std::min(begin_ns, part.window().begin_ns);
  }
  const Json about = Describe(gpus, sums);
  fprintf(file, "{\"displayTimeUnit\":\"ns\",\"otherData\":%s,\n\"traceEvents\":[",
          about.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  Events events(file, begin_ns);
  for (const TracedGpu& gpu : gpus) {
    for (size_t i = 0; i < gpu.parts.size(); ++i) events.Add(gpu, i);
  }
  fputs("\n]}\n", file);
  return fflush(file) == 0 && ferror(file) == 0;
}

}  // namespace gpuloom::run
