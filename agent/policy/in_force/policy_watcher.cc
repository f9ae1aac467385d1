// SPDX-License-Identifier: Apache-2.0
// There are three contents: last_content_, which was judged last, good or not; good_content_, that of the policy in
// force; and the one at kept_path_, which follows good_content_ as soon as it can be written there. Each trouble is
// reported once; whatever may heal is tried again at every look.
#include "agent/policy/in_force/policy_watcher.h"

#include "agent/cat.h"
#include "agent/identity/kept_text.h"
#include "agent/policy/policy_file.h"
#include "agent/policy/policy_parser.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// `name` is the file's in messages.
absl::StatusOr<Policy> Parse(const std::string& name, const std::string& text,
                             EmptyText empty = EmptyText::kMistake) {
  std::string error;
  std::optional<Policy> policy = ParsePolicy(name, text, &error, empty);
  if (!policy) return absl::InvalidArgumentError(error);
  return *std::move(policy);
}

}  // namespace

absl::Status CheckPolicyFile(const std::string& path) {
  std::string error;
  const std::optional<std::string> text = ReadPolicyFile(path, PolicySource::kAnything, &error);
  if (!text) return absl::InvalidArgumentError(error);
  return Parse(path, *text).status();
}

PolicyWatcher::LoadResult PolicyWatcher::LoadFirst() {
  if (path_.empty()) {
    Use(Policy());
    return {Outcome::kReloaded, "", ""};
  }
  // The last good policy first, so that one is in force if the file turns out to be wrong. If the
  // file is right, it takes over at once.
  TakeKept();
  return ReadFile();
}

void PolicyWatcher::TakeKept() {
  const absl::StatusOr<std::string> kept =
      kept_path_.empty() ? absl::NotFoundError("") : KeptText(kept_path_);
  is_kept_unread_ = MayBeWhole(kept.status());
  in_force_ = "; no policy is in force";
  if (kept.ok()) {
    absl::StatusOr<Policy> policy = Parse(kept_path_, *kept, EmptyText::kNoRules);
    if (policy.ok()) {
      good_content_ = *kept;
      is_kept_ = true;
      in_force_ = Cat("; the last good policy stays in force: ", kept_path_);
      Use(*std::move(policy));
    } else {
      in_force_ += Cat(", because the last good one is refused as well: ",
                       std::string(policy.status().message()));
    }
  } else if (absl::IsNotFound(kept.status())) {
    in_force_ += ", because there has been no good one";
  } else {
    in_force_ +=
        Cat(", because the last good one cannot be used: ", std::string(kept.status().message()));
  }
  if (Current() == nullptr) in_force_ += "; this node offers no slots until the file is right";
}

PolicyWatcher::LoadResult PolicyWatcher::Reload() {
  if (path_.empty()) return {};
  if (is_kept_unread_ && Current() == nullptr) {
    TakeKept();
    // The file is judged again: what is said of it ends with what is in force now.
    if (Current() != nullptr) {
      last_content_.reset();
      last_read_error_.clear();
    }
  }
  return ReadFile();
}

// Three outcomes: the file cannot be read, it is what was judged already, or it is new and is
// judged. Each of them tries to keep what is not kept yet.
PolicyWatcher::LoadResult PolicyWatcher::ReadFile() {
  std::string error;
  const std::optional<std::string> text = ReadPolicyFile(path_, PolicySource::kFile, &error);
  if (!text) {
    // The same reason is logged only once, but stays in Trouble().
    const bool is_new = error != last_read_error_;
    last_read_error_ = error;
    LoadResult result = Refuse(error);
    if (!is_new) result = {};
    result.not_kept = Keep();
    return result;
  }
  const bool was_unreadable = !last_read_error_.empty();
  last_read_error_.clear();
  if (last_content_ == *text) {
    // It can be read again and is what it was: its own trouble, or none, takes the place of the
    // other.
    if (was_unreadable) {
      const MutexLock lock(mutex_);
      trouble_ = content_trouble_;
    }
    return {Outcome::kUnchanged, "", Keep()};
  }
  last_content_ = *text;
  absl::StatusOr<Policy> policy = Parse(path_, *text);
  if (!policy.ok()) {
    LoadResult result = Refuse(std::string(policy.status().message()));
    content_trouble_ = result.reason;
    result.not_kept = Keep();
    return result;
  }
  content_trouble_.clear();
  in_force_ = "; the old policy stays in force";
  // The kept one is as good as new where a refused file was only put back.
  is_kept_ = is_kept_ && good_content_ == *text;
  good_content_ = *text;
  Use(*std::move(policy));
  return {Outcome::kReloaded, "", Keep()};
}

// Judges promises before it takes the lock: readers wait for a swap of pointers only.
void PolicyWatcher::Use(Policy policy) {
  std::map<std::string, std::vector<ImpossibleRule>> impossible;
  for (const Capacity& capacity : capacities_) {
    std::vector<ImpossibleRule> broken = ImpossibleRules(policy, capacity);
    if (!broken.empty()) impossible[capacity.gpu] = std::move(broken);
  }
  const MutexLock lock(mutex_);
  current_ = std::make_shared<const Policy>(std::move(policy));
  ++generation_;
  trouble_.clear();
  impossible_ = std::move(impossible);
}

PolicyWatcher::LoadResult PolicyWatcher::Refuse(const std::string& reason) {
  LoadResult result{Outcome::kRefused, reason + in_force_, ""};
  const MutexLock lock(mutex_);
  trouble_ = result.reason;
  return result;
}

std::string PolicyWatcher::Keep() {
  if (kept_path_.empty() || is_kept_ || !good_content_.has_value()) return "";
  const absl::Status status = KeepText(kept_path_, *good_content_);
  is_kept_ = status.ok();
  std::string not_kept = status.ok() ? ""
                                     : Cat("policy: cannot be kept for the next start: ",
                                           std::string(status.message()));
  // A full disk is reported once, and once more when the reason changes.
  if (not_kept == last_not_kept_) return "";
  last_not_kept_ = not_kept;
  return not_kept;
}

std::shared_ptr<const Policy> PolicyWatcher::Current() const {
  const MutexLock lock(mutex_);
  return current_;
}

uint64_t PolicyWatcher::Generation() const {
  const MutexLock lock(mutex_);
  return generation_;
}

std::string PolicyWatcher::Trouble() const {
  const MutexLock lock(mutex_);
  return trouble_;
}

std::map<std::string, std::vector<ImpossibleRule>> PolicyWatcher::Impossible() const {
  const MutexLock lock(mutex_);
  return impossible_;
}

std::string PolicyWatcher::ImpossibleText() const {
  const std::map<std::string, std::vector<ImpossibleRule>> impossible = Impossible();
  if (impossible.empty()) return "";
  size_t others = 0;
  for (const auto& [gpu, broken] : impossible) others += broken.size();
  // The one that the line shows.
  --others;
  return Cat("policy: in force, but for what is impossible here, whose pods are refused: ",
             impossible.begin()->second.front().message,
             others == 0 ? "" : Cat(" (and ", others, " more: gpuloom policy show)"));
}

}  // namespace gpuloom
