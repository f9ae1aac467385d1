// SPDX-License-Identifier: Apache-2.0
#include "agent/events/pods_wait.h"

#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "agent/cat.h"
#include "agent/events/api_client.h"
#include "agent/identity/state_file.h"
#include "agent/node/one_line.h"
#include "agent/node/size.h"

namespace gpuloom {
namespace {

using Json = nlohmann::json;

// The most text about each node, and of an answer that we cannot read.
constexpr size_t kMaxLineBytes = 2000;
constexpr size_t kMaxTroubleBytes = 300;
// How many nodes a message names: a longer one would not be read.
constexpr size_t kMaxNodes = 50;

// Null for whatever is not there: an answer of another form is read as one that says nothing.
const Json& Member(const Json& json, const char* key) {
  static const Json kNothing;
  const auto found = json.is_object() ? json.find(key) : json.end();
  return json.is_object() && found != json.end() ? *found : kNothing;
}

std::string Text(const Json& json) { return json.is_string() ? json.get<std::string>() : ""; }
int64_t Number(const Json& json) { return json.is_number_integer() ? json.get<int64_t>() : 0; }

// Whether the pod is ready, as the DaemonSet's controller counts it.
bool IsReady(const Json& pod) {
  const Json& conditions = Member(Member(pod, "status"), "conditions");
  if (!conditions.is_array()) return false;
  for (const Json& condition : conditions) {
    if (Text(Member(condition, "type")) == "Ready")
      return Text(Member(condition, "status")) == "True";
  }
  return false;
}

// The label selector of the DaemonSet's pods, for a query.
std::string SelectorOf(const Json& set) {
  // The query's commas and equals signs are escaped; what labels consist of needs no escape.
  std::string selector;
  for (const auto& [key, value] :
       Member(Member(Member(set, "spec"), "selector"), "matchLabels").items()) {
    selector += Cat(selector.empty() ? "" : "%2C", key, "%3D", Text(value));
  }
  return selector;
}

class Waiting {
 public:
  Waiting(const PodsWait& wait, std::string pod_namespace, const std::atomic<bool>& is_cancelled)
      : wait_(wait),
        namespace_(std::move(pod_namespace)),
        is_cancelled_(is_cancelled),
        client_(wait.server, wait.service_account, &is_cancelled) {}

  absl::Status Run() {
    const Clock::Time begin = wait_.clock->Now();
    for (;;) {
      if (Look()) return absl::OkStatus();
      if (is_cancelled_) return absl::CancelledError("kubernetes: told to end");
      if (wait_.clock->Now() - begin >= wait_.timeout) return TimedOut();
      wait_.clock->SleepFor(PodsWait::kPause);
    }
  }

 private:
  // The answer's object; null, with `trouble_`, when there is none.
  Json Get(const std::string& path) {
    // Once: Run looks again each second, so that a server that is away for a while costs nothing.
    const absl::StatusOr<ApiAnswer> answer = client_.Get(path);
    if (!answer.ok()) {
      trouble_ = std::string(answer.status().message());
      return {};
    }
    if (!answer->is_whole) {
      trouble_ = Cat("kubernetes: ", path, ": the answer has more than ",
                     FormatSize(ApiClient::kMaxBodyBytes));
      return {};
    }
    Json json = Json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
    if (answer->status == 200 && json.is_object()) return json;
    const std::string why = Text(Member(json, "message"));
    trouble_ = Cat("kubernetes: ", path, ": status ", answer->status, why.empty() ? "" : ": ",
                   OneLine(why, kMaxTroubleBytes));
    return {};
  }

  // Whether all are ready.
  bool Look() {
    trouble_.clear();
    const Json set =
        Get(Cat("/apis/apps/v1/namespaces/", namespace_, "/daemonsets/", wait_.daemon_set));
    if (set.is_null()) return false;
    const Json& status = Member(set, "status");
    // Until its controller has seen it, all of its numbers are 0.
    const int64_t generation = Number(Member(Member(set, "metadata"), "generation"));
    if (generation == 0 || Number(Member(status, "observedGeneration")) < generation) {
      trouble_ = "kubernetes: no controller has looked at it yet";
      return false;
    }
    selector_ = SelectorOf(set);
    const int64_t nodes = Number(Member(status, "desiredNumberScheduled"));
    const int64_t ready = Number(Member(status, "numberReady"));
    if (nodes != nodes_ || ready != ready_) {
      spdlog::info("{}: {} of {} nodes are done", wait_.daemon_set, ready, nodes);
    }
    nodes_ = nodes;
    ready_ = ready;
    // 0 of 0 is done, too: a cluster in which no node is meant has nothing to wait for.
    return ready >= nodes;
  }

  absl::Status TimedOut() {
    std::string message =
        Cat(wait_.daemon_set, ": not done within ",
            std::chrono::duration_cast<std::chrono::seconds>(wait_.timeout).count(), " s");
    // The last look has failed, so which nodes are missing is not known.
    if (nodes_ < 0 || !trouble_.empty())
      return absl::DeadlineExceededError(Cat(message, ": ", trouble_));
    message += Cat(" on ", nodes_ - ready_, " of ", nodes_, " nodes:");
    const Json pods =
        Get(Cat("/api/v1/namespaces/", namespace_, "/pods?labelSelector=", selector_));
    const Json& items = Member(pods, "items");
    if (!items.is_array()) return absl::DeadlineExceededError(Cat(message, " ", trouble_));
    size_t told = 0;
    const Clock::Time until = wait_.clock->Now() + PodsWait::kLastLinesTime;
    for (const Json& pod : items) {
      if (IsReady(pod)) continue;
      if (++told > kMaxNodes) return absl::DeadlineExceededError(message + "\n…");
      message += Cat("\n", NodeOf(pod), ": ",
                     wait_.clock->Now() < until ? LastLine(pod) : WhereItIsSaid(pod));
    }
    return absl::DeadlineExceededError(message);
  }

  static std::string NodeOf(const Json& pod) {
    const std::string node = Text(Member(Member(pod, "spec"), "nodeName"));
    return node.empty() ? "no node yet" : OneLine(node, kMaxTroubleBytes);
  }

  static std::string WhereItIsSaid(const Json& pod) {
    return Cat("kubectl logs ",
               OneLine(Text(Member(Member(pod, "metadata"), "name")), kMaxTroubleBytes),
               " says what it waits for");
  }

  std::string LastLine(const Json& pod) {
    // The chart's Jobs run their work in a container of that name, whose last line says what it
    // waits for (charts/gpuloom/templates/_node_work.tpl).
    const std::string name = Text(Member(Member(pod, "metadata"), "name"));
    const absl::StatusOr<ApiAnswer> answer = client_.Get(
        Cat("/api/v1/namespaces/", namespace_, "/pods/", name, "/log?container=work&tailLines=1"));
    if (!answer.ok()) return std::string(answer.status().message());
    const std::string line(absl::StripAsciiWhitespace(answer->body));
    if (answer->status == 200 && !line.empty()) return OneLine(line, kMaxLineBytes);
    return Cat("its pod ", OneLine(name, kMaxTroubleBytes),
               " has not begun: kubectl describe pod says why");
  }

  const PodsWait& wait_;
  const std::string namespace_;
  const std::atomic<bool>& is_cancelled_;
  ApiClient client_;
  int64_t nodes_ = -1;  // not known yet
  int64_t ready_ = -1;
  std::string selector_;
  std::string trouble_;
};

}  // namespace

absl::Status WaitForPods(const PodsWait& wait, const std::atomic<bool>& is_cancelled) {
  const absl::StatusOr<std::string> own = ReadStateFile(wait.service_account + "/namespace");
  if (!own.ok()) {
    return absl::UnavailableError(Cat("kubernetes: no namespace of a service account: ",
                                      std::string(own.status().message())));
  }
  return Waiting(wait, std::string(absl::StripAsciiWhitespace(*own)), is_cancelled).Run();
}

}  // namespace gpuloom
