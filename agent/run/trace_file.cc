// SPDX-License-Identifier: Apache-2.0
// Names come from tenants, texts of parts from executors: all go through OneLine. Numbers need no
// check: trace::Part has made them harmless.
#include "agent/run/trace_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/node/one_line.h"
#include "proto/control/version.h"
#include "proto/trace/event_file.h"

namespace gpuloom::run {
namespace {

using control::TraceSession;
using Json = nlohmann::ordered_json;

template <size_t N>
std::string Text(const char (&field)[N]) {
  return OneLine({field, control::TextLength(field)}, kLongestNameBytes);
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

std::string NameOf(const TraceSession& session) {
  return Text(session.pod_namespace) + "/" + Text(session.pod) + "/" + Text(session.container);
}

// Unknown values of a later release read as the worst of these.
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

// The file's otherData: the figures of the summary, for programs. `sums` has one entry for each
// part, in the order of the two loops.
Json Describe(const std::vector<TracedGpu>& gpus, const std::vector<trace::PartSum>& sums) {
  Json about = {{"version", kVersion}, {"gpus", Json::array()}};
  auto sum = sums.begin();
  for (const TracedGpu& gpu : gpus) {
    Json parts = Json::array();
    for (size_t i = 0; i < gpu.parts.size(); ++i, ++sum) {
      const trace::Part& part = gpu.parts[i];
      const control::TracePart& said = gpu.trace.parts[i].part;
      uint64_t charged_ns = 0;
      Json sessions = Json::array();
      for (const TraceSession& session : gpu.trace.sessions) {
        if (session.executor_id != said.executor_id) continue;
        charged_ns += session.time.compute_ns;
        const auto its = sum->of_each.find(session.session_id);
        const trace::Sum mine = its == sum->of_each.end() ? trace::Sum{} : its->second;
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
                       {"source", trace::TextOf(part.source())},
                       {"source_reason", OneLine(part.source_reason(), kLongestNameBytes)},
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

// How a session is called in the file: as its tenant, or as what is nobody's.
trace::EventFile::Labels LabelsOf(const TracedGpu& gpu, size_t index, uint64_t session_id) {
  const std::string domain = Text(gpu.trace.parts[index].part.trust_domain);
  const std::string place = gpu.name + ", domain " + domain;
  for (const TraceSession& session : gpu.trace.sessions) {
    if (session.session_id != session_id) continue;
    return {NameOf(session), place + ", session " + std::to_string(session_id)};
  }
  // Nothing else is left: Part::ForEach gives 0 for the rest.
  return {session_id == wire::kTraceOfExecutor ? "gpuloom itself, for " + domain
                                               : "unknown tenant of " + domain,
          place};
}

}  // namespace

// The only sessions that this executor's records may be about.
std::vector<uint64_t> TracedGpu::SessionsOf(uint64_t executor_id) const {
  std::vector<uint64_t> sessions;
  for (const TraceSession& session : trace.sessions) {
    if (session.executor_id == executor_id) sessions.push_back(session.session_id);
  }
  return sessions;
}

std::vector<trace::PartSum> SumUp(const std::vector<TracedGpu>& gpus) {
  std::vector<trace::PartSum> sums;
  for (const TracedGpu& gpu : gpus) {
    for (const trace::Part& part : gpu.parts) sums.push_back(trace::SumUp(part));
  }
  return sums;
}

bool WriteTraceFile(const std::vector<TracedGpu>& gpus, const std::vector<trace::PartSum>& sums,
                    FILE* file) {
  // The earliest window begins at 0, so that all GPUs are on one time line.
  uint64_t begin_ns = UINT64_MAX;
  for (const TracedGpu& gpu : gpus) {
    for (const trace::Part& part : gpu.parts) {
      begin_ns = std::min(begin_ns, part.window().begin_ns);
    }
  }
  const Json about = Describe(gpus, sums);
  trace::EventFile events(file, begin_ns,
                          about.dump(-1, ' ', false, Json::error_handler_t::replace));
  for (const TracedGpu& gpu : gpus) {
    for (size_t i = 0; i < gpu.parts.size(); ++i) {
      events.Add(gpu.parts[i], [&](uint64_t session_id) { return LabelsOf(gpu, i, session_id); });
    }
  }
  return events.End();
}

}  // namespace gpuloom::run
