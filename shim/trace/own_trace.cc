// SPDX-License-Identifier: Apache-2.0
#include "shim/trace/own_trace.h"

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "proto/channel/region.h"
#include "proto/channel/socket.h"
#include "proto/trace/event_file.h"
#include "proto/trace/sum.h"
#include "shim/session/door.h"

namespace gpuloom {
namespace {

using Json = nlohmann::ordered_json;

// Beyond the trace itself: the scheduler waits for its executor for ten seconds before and after it.
constexpr time_t kPatienceS = 60;

bool Fail(const std::string& message, std::string* error) {
  *error = message;
  return false;
}

// The head of the answer, whole, or nothing. Sizes are judged here, before memory is made by them.
bool ReceiveAnswer(int socket, wire::TraceAnswer* answer, std::string* error) {
  // As large as any message, so that a longer answer of a newer scheduler is cut and not lost.
  uint8_t bytes[wire::kTraceChunkBytes];
  const ptrdiff_t size = channel::ReceiveMessage(socket, bytes, sizeof(bytes));
  // An older scheduler does not know the question, and closes the connection.
  if (size < 0 && errno == ECONNRESET) {
    return Fail("the node's scheduler hung up: it is of an older release, or has ended", error);
  }
  if (size < 0) return Fail(std::string("no answer: ") + strerror(errno), error);
  memcpy(answer, bytes, std::min(sizeof(*answer), static_cast<size_t>(size)));
  if (static_cast<size_t>(size) < sizeof(*answer) || answer->magic != wire::kTraceMagic) {
    return Fail("the node's scheduler answered something else", error);
  }
  if (answer->admission != wire::Admission::kAccepted) {
    return Fail(std::string(answer->message, strnlen(answer->message, sizeof(answer->message))),
                error);
  }
  if (answer->header_bytes > wire::kTraceRecordsAt || answer->record_bytes == 0 ||
      answer->record_bytes > wire::kTraceRecordsAt || answer->records > wire::kTraceRecords ||
      answer->name_bytes > wire::kTraceNameBytes ||
      answer->session_count > wire::kMaxTraceSessionNames) {
    return Fail("the node's scheduler announced more than a trace has", error);
  }
  return true;
}

// The header, records and names as they are in the executor's region, in messages of at most a
// chunk.
bool ReceiveBody(int socket, std::vector<uint8_t>* body, std::string* error) {
  for (size_t at = 0; at < body->size();) {
    const ptrdiff_t size = channel::ReceiveMessage(
        socket, body->data() + at, std::min<size_t>(body->size() - at, wire::kTraceChunkBytes));
    if (size < 0)
      return Fail(std::string("the trace came only in part: ") + strerror(errno), error);
    at += static_cast<size_t>(size);
  }
  return true;
}

// A region as an executor would have written it, so that the same code reads both. Records of
// another version are cut or filled up with zeros: fields are only ever appended.
channel::UniqueFd MakeRegion(const wire::TraceAnswer& answer, const std::vector<uint8_t>& body) {
  channel::UniqueFd memory = channel::MakeSealedMemory("gpuloom-trace", wire::kTraceRegionBytes);
  channel::Mapping mapping;
  if (!memory.valid() ||
      !mapping.Map(memory.get(), wire::kTraceRegionBytes, channel::Mapping::Access::kReadWrite)) {
    return {};
  }
  const uint8_t* from = body.data();
  wire::TraceHeader header{};
  memcpy(&header, from, std::min<size_t>(answer.header_bytes, sizeof(header)));
  header.records = answer.records;
  header.name_bytes = answer.name_bytes;
  memcpy(mapping.data(), &header, sizeof(header));
  // The rest lies packed in the message, and at fixed places in the region.
  from += answer.header_bytes;
  for (uint64_t i = 0; i < answer.records; ++i, from += answer.record_bytes) {
    memcpy(mapping.data() + wire::kTraceRecordsAt + i * sizeof(wire::TraceRecord), from,
           std::min<size_t>(answer.record_bytes, sizeof(wire::TraceRecord)));
  }
  memcpy(mapping.data() + wire::kTraceNamesAt, from, answer.name_bytes);
  return memory;
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

// What the file says of itself, in the form of the operator's traces (docs/tracing.md): one GPU
// with one part.
Json About(const OwnTrace& trace, const trace::PartSum& sum) {
  Json sessions = Json::array();
  for (const wire::TraceSessionName& session : trace.sessions) {
    // A session that has done nothing is listed with zeros.
    const auto its = sum.of_each.find(session.session_id);
    const trace::Sum mine = its == sum.of_each.end() ? trace::Sum{} : its->second;
    sessions.push_back({{"session", session.session_id},
                        {"pid", session.pid},
                        {"kernels", mine.kernels},
                        {"copies", mine.copies},
                        {"compute_seconds", Seconds(mine.compute_ns)}});
  }
  const trace::Part& part = trace.part;
  const Json one = {{"source", trace::TextOf(part.source())},
                    {"source_reason", part.source_reason()},
                    {"seconds", Seconds(part.window().end_ns - part.window().begin_ns)},
                    {"records", sum.records},
                    {"dropped", part.dropped()},
                    {"lost", part.lost()},
                    {"incomplete", part.incomplete()},
                    {"compute_seconds", Seconds(sum.compute_ns)},
                    {"sessions", std::move(sessions)}};
  return {{"version", GPULOOM_VERSION},
          {"gpus", Json::array({{{"gpu", trace.gpu_uuid}, {"parts", Json::array({one})}}})}};
}

// How a viewer names a session's lines: by its process, where its number means something here.
trace::EventFile::Labels LabelsOf(const OwnTrace& trace, uint64_t session_id) {
  for (const wire::TraceSessionName& session : trace.sessions) {
    if (session.session_id != session_id) continue;
    const std::string number = "session " + std::to_string(session_id);
    return {session.pid == 0 ? number : "process " + std::to_string(session.pid),
            trace.gpu_uuid + ", " + number};
  }
  return {"unknown process", trace.gpu_uuid};
}

}  // namespace

bool AskForTrace(std::chrono::milliseconds time, OwnTrace* trace, std::string* error) {
  FailureLog failures(LogLevel::kError, "no trace");
  char path[kDoorPathBytes];
  const channel::UniqueFd socket =
      ConnectToScheduler(&failures, time.count() / 1000 + kPatienceS, path);
  if (!socket.valid()) return Fail("the node's scheduler cannot be asked", error);
  wire::Hello hello = MakeHello(wire::kTraceMagic);
  hello.minor = wire::kWireMinor;
  hello.trace_ms = static_cast<uint32_t>(time.count());
  if (!channel::SendMessage(socket.get(), &hello, sizeof(hello))) {
    return Fail(std::string("cannot ask at ") + path + ": " + strerror(errno), error);
  }
  const auto answer = std::make_unique<wire::TraceAnswer>();
  if (!ReceiveAnswer(socket.get(), answer.get(), error)) return false;
  std::vector<uint8_t> body(answer->header_bytes + answer->records * answer->record_bytes +
                            answer->name_bytes);
  if (!ReceiveBody(socket.get(), &body, error)) return false;
  trace->sessions.assign(answer->sessions, answer->sessions + answer->session_count);
  std::vector<uint64_t> ids;
  // Records count only for these sessions.
  for (const wire::TraceSessionName& session : trace->sessions) ids.push_back(session.session_id);
  char uuid[kUuidTextBytes];
  WriteUuid(answer->gpu_uuid, uuid);
  trace->gpu_uuid = uuid;
  channel::UniqueFd region = MakeRegion(*answer, body);
  if (!region.valid() || !trace->part.Open(std::move(region), ids, {0, UINT64_MAX})) {
    return Fail(std::string("no memory for the trace: ") + strerror(errno), error);
  }
  return true;
}

bool WriteOwnTrace(const OwnTrace& trace, FILE* file, std::string* summary) {
  const trace::PartSum sum = trace::SumUp(trace.part);
  trace::Sum all;
  for (const auto& [id, its] : sum.of_each) {
    all.kernels += its.kernels;
    all.copies += its.copies;
  }
  char text[256];
  snprintf(
      text, sizeof(text), "%llu kernels and %llu copies in %.3f s, computing for %.3f s; %s",
      static_cast<unsigned long long>(all.kernels), static_cast<unsigned long long>(all.copies),
      Seconds(trace.part.window().end_ns - trace.part.window().begin_ns), Seconds(sum.compute_ns),
      trace.part.source() == wire::TraceSource::kCupti
          ? "recorded by CUPTI"
          : "recorded by the executor, begin estimated");
  *summary = text;
  trace::EventFile events(file, trace.part.window().begin_ns,
                          // Names of kernels may be no UTF-8, which would end the dump with an
                          // exception.
                          About(trace, sum).dump(-1, ' ', false, Json::error_handler_t::replace));
  events.Add(trace.part, [&](uint64_t session_id) { return LabelsOf(trace, session_id); });
  return events.End();
}

std::string Lack(const OwnTrace& trace) {
  if (trace.part.dropped() != 0) {
    return std::to_string(trace.part.dropped()) + " records had no room beside " +
           std::to_string(wire::kOwnTraceRecords) + ": trace a shorter time";
  }
  return trace.part.lost() != 0 ? "CUPTI has lost records" : "";
}

}  // namespace gpuloom
