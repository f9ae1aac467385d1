// SPDX-License-Identifier: Apache-2.0
// What the agent knows, as the JSON of /api/v1/state (docs/node-page.md). Fields may be added, never changed.
// FormatState is pure; RefusalTimes is a value, one thread at a time.
#pragma once

#include <map>
#include <string>

#include "agent/clock.h"
#include "agent/metrics/exposition.h"
#include "agent/metrics/ledger.h"
#include "agent/metrics/node_figures.h"
#include "agent/metrics/share_history.h"

namespace gpuloom {

// When each refusal was last seen to happen.
class RefusalTimes {
 public:
  void Follow(const NodeFigures& node, Clock::Time now);
  Clock::Time Of(const RefusedRequest& refusal) const;

 private:
  struct Seen {
    uint64_t times = 0;
    Clock::Time last;
  };
  std::map<std::pair<std::string, std::string>, Seen> seen_;  // by call and reason
};

// `now`, and all times, are the agent's clock's; `wall_ahead` is its WallAhead.
std::string FormatState(const Ledger& ledger, const NodeFigures& node, const PolicyHistory& policy,
                        const ShareHistory& shares, const RefusalTimes& refusals, Clock::Time now,
                        Clock::Duration wall_ahead);

}  // namespace gpuloom
