// SPDX-License-Identifier: Apache-2.0
// Posts this node's events to the cluster's API server from a thread of its own, so that no caller waits for the
// server, which may be slow or unreachable. Posts that fail are repeated within the bounds of EventBook; what the
// server refuses, such as an event of a pod that is gone, is dropped. One namespace's failures do not delay another's
// events; all wait only while the server does not answer. Each event is also logged at once, within a budget for each
// namespace.
//
// Owned by NodeAgent; the clock outlives it. Start and Stop are called from one thread; Tell and the counts are safe
// from any.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "agent/clock.h"
#include "agent/events/api_client.h"
#include "agent/events/event_book.h"
#include "agent/node/line_budgets.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class EventSender {
 public:
  // The pause when the server does not answer, doubled up to the longest: an unreachable server is tried once a minute.
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{60};

  struct Options {
    std::string server;  // empty: events are only logged
    std::string service_account = kServiceAccount;
    std::string node;  // its name in the cluster
    Clock* clock = nullptr;
  };

  explicit EventSender(Options options) : options_(std::move(options)) {}
  ~EventSender() { Stop(); }

  void Start();
  void Stop();

  void Report(const Event& event);

  uint64_t posted() const { return posted_; }
  uint64_t dropped() const;

 private:
  enum class Outcome {
    kDone,            // posted, or dropped
    kNamespaceWaits,  // the server cannot do it at present; for other namespaces it may
    kAllWait,         // the server does not answer, or does not accept our token
  };

  void Run();
  Outcome Send(const EventBook::Post& post);
  static Outcome OutcomeOf(int status);
  Outcome Drop(const EventBook::Post& post);
  // With kDone sets the UID of the post's pod; an empty one: there is no such pod on this node, or it cannot be read.
  Outcome FindPod(const EventBook::Post& post, std::string* uid);
  // Whether another line about the event's namespace may be logged; otherwise it is counted.
  bool MaySay(const Event& event, uint64_t* left_out) GPULOOM_REQUIRES(mutex_);
  std::string Body(const EventBook::Post& post, const std::string& name,
                   const std::string& pod_uid) const;
  void Say(const std::string& trouble);

  const Options options_;
  std::thread thread_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<uint64_t> posted_ = 0;
  std::unique_ptr<ApiClient> client_;  // the thread's
  std::string last_trouble_;           // the thread's; each is logged once
  mutable Mutex mutex_;
  CondVar changed_;
  EventBook book_ GPULOOM_GUARDED_BY(mutex_);
  bool has_news_ GPULOOM_GUARDED_BY(mutex_) = false;
  LineBudgets lines_ GPULOOM_GUARDED_BY(mutex_);  // by namespace
};

}  // namespace gpuloom
