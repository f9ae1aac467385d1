// SPDX-License-Identifier: Apache-2.0
// Which events are posted, and when. Events of one object with one reason are one series, but those of two GPUs, or
// of two pods that had the same name, are two (Event::instance). The first of a series is posted at once, those that
// follow raise its count and are posted together, once a minute. Everything is bounded: series, and posts for each
// namespace and for the node, so that a tenant who makes pods, faults or refusals by the thousand costs the API
// server a post each ten seconds, and neither another namespace's events nor the node's wait for that. The node's
// come first, then each namespace has its turn; one whose events the server cannot take now waits by itself.
//
// A value; one thread at a time. Time is an argument.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "agent/clock.h"
#include "agent/events/event.h"
#include "agent/node/token_bucket.h"

namespace gpuloom {

class EventBook {
 public:
  // More pods than a node runs, each with some reasons.
  static constexpr size_t kMaxSeries = 1000;
  static constexpr size_t kMaxSeriesOfNamespace = 100;
  static constexpr size_t kMaxMessageBytes = 1000;  // and a mark; Kubernetes takes 1024
  static constexpr Clock::Duration kRepeatPause = std::chrono::minutes(1);
  // A series that has said nothing for so long is forgotten: the API server does so after an hour.
  static constexpr Clock::Duration kForgotten = std::chrono::minutes(30);
  // Posts of a namespace, and of the node.
  static constexpr uint32_t kAtOnce = 20;
  static constexpr Clock::Duration kRefill = std::chrono::seconds(10);
  // Of a namespace after a failure, doubled up to the longest.
  static constexpr Clock::Duration kFirstPause = std::chrono::seconds(1);
  static constexpr Clock::Duration kLongestPause = std::chrono::minutes(1);

  struct Post {
    uint64_t series = 0;
    Event event;
    uint64_t count = 0;
    Clock::Time first, last;
    // As Posted was told; empty: it was never posted.
    std::string name;
    std::string pod_uid;
  };

  void Add(const Event& event, Clock::Time now);
  // What is to be posted now.
  std::optional<Post> Next(Clock::Time now);
  // It is: under this name, about the pod of this UID.
  void Posted(uint64_t series, uint64_t count, const std::string& name, const std::string& pod_uid);
  // The server could not do it now.
  void Failed(uint64_t series, Clock::Time now);
  // Nothing more of the series is to be posted: its pod is gone, or the server refuses it.
  void Drop(uint64_t series);

  uint64_t dropped() const { return dropped_; }  // events that nobody will read
  size_t series() const { return series_.size(); }

 private:
  struct Series {
    Post post;
    uint64_t posted = 0;  // of post.count
    Clock::Time next;     // not before
    bool IsTold() const { return posted == post.count; }
  };
  struct Budget {
    TokenBucket posts{kAtOnce, kRefill};
    Clock::Duration pause{0};  // after its latest failure
    Clock::Time next;          // not before
  };
  // Forgets what is over.
  void Tidy(Clock::Time now);
  // False: there is none for another series of this namespace.
  bool MakeRoom(const std::string& pod_namespace);
  void Erase(uint64_t series);

  uint64_t last_id_ = 0;
  uint64_t dropped_ = 0;
  std::map<uint64_t, Series> series_;
  std::map<std::string, uint64_t> by_key_;
  std::map<std::string, Budget> budgets_;  // by namespace; of the node ""
  std::string last_;                       // the namespace whose turn was the last
};

}  // namespace gpuloom
