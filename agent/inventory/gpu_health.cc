// SPDX-License-Identifier: Apache-2.0
// Neither NVML nor a probe is waited for under mutex_: both may hang, and Trouble is asked by the
// agent's loop. The thread alone uses faults_. is_stopping_ is atomic for the probe, which looks at
// it without the lock; it is set under the lock, so that the thread's wait does not miss it.
#include "agent/inventory/gpu_health.h"

#include "agent/cat.h"

namespace gpuloom {
namespace {

Sickness::Source SourceOf(const GpuFault& fault) {
  return fault.is_event ? Sickness::Source::kEvent : Sickness::Source::kState;
}

}  // namespace

GpuHealth::GpuHealth(Options options) : options_(std::move(options)) {
  // All entries, once: the map's keys never change afterwards.
  for (const std::string& uuid : options_.gpu_uuids) sicknesses_[uuid];
  for (const Known& known : options_.known) {
    sicknesses_.at(known.gpu_uuid).Remember(options_.clock->Now(), known.reason, known.source);
  }
  if (options_.poll) {
    faults_ = std::make_unique<FaultPoll>(options_.poll);
  } else if (!options_.nvml_library.empty()) {
    auto watch = std::make_shared<FaultWatch>(options_.gpu_uuids, options_.nvml_library);
    faults_ = std::make_unique<FaultPoll>([watch = std::move(watch)] { return watch->Look(); });
  }
}

void GpuHealth::Start() {
  Stop();
  is_stopping_ = false;
  {
    // The time between Stop and Start does not count as silence of the driver: there was no thread
    // to take its answer.
    const MutexLock lock(mutex_);
    if (polling_since_.has_value()) polling_since_ = options_.clock->Now();
  }
  watcher_ = std::thread([this] { Watch(); });
}

void GpuHealth::Stop() {
  if (!watcher_.joinable()) return;
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  stop_.NotifyAll();
  watcher_.join();
}

void GpuHealth::Watch() {
  while (!is_stopping_) {
    Look();
    MutexLock lock(mutex_);
    if (stop_.WaitFor(mutex_, kPollInterval, [this] { return is_stopping_.load(); })) return;
  }
}

void GpuHealth::HearFaults() {
  {
    const MutexLock lock(mutex_);
    if (!polling_since_.has_value()) polling_since_ = options_.clock->Now();
  }
  const std::optional<std::vector<GpuFault>> faults = faults_->Poll(options_.poll_patience);
  const Clock::Time now = options_.clock->Now();
  const MutexLock lock(mutex_);
  if (!faults.has_value()) {
    if (!IsSilent(now) || is_silence_known_) return;
    is_silence_known_ = true;
    // Without fault reports, one probe decides whether each GPU works. A GPU that fails later is suspected when its
    // executors fail.
    for (auto& [uuid, sickness] : sicknesses_) sickness.Suspect(now);
    return;
  }
  polling_since_.reset();
  is_silence_known_ = false;
  // The poll is about the same GPUs, so `at` finds each.
  for (const GpuFault& fault : *faults) {
    sicknesses_.at(fault.gpu_uuid).Fault(now, fault.reason, SourceOf(fault));
  }
}

bool GpuHealth::IsSilent(Clock::Time now) const {
  return polling_since_.has_value() && now - *polling_since_ >= kSilence;
}

std::string GpuHealth::DriverTrouble() const {
  const MutexLock lock(mutex_);
  // Only of a poll that was looked at: probes may have been in the way of taking the answer.
  if (!is_silence_known_) return "";
  return Cat(
      "nvml: the driver has not answered for ",
      std::chrono::duration_cast<std::chrono::seconds>(kSilence).count(),
      " s: faults of GPUs are not heard of; see dmesg, and does nvidia-smi answer on the node?");
}

void GpuHealth::Look() {
  if (faults_ != nullptr) HearFaults();
  for (const std::string& uuid : options_.gpu_uuids) {
    {
      const MutexLock lock(mutex_);
      // One GPU after the other: each probe makes a context, and takes seconds where it fails.
      if (!sicknesses_.at(uuid).WantsProbe(options_.clock->Now())) continue;
    }
    const ProbeResult result = options_.probe(uuid, is_stopping_);
    // Nothing is known if it could not be started: then it is tried again.
    if (!result.is_known) continue;
    const MutexLock lock(mutex_);
    if (result.is_full) {
      sicknesses_.at(uuid).Undecided(options_.clock->Now());
    } else {
      sicknesses_.at(uuid).Probed(options_.clock->Now(), result.trouble);
    }
  }
}

void GpuHealth::Suspect(const std::string& gpu_uuid) {
  const MutexLock lock(mutex_);
  const auto found = sicknesses_.find(gpu_uuid);
  if (found != sicknesses_.end()) found->second.Suspect(options_.clock->Now());
}

Sickness GpuHealth::Of(const std::string& gpu_uuid) const {
  const MutexLock lock(mutex_);
  const auto found = sicknesses_.find(gpu_uuid);
  return found == sicknesses_.end() ? Sickness() : found->second;
}

}  // namespace gpuloom
