// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy_watcher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/cat.h"
#include "agent/policy/last_good_policy.h"
#include "agent/policy/policy_parser.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// A ConfigMap holds at most 1 MiB.
constexpr size_t kMaxPolicyBytes = size_t{1} << 20;

// Who runs on must not wait for a pipe's other end; who checks a policy may be given one.
enum class From { kFile, kAnything };

absl::StatusOr<std::string> ReadPolicyFile(const std::string& path, From from) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | (from == From::kFile ? O_NONBLOCK : 0));
  if (fd < 0) return absl::NotFoundError(Cat("policy ", path, ": ", strerror(errno)));
  struct stat info = {};
  if (from == From::kFile && (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))) {
    close(fd);
    return absl::InvalidArgumentError(Cat("policy ", path, ": is not a file"));
  }
  std::string text;
  char buffer[16384];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof(buffer));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      close(fd);
      return absl::InternalError(Cat("policy ", path, ": ", strerror(error)));
    }
    if (got == 0) break;
    text.append(buffer, static_cast<size_t>(got));
    if (text.size() > kMaxPolicyBytes) {
      close(fd);
      return absl::InvalidArgumentError(Cat("policy ", path, ": larger than 1MiB"));
    }
  }
  close(fd);
  return text;
}

}  // namespace

absl::Status CheckPolicyFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadPolicyFile(path, From::kAnything);
  return text.ok() ? ParsePolicy(path, *text).status() : text.status();
}

absl::StatusOr<Policy> PolicyWatcher::Judge(const std::string& name,
                                            const std::string& text) const {
  absl::StatusOr<Policy> policy = ParsePolicy(name, text);
  if (!policy.ok()) return policy;
  for (const Capacity& capacity : capacities_) {
    if (absl::Status status = CheckPromise(*policy, capacity); !status.ok()) return status;
  }
  return policy;
}

PolicyWatcher::Look PolicyWatcher::LoadFirst() {
  if (path_.empty()) {
    Use(Policy());
    return {Outcome::kReloaded, "", ""};
  }
  const absl::StatusOr<std::string> kept =
      kept_path_.empty() ? absl::NotFoundError("") : KeptPolicy(kept_path_);
  in_force_ = "; no policy is in force";
  if (kept.ok()) {
    absl::StatusOr<Policy> policy = Judge(kept_path_, *kept);
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
  return ReadFile();
}

PolicyWatcher::Look PolicyWatcher::LookAgain() {
  if (path_.empty()) return {};
  return ReadFile();
}

PolicyWatcher::Look PolicyWatcher::ReadFile() {
  const absl::StatusOr<std::string> text = ReadPolicyFile(path_, From::kFile);
  if (!text.ok()) {
    const bool is_new = std::string(text.status().message()) != last_read_error_;
    last_read_error_ = std::string(text.status().message());
    Look look = Refuse(text.status());
    if (!is_new) look = {};
    look.not_kept = Keep();
    return look;
  }
  const bool was_unreadable = !last_read_error_.empty();
  last_read_error_.clear();
  if (last_content_ == *text) {
    if (was_unreadable) {
      const MutexLock lock(mutex_);
      trouble_ = content_trouble_;
    }
    return {Outcome::kUnchanged, "", Keep()};
  }
  last_content_ = *text;
  absl::StatusOr<Policy> policy = Judge(path_, *text);
  if (!policy.ok()) {
    Look look = Refuse(policy.status());
    content_trouble_ = look.reason;
    look.not_kept = Keep();
    return look;
  }
  content_trouble_.clear();
  in_force_ = "; the old policy stays in force";
  is_kept_ = is_kept_ && good_content_ == *text;
  good_content_ = *text;
  Use(*std::move(policy));
  return {Outcome::kReloaded, "", Keep()};
}

void PolicyWatcher::Use(Policy policy) {
  const MutexLock lock(mutex_);
  current_ = std::make_shared<const Policy>(std::move(policy));
  trouble_.clear();
}

PolicyWatcher::Look PolicyWatcher::Refuse(const absl::Status& reason) {
  Look look{Outcome::kRefused, Cat(std::string(reason.message()), in_force_), ""};
  const MutexLock lock(mutex_);
  trouble_ = look.reason;
  return look;
}

std::string PolicyWatcher::Keep() {
  if (kept_path_.empty() || is_kept_ || !good_content_.has_value()) return "";
  const absl::Status status = KeepPolicy(kept_path_, *good_content_);
  is_kept_ = status.ok();
  const std::string not_kept = status.ok() ? ""
                                           : Cat("policy: cannot be kept for the next start: ",
                                                 std::string(status.message()));
  if (not_kept == last_not_kept_) return "";
  last_not_kept_ = not_kept;
  return not_kept;
}

std::shared_ptr<const Policy> PolicyWatcher::Current() const {
  const MutexLock lock(mutex_);
  return current_;
}

std::string PolicyWatcher::Trouble() const {
  const MutexLock lock(mutex_);
  return trouble_;
}

}  // namespace gpuloom
