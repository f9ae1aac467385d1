// SPDX-License-Identifier: Apache-2.0
// What --metrics-address enables: while this agent is in charge of the node, it watches what its tenants use and serves
// the figures over HTTP. It has three threads of its own, one that watches (observer.h), one that serves
// (http_server.h) and one that waits for the disk, so that neither a scheduler that hangs nor a client of the port delays the
// agent's loop, and a disk that hangs only those who ask for what must be on it, /metrics.
//
//   /              a page for people
//   /api/v1/state  what it reads, as JSON (docs/node-page.md)
//   /metrics       Prometheus' text format (docs/metrics.md)
//   /healthz       200 while the agent's loop runs
//
// All but /healthz is served only under an address or a name that no other site can have (allowed_hosts.h).
//
// Owned by NodeAgent; the clock outlives it. Its functions are called from the agent's loop; `port` is safe from any
// thread.
#pragma once

#include <atomic>
#include <thread>

#include "agent/clock.h"
#include "agent/metrics/allowed_hosts.h"
#include "agent/metrics/http_server.h"
#include "agent/metrics/observer.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class Exporter {
 public:
  static constexpr std::chrono::milliseconds kPollInterval{1000};
  // After this long without Ticked, /healthz fails. The loop may wait for the kubelet (5 s at a time), its PodResources
  // (3 s) and schedulers (5 s each).
  static constexpr Clock::Duration kStandstill = std::chrono::minutes(1);

  Exporter(ListenAddress address, AllowedHosts hosts, Observer::Options observer, Clock* clock);
  ~Exporter() { Stop(); }

  // Call it when this agent takes charge.
  void Start();
  // Call it when another agent takes charge, or this one ends. What was counted is kept.
  void Stop();
  // Call it in each round of the agent's loop.
  void Ticked(Clock::Time now) { last_tick_ = now; }

  int port() const { return server_.port(); }  // 0: none yet

 private:
  void Watch();
  // Makes /metrics, which writes, whenever somebody asks for it.
  void Make();
  HttpAnswer Metrics(bool is_again);
  HttpAnswer Answer(const HttpRequest& request);

  const AllowedHosts hosts_;
  Clock* const clock_;
  Observer observer_;
  HttpServer server_;
  std::thread watcher_;
  std::thread maker_;
  std::atomic<Clock::Time> last_tick_ = Clock::Time();
  static_assert(std::atomic<Clock::Time>::is_always_lock_free);
  Mutex mutex_;
  CondVar stop_;
  bool is_stopping_ GPULOOM_GUARDED_BY(mutex_) = false;
  bool is_asked_ GPULOOM_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const std::string> made_ GPULOOM_GUARDED_BY(mutex_);  // the last one
};

}  // namespace gpuloom
