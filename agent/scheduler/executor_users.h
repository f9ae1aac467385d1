// SPDX-License-Identifier: Apache-2.0
// The users that executors run as: each process has its own, with the same number as uid and gid, so that whoever takes
// over an executor owns nothing of another executor, the scheduler or the node. A number in use is locked by an
// abstract Unix socket, which the executor inherits: no other scheduler in this network namespace can use it until the
// last process that has it is gone. The search starts at a random number, so that in a wide range schedulers that do
// not see each other's locks rarely collide.
//
// Plain value; the scheduler's thread only. Needs root, and the right to change users and to signal other users'
// processes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

struct ExecutorUser {
  uint32_t id = 0;  // 0: the scheduler's own user
  channel::UniqueFd lock;
};

// What this process may do to users.
struct UserRights {
  uint32_t user = 0;
  bool can_set_user = false;   // CAP_SETUID
  bool can_set_group = false;  // CAP_SETGID
  bool can_signal = false;     // CAP_KILL
  // The lines of /proc/self/uid_map and gid_map: "INSIDE OUTSIDE COUNT" each.
  std::string user_map;
  std::string group_map;
};

UserRights ReadUserRights();

class ExecutorUsers {
 public:
  // Above the ids of people, services and containers with user namespaces (systemd's plan ends at 1,879,048,191), and
  // below 2^31, from which on some programs read a negative number. A hundred million, so that none is used twice.
  static constexpr uint32_t kFirst = 2'000'000'000;
  static constexpr uint32_t kLast = 2'099'999'999;

  // No users.
  ExecutorUsers() = default;

  // "auto": kFirst to kLast, or none where this process lacks a right to them; "none"; or "FIRST-LAST", to which it
  // must have the right. nullopt with a message.
  [[nodiscard]] static std::optional<ExecutorUsers> Choose(const std::string& choice,
                                                           const UserRights& rights,
                                                           std::string* error);

  bool any() const { return last_ != 0; }
  // Why there are none and what follows, for the log; empty with any().
  const std::string& lack() const { return lack_; }

  // Takes a user that is not in use; the scheduler's own if there are none. Returns false with a message if all are in
  // use.
  [[nodiscard]] bool Take(ExecutorUser* user, std::string* error) const;
  // Takes the user with this id, if it belongs to the range and is not in use.
  [[nodiscard]] bool TakeThis(uint32_t id, ExecutorUser* user) const;

 private:
  uint32_t first_ = 0;
  uint32_t last_ = 0;
  std::string lack_;
};

}  // namespace gpuloom::scheduler
