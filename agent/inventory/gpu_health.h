// SPDX-License-Identifier: Apache-2.0
// Which of the node's GPUs are sick. A thread of its own watches and probes them, so that a driver that hangs delays
// nothing else. Owned by NodeAgent; the clock outlives it. Start and Stop are called from one thread; Suspect, Trouble and
// DriverTrouble are safe from any. Stop waits for the thread, which ends a probe early.
//
// Faults are polled on another thread (fault_poll.h): an NVML that hangs holds up neither probes nor Stop, and the destructor
// for no longer than that says.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/clock.h"
#include "agent/inventory/fault_poll.h"
#include "agent/inventory/gpu_probe.h"
#include "agent/inventory/sickness.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class GpuHealth {
 public:
  static constexpr std::chrono::milliseconds kPollInterval{1000};
  // Opening NVML takes up to some ten seconds where many GPUs are asleep.
  static constexpr Clock::Duration kSilence = std::chrono::seconds(30);

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
    // How long probes wait for a poll for faults. One that takes longer is heard at a later round.
    std::chrono::milliseconds poll_patience{1000};
    // Instead of what nvml_library reports, for tests.
    std::function<std::vector<GpuFault>()> poll = {};
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
  // Why no faults can be reported: the driver has not answered for kSilence. One line, unchanged while that lasts;
  // empty: the driver answers, or is not polled.
  std::string DriverTrouble() const;
  // All that is known of it now; of a GPU that is not its own, nothing.
  Sickness Of(const std::string& gpu_uuid) const;

 private:
  void Watch();
  void HearFaults();
  bool IsSilent(Clock::Time now) const GPULOOM_REQUIRES(mutex_);

  const Options options_;
  std::unique_ptr<FaultPoll> faults_;  // the thread's; null: nothing reports any
  std::thread watcher_;
  std::atomic<bool> is_stopping_ = false;
  mutable Mutex mutex_;
  CondVar stop_;
  std::map<std::string, Sickness> sicknesses_ GPULOOM_GUARDED_BY(mutex_);
  std::optional<Clock::Time> polling_since_
      GPULOOM_GUARDED_BY(mutex_);  // nothing: no poll is under way
  bool is_silence_known_ GPULOOM_GUARDED_BY(mutex_) = false;
};

}  // namespace gpuloom
