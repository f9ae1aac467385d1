// SPDX-License-Identifier: Apache-2.0
// Decides which events are posted, and when. Events of one object with one reason form a series; those of two GPUs,
// or of two pods that had the same name, form two (Event::instance). The first event of a series is posted at once;
// later ones raise its count and are posted together, once a minute. Series are bounded, and so are posts for each
// namespace and for the node: a tenant that causes thousands of pods, faults or refusals costs the API server one
// post every ten seconds, and delays neither other namespaces' events nor the node's. The node's events come first,
// then the namespaces' in turn; a namespace whose events the server cannot take at present waits alone.
//
// A value, owned by the event sender, whose mutex guards it; copies what it is given. Nothing fails: what has no room
// is counted (dropped). Time is an argument.
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
  // Enough for more pods than a node runs, each with several reasons.
  static constexpr size_t kMaxSeries = 1000;
  static constexpr size_t kMaxSeriesOfNamespace = 100;
  static constexpr size_t kMaxMessageBytes = 1000;  // plus "…" if cut; Kubernetes accepts 1024
  static constexpr Clock::Duration kRepeatPause = std::chrono::minutes(1);
  // A series without events for this long is forgotten; the API server deletes events after an hour.
  static constexpr Clock::Duration kForgotten = std::chrono::minutes(30);
  // The budget of posts of each namespace, and of the node: kAtOnce, then one per kRefill.
  static constexpr uint32_t kAtOnce = 20;
  static constexpr Clock::Duration kRefill = std::chrono::seconds(10);
  // The pause of a namespace after a failure, doubled up to the longest.
  static constexpr Clock::Duration kFirstPause = std::chrono::seconds(1);
  static constexpr Clock::Duration kLongestPause = std::chrono::minutes(1);

  struct Post {
    uint64_t series = 0;
    Event event;
    uint64_t count = 0;
    Clock::Time first, last;
    // As given to Posted; empty: it was never posted.
    std::string name;
    std::string pod_uid;
  };

  void Add(const Event& event, Clock::Time now);
  // The next event to post; nullopt: none is due.
  std::optional<Post> Next(Clock::Time now);
  // It was posted under this name, about the pod with this UID.
  void Posted(uint64_t series, uint64_t count, const std::string& name, const std::string& pod_uid);
  // The server could not do it at present.
  void Failed(uint64_t series, Clock::Time now);
  // Ends the series: its pod is gone, or the server refuses it.
  void Drop(uint64_t series);

  uint64_t dropped() const { return dropped_; }  // events that will never be posted
  size_t series() const { return series_.size(); }

 private:
  struct Series {
    Post post;
    uint64_t posted = 0;  // how many of post.count
    Clock::Time next;     // not posted before this time
    bool IsPosted() const { return posted == post.count; }
  };
  struct Budget {
    TokenBucket posts{kAtOnce, kRefill};
    Clock::Duration pause{0};  // after its latest failure
    Clock::Time next;          // nothing is posted before this time
  };
  // Forgets series and budgets that have expired.
  void Tidy(Clock::Time now);
  // Makes room for another series of this namespace. False: there is none.
  bool MakeRoom(const std::string& pod_namespace);
  void Erase(uint64_t series);

  uint64_t last_id_ = 0;
  uint64_t dropped_ = 0;
  std::map<uint64_t, Series> series_;
  std::map<std::string, uint64_t> by_key_;
  std::map<std::string, Budget> budgets_;  // by namespace; the node's is ""
  std::string last_;                       // the namespace whose turn was last
};

}  // namespace gpuloom
