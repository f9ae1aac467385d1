// The policy in force, kept up to date from its file. Reads the content anew at every look instead
// of trusting inode or time: a ConfigMap is swapped by a symlink two levels up, and the file is
// small.
//
// Owned by main. Load and Look are called from one thread; Current from any. A file that cannot be
// read, parsed or kept (it promises more memory than a GPU has) leaves the policy in force as it
// is; the reason is returned once per content, not at every look.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "agent/policy/policy.h"

namespace gpuloom {

class PolicyWatcher {
 public:
  enum class Outcome { kUnchanged, kReloaded, kRefused };
  struct Look {
    Outcome outcome = Outcome::kUnchanged;
    absl::Status reason;  // of kRefused
  };

  // An empty path means the built-in defaults, for ever.
  explicit PolicyWatcher(std::string path) : path_(std::move(path)) {}

  // GPUs against which promises are checked. Set before LoadFirst.
  void SetCapacities(std::vector<Capacity> capacities) { capacities_ = std::move(capacities); }

  // The first policy has no predecessor to keep: here a bad file is an error.
  absl::Status LoadFirst();
  Look LookAgain();

  std::shared_ptr<const Policy> Current() const;

 private:
  absl::StatusOr<Policy> Judge(const std::string& text) const;

  const std::string path_;
  std::vector<Capacity> capacities_;
  std::optional<std::string> last_content_;  // judged already; empty after a failed read
  std::string last_read_error_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Policy> current_ = std::make_shared<Policy>();
};

}  // namespace gpuloom
