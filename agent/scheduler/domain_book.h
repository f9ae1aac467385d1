// SPDX-License-Identifier: Apache-2.0
// What is remembered of trust domains beside their executors: what these have used and how they
// ended, for the metrics, and what bounds domains that start again and again.
//
// A domain is remembered while it has anything (allocations, executors, sessions), and for a while
// after: until then its back-off and its log budget hold for whoever comes next, and its counters
// go on. Then it is forgotten, however it ended: namespaces are made and deleted by the thousand.
//
// Owned by TrustDomains; the scheduler's thread only. Time is an argument.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "agent/node/line_budget.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

struct ExecutorCounts {
  uint64_t started = 0;
  uint64_t failed = 0;  // ended before they were ready
  uint64_t lost = 0;    // ended while they had sessions
};

struct DomainHistory {
  using Time = std::chrono::steady_clock::time_point;

  ExecutorCounts counts;
  control::BusyTime busy{};
  int failures = 0;  // failed starts since one was ready
  std::string last_reason;
  Time next_start{};
  Time next_spare{};  // when it may be given a spare executor again
  LineBudget lines;   // log budget for its executors: tenants can end them at will
  std::optional<Time> unused_since;
};

class DomainBook {
 public:
  using Time = DomainHistory::Time;

  // `lingering`: how long a domain is remembered after it has lost everything.
  explicit DomainBook(std::chrono::milliseconds lingering) : lingering_(lingering) {}

  // For a domain that has something. The reference is valid until Forget.
  DomainHistory& Of(const std::string& domain) { return domains_[domain]; }
  const DomainHistory* Find(const std::string& domain) const;

  // Call when a domain has lost something; `present` names all domains that have something. Returns
  // when to call it next if nothing changes until then.
  std::optional<Time> Forget(const std::set<std::string_view>& present, Time now);

  size_t size() const { return domains_.size(); }

 private:
  const std::chrono::milliseconds lingering_;
  std::map<std::string, DomainHistory> domains_;
};

// 0, then 1 s, doubling up to 30 s: a broken driver is not tried ten times a second, and a repaired
// one is found soon.
std::chrono::steady_clock::duration StartDelay(int failures);

}  // namespace gpuloom::scheduler
