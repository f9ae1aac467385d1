// SPDX-License-Identifier: Apache-2.0
// The tenant watches of a node's GPUs, and the counts for which they have made events, kept in the agent's state:
// however an agent ends, the next one makes events of what has happened meanwhile, and none twice. Owned by the node
// agent, used from its thread only. The file belongs to the agent that is in charge.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "agent/events/tenant_watch.h"

namespace gpuloom {

class TenantWatches {
 public:
  // While the kept counts cannot be read, reports make no events, and each report reads them again. After so many
  // reports they are given up, because later events are worth more.
  static constexpr int kMostTries = 30;

  // `path`: where it is kept (kept_text.h).
  explicit TenantWatches(std::string path) : path_(std::move(path)) {}

  // Goes on from what was kept last; a former call's reports are forgotten. If nothing was kept, or it is damaged, which is
  // logged, what was counted before the first report of each GPU is no news.
  void Load();
  // As TenantWatch's, for the report's GPU.
  std::vector<Event> Look(const std::string& gpu_uuid, const GpuReport& report);
  // Call between Look and telling its events, which are posted later in any case. Writes to the disk only if there was
  // news; what goes wrong is logged once, and tried again at the next call.
  void Keep();

 private:
  using Known = std::map<std::string, std::map<std::string, TenantWatch::Counts>>;  // by GPU
  // False: it cannot be read now, and is not to be given up yet.
  bool Read();
  static std::string Format(const Known& known);
  static absl::StatusOr<Known> Parse(const std::string& text);

  const std::string path_;
  std::map<std::string, TenantWatch> watches_;  // by GPU
  bool is_unread_ = false;
  int tries_left_ = kMostTries;
  bool was_kept_ = false;  // there was something to load
  Known loaded_;           // of GPUs without a report yet
  std::string kept_;
  std::string last_trouble_;
};

}  // namespace gpuloom
