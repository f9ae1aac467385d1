// SPDX-License-Identifier: Apache-2.0
// What a scheduler is told by its command line (command_line.h), and by tests. Plain values; they do not change while it
// runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "agent/scheduler/executor_users.h"

namespace gpuloom::scheduler {

struct Options {
  std::string state_dir;
  std::string cuda_library;  // passed to executors
  std::string executor_path;
  std::string executor_log_level = "info";  // one of LogLevel's names
  ExecutorUsers executor_users;
  std::string executor_folders = "/tmp";  // where each executor has its own folder
  // Of the node's memory, for the tenants of one executor; 0: the executor's default.
  uint64_t executor_memory_bytes = 0;
  std::chrono::milliseconds idle_timeout{60'000};   // of an executor without sessions
  std::chrono::milliseconds drain_timeout{10'000};  // for a session's work after its end
  bool exit_when_unused = false;
  // Executors that are started before a domain needs them.
  uint32_t spare_executors = 0;
  // See SpareMemory. Without it, every piece of memory belongs to a session.
  bool make_spare_memory = false;
  // Creating a context takes half a second on real hardware, several when the machine has just
  // started.
  std::chrono::milliseconds start_timeout{60'000};
  std::string version;  // this program's release, for queries
  // Extra time beyond drain_timeout before the executor itself is considered stuck.
  std::chrono::milliseconds drain_grace{2'000};
  // An executor whose connection is closed exits by itself; if it has not after this time, it is killed.
  std::chrono::milliseconds exit_grace{3'000};
  // How much of the device's time an executor whose turn has ended may have beside other domains: see Turns.
  std::chrono::milliseconds overrun_limit{300'000};
  // How long a trust domain that has nothing is remembered. Longer than the agent's ledger keeps its last report, so
  // that the domain's counters go on if it comes back.
  std::chrono::milliseconds domain_linger{600'000};
  // For executors to begin a trace and to write what is left, and for a tenant to receive its own trace. Shorter than
  // the requester waits for an answer.
  std::chrono::milliseconds trace_patience{10'000};
};

}  // namespace gpuloom::scheduler
