// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/executor_users.h"

#include <errno.h>
#include <linux/capability.h>
#include <stddef.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <climits>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace gpuloom::scheduler {
namespace {

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Numbers and one dash, nothing before, between or behind.
bool ParseRange(const std::string& text, uint32_t* first, uint32_t* last) {
  const char* const end = text.data() + text.size();
  const auto [dash, error] = std::from_chars(text.data(), end, *first);
  if (error != std::errc() || dash == end || *dash != '-') return false;
  const auto [rest, last_error] = std::from_chars(dash + 1, end, *last);
  return last_error == std::errc() && rest == end;
}

// Returns true if one line of the map contains the whole range.
bool IsMapped(const std::string& map, uint32_t first, uint32_t last) {
  std::istringstream lines(map);
  for (uint64_t inside, outside, count; lines >> inside >> outside >> count;) {
    if (inside <= first && last < inside + count) return true;
  }
  return false;
}

// What is missing for using these users; empty if nothing is.
std::string Missing(const UserRights& rights, uint32_t first, uint32_t last) {
  if (rights.user != 0) return "the scheduler is not root";
  std::string missing;
  for (const auto& [is_had, name] :
       {std::pair(rights.can_set_user, "CAP_SETUID"), std::pair(rights.can_set_group, "CAP_SETGID"),
        std::pair(rights.can_signal, "CAP_KILL")}) {
    if (!is_had) missing += (missing.empty() ? "the scheduler lacks " : ", ") + std::string(name);
  }
  if (!missing.empty()) return missing;
  const std::string range = std::to_string(first) + "-" + std::to_string(last);
  if (!IsMapped(rights.user_map, first, last) || !IsMapped(rights.group_map, first, last)) {
    return "its user namespace does not map " + range + " (/proc/self/uid_map, gid_map)";
  }
  return {};
}

// Invalid, with errno EADDRINUSE, if another process has the lock. Abstract names belong to the
// network namespace and vanish with the last descriptor, so a killed process leaves no file behind.
channel::UniqueFd Lock(uint32_t user) {
  // Never listens, and a stream socket cannot send without a connection: whoever has it can only
  // keep it.
  channel::UniqueFd lock(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                              "gpuloom-executor-user-%u", user);
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  if (lock.valid() && bind(lock.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    const int why = errno;
    lock.Reset();
    errno = why;
  }
  return lock;
}

}  // namespace

UserRights ReadUserRights() {
  UserRights rights;
  rights.user = geteuid();
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (syscall(SYS_capget, &header, sets) == 0) {
    // All capabilities here are below 32, in the first of the two sets.
    const auto has = [&](int capability) { return (sets[0].effective >> capability & 1) != 0; };
    rights.can_set_user = has(CAP_SETUID);
    rights.can_set_group = has(CAP_SETGID);
    rights.can_signal = has(CAP_KILL);
  }
  rights.user_map = ReadFile("/proc/self/uid_map");
  rights.group_map = ReadFile("/proc/self/gid_map");
  return rights;
}

std::optional<ExecutorUsers> ExecutorUsers::Choose(const std::string& choice,
                                                   const UserRights& rights, std::string* error) {
  ExecutorUsers users;
  const std::string follows =
      ": executors run as user " + std::to_string(rights.user) +
      ", as the scheduler does; docs/design/taken-over-executor.md says what a "
      "taken-over one then reaches";
  if (choice == "none") {
    users.lack_ = "--executor-users none" + follows;
    return users;
  }
  uint32_t first = kFirst;
  uint32_t last = kLast;
  const bool is_automatic = choice == "auto";
  if (!is_automatic && !ParseRange(choice, &first, &last)) {
    *error =
        "--executor-users " + choice + ": auto, none, or FIRST-LAST as in 2000000000-2000000999";
    return std::nullopt;
  }
  // The system calls treat the highest number as "none".
  if (first == 0 || first > last || last == UINT_MAX ||
      (first <= rights.user && rights.user <= last)) {
    *error = "--executor-users " + choice + ": from 1 to " + std::to_string(UINT_MAX - 1) +
             ", the lower one first, and not the scheduler's own user " +
             std::to_string(rights.user);
    return std::nullopt;
  }
  // With "auto" a lack is no mistake: the scheduler says what follows, and works.
  const std::string missing = Missing(rights, first, last);
  if (missing.empty()) {
    users.first_ = first;
    users.last_ = last;
  } else if (is_automatic) {
    users.lack_ = "no users for executors, because " + missing + follows;
  } else {
    *error = "--executor-users " + choice + ": " + missing + "; give it that, or say auto or none";
    return std::nullopt;
  }
  return users;
}

bool ExecutorUsers::TakeThis(uint32_t id, ExecutorUser* user) const {
  if (!any() || id < first_ || id > last_) return false;
  *user = ExecutorUser{id, Lock(id)};
  return user->lock.valid();
}

bool ExecutorUsers::Take(ExecutorUser* user, std::string* error) const {
  *user = ExecutorUser{};
  if (!any()) return true;
  const uint64_t count = uint64_t{last_} - first_ + 1;
  uint64_t begin = 0;
  // Without random numbers the search begins at the first one, which is as good but for collisions.
  if (getrandom(&begin, sizeof(begin), GRND_NONBLOCK) != sizeof(begin)) begin = 0;
  // As many as one network namespace can have in use, and more.
  constexpr uint64_t kMostTries = 65'536;
  for (uint64_t i = 0; i < std::min(count, kMostTries); ++i) {
    const auto id = static_cast<uint32_t>(first_ + (begin % count + i) % count);
    channel::UniqueFd lock = Lock(id);
    if (lock.valid()) {
      user->id = id;
      user->lock = std::move(lock);
      return true;
    }
    // Anything else, such as no descriptors, would fail for every number.
    if (errno != EADDRINUSE) {
      *error = "scheduler: cannot lock user " + std::to_string(id) +
               " for an executor: " + strerror(errno);
      return false;
    }
  }
  *error = "scheduler: all users of --executor-users " + std::to_string(first_) + "-" +
           std::to_string(last_) + " have a living executor: name a wider range";
  return false;
}

}  // namespace gpuloom::scheduler
