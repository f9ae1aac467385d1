// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/exporter.h"

#include "agent/cat.h"
#include "agent/metrics/page.h"

namespace gpuloom {
namespace {

// 0.0.4 is the version of the text format.
constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

// Answers are shared with the connections that send them, however slowly: no answer is copied for a
// peer.
std::shared_ptr<const std::string> Shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

}  // namespace

Exporter::Exporter(ListenAddress address, AllowedHosts hosts, Observer::Options observer,
                   Clock* clock)
    : hosts_(std::move(hosts)),
      clock_(clock),
      observer_(std::move(observer)),
      server_(std::move(address), [this](const HttpRequest& request) { return Answer(request); }) {}

// Load before the threads: another agent may have counted since this one did. last_tick_ anew,
// because the loop has not called Ticked while that agent was in charge.
void Exporter::Start() {
  Stop();
  last_tick_ = clock_->Now();
  observer_.Load(last_tick_);
  {
    const MutexLock lock(mutex_);
    is_stopping_ = is_asked_ = false;
    made_ = nullptr;
  }
  watcher_ = std::thread([this] { Watch(); });
  server_.Start();
  // Behind it, because it wakes the server.
  maker_ = std::thread([this] { Make(); });
}

void Exporter::Stop() {
  if (!watcher_.joinable()) return;
  // Before the joins: a look in progress asks no further scheduler.
  observer_.Interrupt();
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  stop_.NotifyAll();
  maker_.join();
  // The port is free for the next agent while the last look ends.
  server_.Stop();
  watcher_.join();
}

void Exporter::Watch() {
  for (;;) {
    observer_.Look(clock_->Now(), clock_->WallAhead());
    MutexLock lock(mutex_);
    if (stop_.WaitFor(mutex_, kPollInterval,
                      [this]() GPULOOM_REQUIRES(mutex_) { return is_stopping_; })) {
      break;
    }
  }
  // The last word: the next agent goes on from here.
  observer_.Keep();
}

void Exporter::Make() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      stop_.Wait(mutex_, [this]() GPULOOM_REQUIRES(mutex_) { return is_stopping_ || is_asked_; });
      if (is_stopping_) return;
      is_asked_ = false;
    }
    std::shared_ptr<const std::string> made = observer_.Metrics();
    {
      const MutexLock lock(mutex_);
      made_ = std::move(made);
    }
    server_.CheckAgain();
  }
}

HttpAnswer Exporter::Metrics(bool is_again) {
  HttpAnswer answer;
  if (const std::string unread = observer_.Unread(); !unread.empty()) {
    // To Prometheus, counters from 0 would be new use, and those of before once more.
    answer.status = 503;
    answer.body = Shared(unread + "\n");
    return answer;
  }
  answer.content_type = kMetricsType;
  answer.body = observer_.KeptMetrics();
  if (answer.body != nullptr) return answer;
  const MutexLock lock(mutex_);
  // What was made for it, or for who asked just before: with a slow disk there are newer figures by then, again and again.
  if (is_again) answer.body = made_;
  // Who has an answer takes nobody's question back.
  if (answer.body == nullptr) {
    is_asked_ = true;
    stop_.NotifyAll();
  }
  return answer;
}

HttpAnswer Exporter::Answer(const HttpRequest& request) {
  const std::string_view path = request.path;
  HttpAnswer answer;
  if (path != "/healthz" && !hosts_.Allow(request.host_untrusted)) {
    // HTTP's own status for a host that this server does not answer for.
    answer.status = 421;
    // What was sent is not repeated.
    answer.body = Shared(
        "Misdirected Request: this agent is not asked by the name in your address. Use an IP "
        "address, or allow the name: "
        "--metrics-hosts, in the chart metrics.hosts\n");
  } else if (path == "/metrics") {
    answer = Metrics(request.is_again);
  } else if (path == "/api/v1/state") {
    answer.content_type = "application/json";
    answer.body = observer_.State();
  } else if (path == "/") {
    // The same text for everybody, for ever.
    static const std::shared_ptr<const std::string> page = Shared(kPage);
    answer.content_type = "text/html; charset=utf-8";
    answer.content_security_policy = kPagePolicy;
    answer.body = page;
  } else if (path == "/healthz") {
    const Clock::Duration since =
        std::chrono::duration_cast<Clock::Duration>(clock_->Now() - last_tick_.load());
    const bool stands_still = since > kStandstill;
    answer.status = stands_still ? 503 : 200;
    answer.body = Shared(
        stands_still ? Cat("the agent's loop has not come round for ", since.count(), " ms\n")
                     : "ok\n");
  } else {
    answer.status = 404;
    answer.body = Shared("Not Found: see /, /metrics, /api/v1/state, /healthz\n");
  }
  return answer;
}

}  // namespace gpuloom
