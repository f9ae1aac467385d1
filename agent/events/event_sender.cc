// SPDX-License-Identifier: Apache-2.0
// Tell puts events into the book under mutex_; the thread takes one post at a time out of it and talks to the server
// without the lock. So Tell never waits for the network, and a series may grow while it is being posted.
#include "agent/events/event_sender.h"

#include <spdlog/spdlog.h>
#include <time.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "agent/cat.h"
#include "agent/node/one_line.h"
#include "agent/node/random_hex.h"
#include "agent/node/size.h"

namespace gpuloom {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kComponent[] = "gpuloom";
constexpr char kReporter[] = "gpuloom.io/agent";
// The namespace of events about objects without one.
constexpr char kNodesNamespace[] = "default";
constexpr size_t kSuffixBytes = 8;
constexpr size_t kMaxTroubleBytes = 300;
// A minute is the longest that any series waits for its next post.
constexpr std::chrono::milliseconds kPollInterval{1000};

// RFC 3339 in UTC and whole seconds, as metav1.Time is written.
std::string TimeText(Clock::Time time) {
  const time_t seconds = Clock::Time::clock::to_time_t(time);
  tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32] = {};
  (void)strftime(&text[0], sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// An event lies in its object's namespace; Kubernetes keeps those of nodes in "default".
std::string NamespaceOf(const Event& event) {
  return event.pod.empty() ? kNodesNamespace : event.pod_namespace;
}

std::string PathOf(const Event& event) {
  return Cat("/api/v1/namespaces/", NamespaceOf(event), "/events");
}

// Empty for whatever is not there, or is no text: answers are looked at without trust in their
// form.
std::string TextAt(const Json& json, const std::string& place) {
  const Json::json_pointer pointer(place);
  if (!json.contains(pointer) || !json.at(pointer).is_string()) return "";
  return json.at(pointer).get<std::string>();
}

// The UID of the pod that the table describes. Empty: a pod on another node has that name by now.
std::string UidOn(const std::string& node, const Json& table) {
  const auto columns = table.find("columnDefinitions");
  if (columns == table.end() || !columns->is_array()) return "";
  for (size_t i = 0; i < columns->size(); ++i) {
    if (TextAt(table, Cat("/columnDefinitions/", i, "/name")) == "Node" &&
        TextAt(table, Cat("/rows/0/cells/", i)) == node) {
      return TextAt(table, "/rows/0/object/metadata/uid");
    }
  }
  return "";
}

// Whether Kubernetes allows the name: no other text gets into a path.
bool IsName(const std::string& name) {
  constexpr size_t kLongest = 253;
  return !name.empty() && name.size() <= kLongest &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == name.npos &&
         name.find("..") == name.npos;
}

// Makes an event's name: its object's name, and a suffix that distinguishes it from other events of that object.
std::string NewName(std::string object) {
  // The most of the object's name, so that dot and suffix fit into a Kubernetes name.
  constexpr size_t kLongest = 253 - 1 - 2 * kSuffixBytes;
  if (object.size() > kLongest) object.resize(kLongest);
  while (object.ends_with('.') || object.ends_with('-')) object.pop_back();
  return Cat(object, ".", RandomHex(kSuffixBytes));
}

}  // namespace

void EventSender::Start() {
  Stop();
  // Events are lines of the log then, and need no thread.
  if (options_.server.empty()) return;
  is_stopping_ = false;
  client_ = std::make_unique<ApiClient>(options_.server, options_.service_account, &is_stopping_);
  thread_ = std::thread([this] { Run(); });
}

void EventSender::Stop() {
  if (!thread_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
}

void EventSender::Report(const Event& event) {
  uint64_t left_out = 0;
  bool may_say = false;
  {
    const MutexLock lock(mutex_);
    // The log's budget is beside that of the posts.
    may_say = !event.is_said && MaySay(event, &left_out);
    if (!options_.server.empty()) {
      book_.Add(event, options_.clock->Now());
      has_news_ = true;
    }
  }
  changed_.NotifyAll();
  if (!may_say) return;
  const std::string about =
      event.pod.empty() ? Cat(options_.node.empty() ? "this node" : "node ", options_.node)
                        : Cat("pod ", event.pod_namespace, "/", event.pod,
                              event.container.empty() ? "" : ", container ", event.container);
  spdlog::log(
      event.is_warning ? spdlog::level::warn : spdlog::level::info, "event: {}: {}: {}{}",
      event.reason, about, event.message,
      left_out == 0 ? "" : Cat(" (", left_out, " earlier ones of this namespace left out)"));
}

bool EventSender::MaySay(const Event& event, uint64_t* left_out) {
  const auto now = options_.clock->Now().time_since_epoch();
  const auto now_ns =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  return lines_.Of(event.pod_namespace, now_ns).Take(now_ns, left_out);
}

uint64_t EventSender::dropped() const {
  const MutexLock lock(mutex_);
  return book_.dropped();
}

void EventSender::Run() {
  std::chrono::milliseconds pause{0};
  while (!is_stopping_) {
    std::optional<EventBook::Post> post;
    Clock::Time asked;
    {
      MutexLock lock(mutex_);
      if (pause.count() != 0) {
        (void)changed_.WaitFor(mutex_, pause, [this] { return is_stopping_.load(); });
      }
      if (is_stopping_) return;
      // Cleared before the book is read: events added from now on wake the wait below.
      has_news_ = false;
      asked = options_.clock->Now();
      post = book_.Next(asked);
      if (!post.has_value()) {
        (void)changed_.WaitFor(mutex_, kPollInterval, [this]() GPULOOM_REQUIRES(mutex_) {
          return has_news_ || is_stopping_;
        });
        continue;
      }
    }
    // Without mutex_. The series may be dropped or grow meanwhile; the book knows it by its number.
    const Outcome outcome = Send(*post);
    pause = outcome == Outcome::kAllWait
                ? std::clamp<std::chrono::milliseconds>(pause * 2, kFirstPause, kLongestPause)
                : std::chrono::milliseconds(0);
    if (outcome == Outcome::kNamespaceWaits) {
      const MutexLock lock(mutex_);
      book_.Failed(post->series, asked);
    }
  }
}

EventSender::Outcome EventSender::FindPod(const EventBook::Post& post, std::string* uid) {
  *uid = post.pod_uid;
  const Event& event = post.event;
  if (event.pod.empty() || !uid->empty()) return Outcome::kDone;
  // No UID, so Send drops it.
  if (!IsName(event.pod_namespace) || !IsName(event.pod)) return Outcome::kDone;
  const absl::StatusOr<ApiAnswer> answer =
      client_->GetTable(Cat("/api/v1/namespaces/", event.pod_namespace, "/pods/", event.pod));
  if (!answer.ok()) {
    Say(std::string(answer.status().message()));
    return Outcome::kAllWait;
  }
  // The pod has been deleted, so there is no one to read its events.
  if (answer->status == 404) return Outcome::kDone;
  if (answer->status == 200 && !answer->is_whole) {
    Say(Cat("kubernetes: pod ", event.pod_namespace, "/", event.pod, " has more than ",
            FormatSize(ApiClient::kMaxBodyBytes), " of metadata"));
    return Outcome::kDone;
  }
  if (answer->status == 200) {
    const Json table = Json::parse(answer->body, nullptr, false);
    if (table.is_object()) *uid = UidOn(options_.node, table);
    return Outcome::kDone;
  }
  Say(Cat("kubernetes: pods cannot be read: status ", answer->status, ": ",
          OneLine(answer->body, kMaxTroubleBytes)));
  return OutcomeOf(answer->status);
}

EventSender::Outcome EventSender::Send(const EventBook::Post& post) {
  std::string uid;
  if (const Outcome found = FindPod(post, &uid); found != Outcome::kDone) return found;
  // Without the UID `kubectl describe pod` does not show it, and with a guessed one it would stand
  // at another pod of that name.
  if (!post.event.pod.empty() && uid.empty()) return Drop(post);
  // As if the server did not know it: a series that was never posted has no name to patch.
  absl::StatusOr<ApiAnswer> answer = ApiAnswer{404, ""};
  std::string name = post.name;
  if (!name.empty()) {
    const Json change = {{"count", post.count},
                         {"lastTimestamp", TimeText(options_.clock->Shown(post.last))},
                         {"message", post.event.message}};
    answer = client_->Patch(Cat(PathOf(post.event), "/", name),
                            change.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  // A server forgets events after an hour.
  if (answer.ok() && answer->status == 404) {
    name = NewName(post.event.pod.empty() ? options_.node : post.event.pod);
    answer = client_->Post(PathOf(post.event), Body(post, name, uid));
  }
  if (!answer.ok()) {
    Say(std::string(answer.status().message()));
    return Outcome::kAllWait;
  }
  // Whatever it says beside: somebody may have made the event a large one.
  if (answer->status / 100 == 2) {
    ++posted_;
    // Whatever was wrong before is over; the same trouble is news again.
    Say("");
    const MutexLock lock(mutex_);
    book_.Posted(post.series, post.count, name, uid);
    return Outcome::kDone;
  }
  Say(Cat("kubernetes: an event is refused: status ", answer->status, ": ",
          OneLine(answer->body, kMaxTroubleBytes)));
  const Outcome outcome = OutcomeOf(answer->status);
  return outcome == Outcome::kDone ? Drop(post) : outcome;
}

// The outcome of a request that the server did not fulfil.
EventSender::Outcome EventSender::OutcomeOf(int status) {
  // The token was not taken: one that is replaced on the disk is read with the next call.
  if (status == 401) return Outcome::kAllWait;
  // One namespace may have limits of its own, and webhooks that fail.
  return status == 429 || status >= 500 ? Outcome::kNamespaceWaits : Outcome::kDone;
}

EventSender::Outcome EventSender::Drop(const EventBook::Post& post) {
  const MutexLock lock(mutex_);
  book_.Drop(post.series);
  return Outcome::kDone;
}

std::string EventSender::Body(const EventBook::Post& post, const std::string& name,
                              const std::string& pod_uid) const {
  const Event& event = post.event;
  // As kubelets do it: a node's UID, in events, is its name.
  Json object = event.pod.empty()
                    ? Json{{"kind", "Node"}, {"name", options_.node}, {"uid", options_.node}}
                    : Json{{"apiVersion", "v1"},
                           {"kind", "Pod"},
                           {"namespace", event.pod_namespace},
                           {"name", event.pod},
                           {"uid", pod_uid}};
  if (!event.container.empty()) {
    object["fieldPath"] = Cat("spec.containers{", event.container, "}");
  }
  const Json body = {{"apiVersion", "v1"},
                     {"kind", "Event"},
                     {"metadata", {{"name", name}, {"namespace", NamespaceOf(event)}}},
                     {"involvedObject", object},
                     {"reason", event.reason},
                     {"message", event.message},
                     {"type", event.is_warning ? "Warning" : "Normal"},
                     {"source", {{"component", kComponent}, {"host", options_.node}}},
                     {"firstTimestamp", TimeText(options_.clock->Shown(post.first))},
                     {"lastTimestamp", TimeText(options_.clock->Shown(post.last))},
                     {"count", post.count},
                     {"reportingComponent", kReporter},
                     {"reportingInstance", options_.node}};
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void EventSender::Say(const std::string& trouble) {
  if (trouble == last_trouble_) return;
  if (!trouble.empty()) spdlog::warn("{}; events wait or are lost", trouble);
  last_trouble_ = trouble;
}

}  // namespace gpuloom
