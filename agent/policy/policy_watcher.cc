#include "agent/policy/policy_watcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "agent/cat.h"
#include "agent/policy/policy_parser.h"

namespace gpuloom {
namespace {

// A ConfigMap holds at most 1 MiB.
constexpr size_t kMaxPolicyBytes = size_t{1} << 20;

absl::StatusOr<std::string> ReadPolicyFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return absl::NotFoundError(Cat("policy ", path, ": ", strerror(errno)));
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

absl::StatusOr<Policy> PolicyWatcher::Judge(const std::string& text) const {
  absl::StatusOr<Policy> policy = ParsePolicy(path_, text);
  if (!policy.ok()) return policy;
  for (const Capacity& capacity : capacities_) {
    if (absl::Status status = CheckPromise(*policy, capacity); !status.ok()) return status;
  }
  return policy;
}

absl::Status PolicyWatcher::LoadFirst() {
  if (path_.empty()) return absl::OkStatus();
  const absl::StatusOr<std::string> text = ReadPolicyFile(path_);
  if (!text.ok()) return text.status();
  absl::StatusOr<Policy> policy = Judge(*text);
  if (!policy.ok()) return policy.status();
  last_content_ = *text;
  const std::lock_guard lock(mutex_);
  current_ = std::make_shared<const Policy>(*std::move(policy));
  return absl::OkStatus();
}

PolicyWatcher::Look PolicyWatcher::LookAgain() {
  if (path_.empty()) return {};
  const absl::StatusOr<std::string> text = ReadPolicyFile(path_);
  if (!text.ok()) {
    const std::string message(text.status().message());
    if (message == last_read_error_) return {};
    last_read_error_ = message;
    return {Outcome::kRefused, text.status()};
  }
  last_read_error_.clear();
  if (last_content_ == *text) return {};
  last_content_ = *text;
  absl::StatusOr<Policy> policy = Judge(*text);
  if (!policy.ok()) return {Outcome::kRefused, policy.status()};
  const std::lock_guard lock(mutex_);
  current_ = std::make_shared<const Policy>(*std::move(policy));
  return {Outcome::kReloaded, absl::OkStatus()};
}

std::shared_ptr<const Policy> PolicyWatcher::Current() const {
  const std::lock_guard lock(mutex_);
  return current_;
}

}  // namespace gpuloom
