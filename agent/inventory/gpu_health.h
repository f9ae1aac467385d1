// SPDX-License-Identifier: Apache-2.0
// Which of the node's GPUs are sick. A thread of its own watches and probes them, so that a driver that hangs delays
// nothing else. Owned by NodeAgent; the clock outlives it. Start and Stop are called from one thread; Suspect and
// Trouble are safe from any. Stop waits for the thread, which ends a probe early.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "agent/clock.h"
#include "agent/inventory/fault_watch.h"
#include "agent/inventory/gpu_probe.h"
#include "agent/inventory/sickness.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class GpuHealth {
 public:
  static constexpr std::chrono::milliseconds kPollInterval{1000};

  struct Known {
    std::string gpu_uuid;
    std::string reason;
    Sickness::Source source = Sickness::Source::kProbe;
  };
  struct Options {
    std::vector<std::string> gpu_uuids;
    std::string nvml_library;  // empty: nothing reports faults, as with software GPUs
    // Probes one GPU; may block, and gives up when the flag becomes true.
    std::function<ProbeResult(const std::string& gpu_uuid, const std::atomic<bool>& is_cancelled)>
        probe;
    Clock* clock = nullptr;
    // What was wrong before: those GPUs are sick until a probe, the first thing that is done, succeeds.
    std::vector<Known> known = {};
  };

  explicit GpuHealth(Options options);
  ~GpuHealth() { Stop(); }

  void Start();
  void Stop();
  // One round of the thread's work. For tests, instead of Start.
  void Look();

  // Reports that executors do not start, or that those of several tenants end: this GPU is to be probed.
  void Suspect(const std::string& gpu_uuid);
  // Why it is sick, in one line; empty: it is not.
  std::string Trouble(const std::string& gpu_uuid) const { return Of(gpu_uuid).reason(); }
  // All that is known of it now; of a GPU that is not its own, nothing.
  Sickness Of(const std::string& gpu_uuid) const;

 private:
  void Watch();

  const Options options_;
  std::unique_ptr<FaultWatch> faults_;  // the thread's
  std::thread watcher_;
  std::atomic<bool> is_stopping_ = false;
  mutable Mutex mutex_;
  CondVar stop_;
  std::map<std::string, Sickness> sicknesses_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
