// SPDX-License-Identifier: Apache-2.0
// Asks the node's schedulers, over connections of its own, what their tenants use, and keeps the ledger in memory and
// in the agent's state. A scheduler that hangs blocks only Look, neither the agent's own loop nor requests for the
// figures, which are those of the last look.
//
// Figures are on disk before Metrics shows them: to Prometheus, a counter that decreased has restarted at 0, and all of
// it would be charged a second time.
//
// A ledger on disk that cannot be read for a moment is read again at every look. Until then what is counted is not
// written, and Metrics shows nothing; then it is added to what was counted before.
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
  // The most that is lost, and only of what was not shown yet, if scheduler and agent end together (as with the
  // machine), or an agent ends after allocations have ended.
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

  // Continues from the ledger in the state directory, which another agent may have changed in the meantime.
  void Load(Clock::Time now);
  // Asks every scheduler once. Call it about once a second.
  // `wall_ahead` is the clock's WallAhead.
  void Look(Clock::Time now, Clock::Duration wall_ahead = {});
  // A look in progress asks no further scheduler, and later ones ask none until the next Load, so that ending waits
  // for at most one scheduler that hangs. Safe from any thread.
  void Interrupt() { is_interrupted_ = true; }
  // Writes the ledger to disk.
  void Keep();

  // The figures in Prometheus' format, which are on disk by then, and as JSON. Return the same objects until the next
  // Look. Metrics returns null while the ledger cannot be read; Unread then says why, and what to do.
  std::shared_ptr<const std::string> Metrics();
  std::string Unread();
  // The same figures if they are on disk: null if Metrics would write. Waits for no disk.
  std::shared_ptr<const std::string> KeptMetrics();
  std::shared_ptr<const std::string> State();

 private:
  std::string LedgerPath() const { return options_.state_directory + "/metrics.json"; }
  void ReadAgain(Clock::Time now);
  void Write(const std::string& ledger) GPULOOM_REQUIRES(keep_mutex_);

  const Options options_;
  std::map<std::string, std::shared_ptr<SchedulerClient>> clients_;  // by GPU; Look's
  Clock::Time next_keep_;
  std::atomic<bool> is_interrupted_ = false;
  // Held from reading the ledger until it is on disk, so that an older one never replaces a newer one. Taken before
  // mutex_.
  Mutex keep_mutex_;
  std::string last_trouble_ GPULOOM_GUARDED_BY(keep_mutex_);  // each is logged once
  Mutex mutex_;
  Ledger ledger_ GPULOOM_GUARDED_BY(mutex_);
  // Why the ledger on disk cannot be read; empty: ledger_ includes it. Until it can be read, ledger_ counts from this
  // agent's start.
  std::string unread_ GPULOOM_GUARDED_BY(mutex_);
  std::map<std::string, ReportAt> first_reports_ GPULOOM_GUARDED_BY(mutex_);
  NodeFigures node_ GPULOOM_GUARDED_BY(mutex_);
  PolicyHistory policy_ GPULOOM_GUARDED_BY(mutex_);
  ShareHistory shares_ GPULOOM_GUARDED_BY(mutex_);
  RefusalTimes refusals_ GPULOOM_GUARDED_BY(mutex_);
  Clock::Time looked_at_ GPULOOM_GUARDED_BY(mutex_);
  Clock::Duration wall_ahead_ GPULOOM_GUARDED_BY(mutex_){};
  // Null: not made yet. kept_metrics_ is on disk.
  std::shared_ptr<const std::string> kept_metrics_ GPULOOM_GUARDED_BY(mutex_);
  std::shared_ptr<const std::string> metrics_ GPULOOM_GUARDED_BY(mutex_);
  std::shared_ptr<const std::string> state_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
