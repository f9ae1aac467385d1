// SPDX-License-Identifier: Apache-2.0
// Posts this node's events to the cluster's API server, in a thread of its own: nobody who has something to say waits
// for the server, which may be slow or gone. What cannot be posted is tried again, within the bounds of EventBook;
// what the server refuses, such as an event of a pod that is gone, is dropped. No namespace's trouble is another's:
// all wait for the server only while it does not answer. Each event is also a line of the log, as soon as it is told,
// within a budget for each namespace.
//
// Owned by NodeAgent. Start and Stop from one thread; Tell and counts from any.
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
  // Without an answer, doubled up to the longest; a server that is gone is asked once a minute.
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::chrono::seconds kLongestPause{60};

  struct Options {
    std::string server;  // empty: events are lines of the log and nothing more
    std::string service_account = kServiceAccount;
    std::string node;  // its name in the cluster
    Clock* clock = nullptr;
  };

  explicit EventSender(Options options) : options_(std::move(options)) {}
  ~EventSender() { Stop(); }

  void Start();
  void Stop();

  void Tell(const Event& event);

  uint64_t posted() const { return posted_; }
  uint64_t dropped() const;

 private:
  enum class Outcome {
    kDone,            // posted, or dropped
    kNamespaceWaits,  // the server cannot do it now: for others it may
    kAllWait,         // it does not answer, or does not know us
  };

  void Run();
  Outcome Send(const EventBook::Post& post);
  static Outcome OutcomeOf(int status);
  Outcome Drop(const EventBook::Post& post);
  // Sets the UID of the post's pod, if done. An empty one: there is no such pod on this node, or none that can be read.
  Outcome FindPod(const EventBook::Post& post, std::string* uid);
  // The log may have another line of the namespace. Else it is counted.
  bool MaySay(const Event& event, uint64_t* left_out) GPULOOM_REQUIRES(mutex_);
  std::string Body(const EventBook::Post& post, const std::string& name,
                   const std::string& pod_uid) const;
  void Say(const std::string& trouble);

  const Options options_;
  std::thread thread_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<uint64_t> posted_ = 0;
  std::unique_ptr<ApiClient> client_;  // the thread's
  std::string last_trouble_;           // the thread's: each is said once
  mutable Mutex mutex_;
  CondVar changed_;
  EventBook book_ GPULOOM_GUARDED_BY(mutex_);
  bool has_news_ GPULOOM_GUARDED_BY(mutex_) = false;
  LineBudgets lines_ GPULOOM_GUARDED_BY(mutex_);  // by namespace
};

}  // namespace gpuloom
