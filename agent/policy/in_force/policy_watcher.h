// SPDX-License-Identifier: Apache-2.0
// The policy in force, kept up to date from its file. Reads the content anew at every look instead of trusting inode or
// time: a ConfigMap is swapped by a symlink two levels up, and the file is small.
//
// A file that cannot be read or parsed changes nothing: the policy in force stays. When the agent starts, that is the
// last good one, which it keeps in its state (agent/identity/kept_text.h). If that cannot be used either, no policy
// is in force, and no container is given anything until the file is right. A kept one that cannot be read for a moment is
// read again at every look.
//
// The same file may serve nodes with other GPUs: rules that a GPU of this node cannot keep (they promise more memory
// than it has) are impossible there, and the others are in force.
//
// Owned by the agent. LoadFirst and Reload are called from one thread; const functions are safe from any.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "agent/policy/policy.h"
#include "agent/policy/settings.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

// Checks that the file is a policy, whatever the GPUs.
absl::Status CheckPolicyFile(const std::string& path);

class PolicyWatcher {
 public:
  enum class Outcome { kUnchanged, kReloaded, kRefused };
  struct LoadResult {
    Outcome outcome = Outcome::kUnchanged;
    std::string reason;  // of kRefused: what is wrong, and what is in force instead
    // Why the policy in force could not be kept for the next start; each reason is reported once. Every look tries
    // again.
    std::string not_kept;
  };

  // An empty `path` means the built-in defaults for good, of which nothing is kept. `kept_path`: where the last good
  // policy is kept; empty: nowhere.
  explicit PolicyWatcher(std::string path, std::string kept_path = {})
      : path_(std::move(path)), kept_path_(std::move(kept_path)) {}

  // The GPUs against which promises are judged. Call it before LoadFirst.
  void SetCapacities(std::vector<Capacity> capacities) { capacities_ = std::move(capacities); }

  // Call it once, before Reload. Returns kReloaded or kRefused; after kRefused the last good policy is in force, or
  // none.
  LoadResult LoadFirst();
  // A mistake is reported once per content, not at every look.
  LoadResult Reload();

  // Null when no policy is in force.
  std::shared_ptr<const Policy> Current() const;
  // How many policies have been in force so far.
  uint64_t Generation() const;
  // Why the file is not what is in force; empty while it is.
  std::string Trouble() const;
  // The rules in force that are impossible, by GPU; without GPUs that have none.
  std::map<std::string, std::vector<ImpossibleRule>> Impossible() const;
  // The same in one line for the operator; empty: there are none.
  std::string ImpossibleText() const;

 private:
  // Puts the last good policy in force, if there is one, and says in in_force_ what is.
  void TakeKept();
  // Reads and judges the file, unless its content is the one judged last.
  LoadResult ReadFile();
  void Use(Policy policy);
  LoadResult Refuse(const std::string& reason);
  // Writes the content in force to kept_path_ unless it lies there. Returns LoadResult::not_kept.
  std::string Keep();

  const std::string path_;
  const std::string kept_path_;
  std::vector<Capacity> capacities_;
  std::optional<std::string> last_content_;  // judged already
  std::string content_trouble_;              // what was wrong with it; empty when it was good
  std::string last_read_error_;              // the latest since the last successful read
  std::string in_force_;                     // what is in force while the file is refused, in words
  std::optional<std::string> good_content_;  // of the policy in force
  bool is_kept_unread_ = false;              // it cannot be read now, and may be whole
  bool is_kept_ = false;                     // good_content_ lies at kept_path_
  std::string last_not_kept_;
  mutable Mutex mutex_;
  std::shared_ptr<const Policy> current_ GPULOOM_GUARDED_BY(mutex_);
  uint64_t generation_ GPULOOM_GUARDED_BY(mutex_) = 0;
  std::string trouble_ GPULOOM_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<ImpossibleRule>> impossible_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
