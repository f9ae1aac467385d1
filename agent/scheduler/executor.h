// SPDX-License-Identifier: Apache-2.0
// One executor process of a trust domain, as the scheduler holds it: process, control connection, and the ids of the
// sessions it serves. Owned by the registry; plain state, advanced by Executors on the scheduler's thread.
//
//   kStarting ── ExecutorReady ──→ kReady ── idle, fault, hang-up, does not drain ──→ kDying ──
//   reaped ──→ gone
//
// A spare executor has no domain until it is given one, in kStarting or kReady.
//
// A dying executor does not serve sessions; its domain may already have another one. What its sessions hold stays
// charged until it is reaped.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "agent/scheduler/allocation.h"
#include "agent/scheduler/child_process.h"
#include "agent/scheduler/device_snapshot.h"
#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/executor_log.h"
#include "agent/scheduler/executor_users.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/peer.h"
#include "agent/scheduler/refused_calls.h"
#include "proto/channel/region.h"

namespace gpuloom::scheduler {

class Executor {
 public:
  enum class State { kStarting, kReady, kDying };

  uint64_t id = 0;
  std::string domain;  // empty: a spare executor that has none yet (spare_executors.h)
  State state = State::kStarting;
  bool was_ready = false;
  bool lenient = false;     // started leniently, because the driver does not start fully confined
  bool steps_down = false;  // it has shown that the driver does not
  bool was_traced = false;  // a profiler may be attached, which makes launches slower
  std::string reason;       // why it is dying
  // Whose work `reason` was, if that is known. Compared only.
  const Allocation* blamed = nullptr;
  // A kernel of one of its tenants ran for too long, and it is to send ExecutorFault. `reason` says so already.
  bool ends_for_kernel = false;
  ChildProcess process;
  std::unique_ptr<ExecutorLog> log;
  ExecutorUser user;
  std::string folder;  // where it may write
  std::unique_ptr<RefusedCalls> refused_calls;
  std::unique_ptr<Peer> peer;
  StreamPriorities priorities;
  // What it reported of itself when it was ready; empty if its release did not report it.
  std::string version;
  std::string cupti;
  bool has_cupti = false;
  std::set<uint64_t> sessions;
  // Host ranges of sessions that have ended, whose arena the executor may still have mapped. They
  // stay on their allocations' accounts.
  struct Arena {
    std::shared_ptr<Allocation> allocation;
    channel::Range range;
  };
  std::map<uint64_t, Arena> arenas;
  // What its driver still uses for sessions that have ended, by memory id: for example code that
  // could not be unloaded yet. Stays on their allocations' accounts.
  struct Charge {
    std::shared_ptr<Allocation> allocation;
    uint64_t size_bytes;
  };
  std::map<uint64_t, Charge> charges;
  // kStarting: to be ready; kReady: to end because of a kernel; kDying: to exit by itself.
  Timer deadline;
  Timer idle;

  bool is_spare() const { return domain.empty(); }
  std::string Name() const {
    return is_spare() ? "spare executor" : "executor of domain " + domain;
  }
  std::string Label() const {
    return Name() + (process.pid() > 0 ? " (" + ProcessText(process.pid()) + ")" : "");
  }
};

}  // namespace gpuloom::scheduler
