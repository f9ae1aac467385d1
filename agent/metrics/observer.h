// SPDX-License-Identifier: Apache-2.0
// Asks the node's schedulers, over connections of its own, what their tenants use, and keeps the ledger, in memory
// and in the agent's state. A scheduler that hangs blocks only this, neither the agent's own loop nor requests for
// the figures, which are those of the last look.
//
// Figures that Metrics shows have been written down before: to a Prometheus a counter that went back has begun at 0
// again, and all of it would be charged a second time.
//
// Owned by Exporter. Look is called from one thread; the rest from any. A scheduler that does not answer is shown as
// such and asked again; nothing fails.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/clock.h"
#include "agent/metrics/exposition.h"
#include "agent/metrics/ledger.h"
#include "agent/metrics/node_figures.h"
#include "agent/metrics/share_history.h"
#include "agent/metrics/state_json.h"
#include "agent/supervisor/scheduler_client.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class Observer {
 public:
  // How much of what nobody was shown is lost when scheduler and agent end at once, as with the machine, or an agent
  // after allocations that have ended.
  static constexpr Clock::Duration kKeepPause = std::chrono::seconds(10);

  struct Options {
    std::string state_directory;
    std::vector<std::string> gpu_uuids;
    // ConnectToScheduler, or a test's.
    std::function<absl::StatusOr<std::shared_ptr<SchedulerClient>>(const std::string& directory)>
        connect;
    std::function<NodeFigures()> node;  // called from Look
  };

  explicit Observer(Options options) : options_(std::move(options)) {}

  // Goes on from what the state directory has. Another agent may have been in charge of it since.
  void Load();
  // Asks everybody once; about once a second.
  void Look(Clock::Time now);
  // A look in progress asks no further scheduler, and later ones ask none until the next Load: ending waits for at
  // most one scheduler that hangs. From any thread.
  void Interrupt() { is_interrupted_ = true; }
  // Writes the ledger down.
  void Keep();

  // In Prometheus' format, kept, and as JSON; the same objects until the next Look.
  std::shared_ptr<const std::string> Metrics();
  std::shared_ptr<const std::string> State();

 private:
  std::string LedgerPath() const { return options_.state_directory + "/metrics.json"; }
  void Write(const std::string& ledger) GPULOOM_REQUIRES(keep_mutex_);

  const Options options_;
  std::map<std::string, std::shared_ptr<SchedulerClient>> clients_;  // by GPU; Look's
  Clock::Time next_keep_;
  std::atomic<bool> is_interrupted_ = false;
  // From looking at the ledger until it is written down, so that no older one comes last. Before mutex_.
  Mutex keep_mutex_;
  std::string last_trouble_ GPULOOM_GUARDED_BY(keep_mutex_);  // each is said once
  Mutex mutex_;
  Ledger ledger_ GPULOOM_GUARDED_BY(mutex_);
  NodeFigures node_ GPULOOM_GUARDED_BY(mutex_);
  PolicyHistory policy_ GPULOOM_GUARDED_BY(mutex_);
  ShareHistory shares_ GPULOOM_GUARDED_BY(mutex_);
  RefusalTimes refusals_ GPULOOM_GUARDED_BY(mutex_);
  Clock::Time looked_at_ GPULOOM_GUARDED_BY(mutex_);
  // Null: to be made.
  std::shared_ptr<const std::string> metrics_ GPULOOM_GUARDED_BY(mutex_);
  std::shared_ptr<const std::string> state_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
