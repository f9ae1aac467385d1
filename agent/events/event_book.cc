// SPDX-License-Identifier: Apache-2.0
#include "agent/events/event_book.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

#include "agent/node/one_line.h"

namespace gpuloom {
namespace {

// What makes two events one series.
std::string KeyOf(const Event& event) {
  // None of these can have a newline: names are Kubernetes', the others our own.
  return event.pod_namespace + "\n" + event.pod + "\n" + event.container + "\n" + event.reason +
         "\n" + event.instance;
}

uint64_t NanosecondsOf(Clock::Time time) {
  return static_cast<uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
}

}  // namespace

void EventBook::Add(const Event& event, Clock::Time now) {
  const std::string key = KeyOf(event);
  auto known = by_key_.find(key);
  if (known == by_key_.end()) {
    // Only when a series comes new: that is when room and memory are needed.
    Tidy(now);
    if (!MakeRoom(event.pod_namespace)) {
      ++dropped_;
      return;
    }
    Series& series = series_[++last_id_];
    series.post.series = last_id_;
    series.post.first = series.next = now;
    known = by_key_.emplace(key, last_id_).first;
  }
  Series& series = series_.at(known->second);
  // The latest message stands for the series: Kubernetes shows one text and a count.
  series.post.event = event;
  series.post.event.message = OneLine(event.message, kMaxMessageBytes);
  series.post.last = now;
  ++series.post.count;
}

std::optional<EventBook::Post> EventBook::Next(Clock::Time now) {
  // For each namespace the series that has waited longest, in the order of their turns: the node, the namespaces after
  // the last one served, then those before it.
  std::map<std::tuple<bool, bool, std::string_view>, Series*> due;
  for (auto& [id, series] : series_) {
    if (series.IsPosted() || now < series.next) continue;
    const std::string_view whose = series.post.event.pod_namespace;
    Series*& first = due[{!whose.empty(), whose <= last_, whose}];
    if (first == nullptr || series.next < first->next) first = &series;
  }
  for (const auto& [turn, series] : due) {
    const std::string& whose = series->post.event.pod_namespace;
    // A namespace's token is spent by asking: budget.posts.Take comes last, when nothing else can
    // keep the post back.
    Budget& budget = budgets_[whose];
    // What a namespace may not post now waits, and others do not wait for it.
    if (now < budget.next || !budget.posts.Take(NanosecondsOf(now))) continue;
    // Whether this post succeeds or not.
    series->next = now + kRepeatPause;
    if (!whose.empty()) last_ = whose;
    return series->post;
  }
  return std::nullopt;
}

void EventBook::Posted(uint64_t series, uint64_t count, const std::string& name,
                       const std::string& pod_uid) {
  const auto found = series_.find(series);
  if (found == series_.end()) return;
  // Not post.count: more may have been added while the post was on its way, and is still to be
  // posted.
  found->second.posted = count;
  found->second.post.name = name;
  found->second.post.pod_uid = pod_uid;
  // The server takes this namespace's posts again: the next failure begins with the shortest pause.
  budgets_[found->second.post.event.pod_namespace].pause = {};
}

void EventBook::Failed(uint64_t series, Clock::Time now) {
  const auto found = series_.find(series);
  if (found == series_.end()) return;
  Budget& budget = budgets_[found->second.post.event.pod_namespace];
  budget.pause = std::clamp(budget.pause * 2, kFirstPause, kLongestPause);
  budget.next = now + budget.pause;
}

void EventBook::Drop(uint64_t series) {
  const auto found = series_.find(series);
  if (found == series_.end()) return;
  // Those that were posted are not lost.
  dropped_ += found->second.post.count - found->second.posted;
  Erase(series);
}

void EventBook::Tidy(Clock::Time now) {
  std::vector<uint64_t> over;
  for (const auto& [id, series] : series_) {
    // One that waits for its post stays, however old: it ends by its post or by Drop.
    if (series.IsPosted() && now - series.post.last >= kForgotten) over.push_back(id);
  }
  for (const uint64_t id : over) Erase(id);
  std::erase_if(budgets_, [&](const auto& entry) {
    // A budget that is full and does not wait is as good as a new one.
    return now >= entry.second.next && entry.second.posts.IsFull(NanosecondsOf(now));
  });
}

bool EventBook::MakeRoom(const std::string& pod_namespace) {
  // The node's own reasons are few, and there is always room for them.
  if (pod_namespace.empty()) return true;
  std::map<std::string_view, size_t> count_of;
  for (const auto& [id, series] : series_) ++count_of[series.post.event.pod_namespace];
  count_of.erase("");
  const size_t own = count_of[pod_namespace];
  if (own < kMaxSeriesOfNamespace && series_.size() < kMaxSeries) return true;
  size_t most = 0;
  for (const auto& [whose, count] : count_of) most = std::max(most, count);
  // The namespace with the most series gives up the posted one that has been silent for longest. One that was never
  // posted is given up, the newest first, only for a namespace that has fewer.
  const Series* given = nullptr;
  for (const auto& [id, series] : series_) {
    const std::string& whose = series.post.event.pod_namespace;
    if (own == most ? whose != pod_namespace || !series.IsPosted()
                    : whose.empty() || count_of[whose] != most) {
      continue;
    }
    if (given == nullptr || !given->IsPosted() ||
        (series.IsPosted() && series.post.last < given->post.last)) {
      given = &series;
    }
  }
  if (given == nullptr) return false;
  Drop(given->post.series);
  return true;
}

void EventBook::Erase(uint64_t series) {
  by_key_.erase(KeyOf(series_.at(series).post.event));
  series_.erase(series);
}

}  // namespace gpuloom
