// SPDX-License-Identifier: Apache-2.0
// The policy in force, kept up to date from its file. Reads the content anew at every look instead
// of trusting inode or time: a ConfigMap is swapped by a symlink two levels up, and the file is
// small.
//
// A file that cannot be read or parsed changes nothing: the policy in force stays. At the agent's start that is the last
// good one, which lies in the agent's state (agent/identity/kept_text.h); where that cannot be used either, no policy is in
// force, and nobody may be given anything, until the file is right.
//
// A file may be for nodes of other GPUs, too: rules that a GPU of this node cannot keep to (they promise more memory than it
// has) are impossible there, and the others are in force.
//
// Owned by the agent. LoadFirst and LookAgain are called from one thread; all that is const from any.
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

// Whether the file is a policy; no GPU is looked at.
absl::Status CheckPolicyFile(const std::string& path);

class PolicyWatcher {
 public:
  enum class Outcome { kUnchanged, kReloaded, kRefused };
  struct Look {
    Outcome outcome = Outcome::kUnchanged;
    std::string reason;  // of kRefused: what is wrong, and what is in force instead
    // Why the policy in force could not be kept for the next start; each reason is said once. It is
    // tried again at every look.
    std::string not_kept;
  };

  // An empty `path` means the built-in defaults, for ever; then nothing is kept. `kept_path`: where
  // the last good policy lies; empty: nowhere.
  explicit PolicyWatcher(std::string path, std::string kept_path = {})
      : path_(std::move(path)), kept_path_(std::move(kept_path)) {}

  // GPUs against which promises are judged. Set before LoadFirst.
  void SetCapacities(std::vector<Capacity> capacities) { capacities_ = std::move(capacities); }

  // Once, first. kReloaded or kRefused; after kRefused the last good policy is in force, or none.
  Look LoadFirst();
  // What is wrong is told once per content, not at every look.
  Look LookAgain();

  // Null when no policy is in force.
  std::shared_ptr<const Policy> Current() const;
  // How many have been in force so far; 0 while none has been.
  uint64_t Generation() const;
  // Why the file is not what is in force; empty while it is.
  std::string Trouble() const;
  // The rules in force that are impossible, by GPU; those that have none are not in it.
  std::map<std::string, std::vector<BrokenPromise>> Impossible() const;
  // The same in a line for whoever must mend it; empty: there is none.
  std::string Partly() const;

 private:
  // Reads and judges the file, unless its content is the one judged last.
  Look ReadFile();
  void Use(Policy policy);
  Look Refuse(const std::string& reason);
  // Writes the content in force to kept_path_ unless it lies there. Returns Look::not_kept.
  std::string Keep();

  const std::string path_;
  const std::string kept_path_;
  std::vector<Capacity> capacities_;
  std::optional<std::string> last_content_;  // judged already
  std::string content_trouble_;              // what was wrong with it; empty when it was good
  std::string last_read_error_;              // since the last successful read
  std::string in_force_;                     // what is in force while the file is refused, in words
  std::optional<std::string> good_content_;  // of the policy in force
  bool is_kept_ = false;                     // good_content_ lies at kept_path_
  std::string last_not_kept_;
  mutable Mutex mutex_;
  std::shared_ptr<const Policy> current_ GPULOOM_GUARDED_BY(mutex_);
  uint64_t generation_ GPULOOM_GUARDED_BY(mutex_) = 0;
  std::string trouble_ GPULOOM_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<BrokenPromise>> impossible_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
