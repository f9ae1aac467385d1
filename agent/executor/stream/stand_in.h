// SPDX-License-Identifier: Apache-2.0
// Runs host functions' bookkeeping while the ring thread is in a driver call that may need it. Launching a
// graph whose nodes wait for the host can return only when they have gone on: the driver then waits for
// the device (measured; docs/design/running-graphs.md), and it is the ring thread that would tell the
// tenant which function is due and the device that it has run. So another thread does that meanwhile.
//
// Owned by the loop; the thread begins with the first Absence and ends with this. The ring thread and the
// thread of this never run `serve` or what it touches at the same time: whoever is absent does nothing,
// and comes back only between two rounds.
#pragma once

#include <functional>
#include <thread>

#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class StandIn {
 public:
  // `serve` is called again and again while the ring thread is absent; it makes no driver calls.
  explicit StandIn(std::function<void()> serve) : serve_(std::move(serve)) {}
  ~StandIn();
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;

  // As long as it lives the ring thread is in the driver and touches nothing of sessions.
  class Absence {
   public:
    explicit Absence(StandIn* stand_in);
    ~Absence();
    Absence(const Absence&) = delete;
    Absence& operator=(const Absence&) = delete;

   private:
    StandIn* const stand_in_;
  };

 private:
  void Run();

  const std::function<void()> serve_;
  Mutex mutex_;
  CondVar changed_;
  bool absent_ GPULOOM_GUARDED_BY(mutex_) = false;
  bool ends_ GPULOOM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace gpuloom::executor
