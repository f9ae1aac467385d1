// SPDX-License-Identifier: Apache-2.0
// Times that an agent has stored, as wall time. They are its clock's (agent/steady_clock.h), which may be far from the
// wall clock: <state>/clock.yaml says how far. Where there is none, or none of this boot, times stay as they are. Reads
// the file when it is made; then an immutable value, safe from any thread, which keeps nothing open and does not follow
// the file.
#pragma once

#include <cstdint>
#include <string>

namespace gpuloom::run {

class ShownTime {
 public:
  explicit ShownTime(const std::string& state_dir);
  // From what the machine says: its boot, the time since, and the Unix time, in milliseconds.
  ShownTime(const std::string& state_dir, const std::string& boot_id, int64_t since_boot_ms,
            int64_t wall_ms);

  // Unix time in seconds; 0, which is unknown, stays 0.
  int64_t Of(int64_t unix_s) const { return unix_s == 0 ? 0 : unix_s + ahead_s_; }

 private:
  int64_t ahead_s_ = 0;
};

}  // namespace gpuloom::run
