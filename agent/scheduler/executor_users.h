// SPDX-License-Identifier: Apache-2.0
// The users that executors run as: one for each process, uid and gid the same number, so that
// whoever takes over an executor owns nothing of another's, of the scheduler's or of the node's. A
// number in use is locked by an abstract Unix socket, which the executor inherits: no other
// scheduler in this network namespace can use it until the last process that has it is gone. The
// search starts at a random number, so that schedulers that do not see each other's locks rarely
// collide in a wide range.
//
// Plain value; one thread. Needs root, and the right to change users and to signal others.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

struct ExecutorUser {
  uint32_t id = 0;  // 0: the scheduler's own
  channel::UniqueFd lock;
};

// What this process may do to users.
struct UserRights {
  uint32_t user = 0;
  bool can_set_user = false;   // CAP_SETUID
  bool can_set_group = false;  // CAP_SETGID
  bool can_signal = false;     // CAP_KILL
  // As /proc/self/uid_map and gid_map say it: "INSIDE OUTSIDE COUNT" a line.
  std::string user_map;
  std::string group_map;
};

UserRights ReadUserRights();

class ExecutorUsers {
 public:
  // Above the ids of people, services and containers with user namespaces (systemd's plan ends at
  // 1,879,048,191), below 2^31, which some programs read as negative. So many that none comes twice.
  static constexpr uint32_t kFirst = 2'000'000'000;
  static constexpr uint32_t kLast = 2'099'999'999;

  // No users.
  ExecutorUsers() = default;

  // "auto": the above, or none where this process lacks a right to them; "none"; or "FIRST-LAST",
  // which it must have the right to. nullopt with a message.
  [[nodiscard]] static std::optional<ExecutorUsers> Choose(const std::string& choice,
                                                           const UserRights& rights,
                                                           std::string* error);

  bool any() const { return last_ != 0; }
  // Why there are none and what follows, for the log; empty with any().
  const std::string& lack() const { return lack_; }

  // Takes one that is not in use; the scheduler's own if there are none. Returns false with a
  // message if all are in use.
  [[nodiscard]] bool Take(ExecutorUser* user, std::string* error) const;
  // Takes this one, if it is one of them and not in use.
  [[nodiscard]] bool TakeThis(uint32_t id, ExecutorUser* user) const;

 private:
  uint32_t first_ = 0;
  uint32_t last_ = 0;
  std::string lack_;
};

}  // namespace gpuloom::scheduler
