// SPDX-License-Identifier: Apache-2.0
// Asks the node's schedulers, over connections of its own, what their tenants use, and keeps the ledger, in memory and in
// the agent's state. Whoever waits for a scheduler that hangs is this, not the agent's own loop, and not who asks for the
// figures: those are of the last look.
//
// Owned by Exporter. Look and Keep are called from one thread; the rest from any. A scheduler that does not answer is shown
// as such and asked again; nothing fails.
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
  // How much is lost when scheduler and agent end at once, as with the machine; of an agent alone nothing is.
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
  // A look that is going on asks nobody else, nor does any after it, until the next Load: who ends waits for one scheduler
  // that hangs at most, not for all. From any thread.
  void Interrupt() { is_interrupted_ = true; }
  // Writes the ledger down.
  void Keep();

  // In Prometheus' format, and as JSON; the same objects until the next Look.
  std::shared_ptr<const std::string> Metrics();
  std::shared_ptr<const std::string> State();

 private:
  std::string LedgerPath() const { return options_.state_directory + "/metrics.json"; }

  const Options options_;
  std::map<std::string, std::shared_ptr<SchedulerClient>> clients_;  // by GPU; Look's
  Clock::Time next_keep_;
  std::atomic<bool> is_interrupted_ = false;
  std::string last_trouble_;  // of Keep: each is said once
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
