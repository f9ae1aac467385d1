// SPDX-License-Identifier: Apache-2.0
// One executor process of a trust domain, as the scheduler holds it: process, control connection,
// and the ids of the sessions it serves. Owned by Scheduler; moved along by executor_flow.cc.
//
//   kStarting ── ExecutorReady ──→ kReady ── idle, fault, hang-up, does not drain ──→ kDying ──
//   reaped ──→ gone
//
// A spare one has no domain before it is given one, in kStarting or kReady.
//
// A dying executor no longer serves sessions; its domain may already have another. What its
// sessions hold stays charged until it is reaped.
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
  std::string domain;  // empty: a spare one's, which is given none yet (spare_flow.cc)
  State state = State::kStarting;
  bool was_ready = false;
  bool lenient = false;     // started leniently, because the driver does not start fully confined
  bool steps_down = false;  // it has shown that
  bool was_traced = false;  // a profiler may be attached, which makes launches slower
  std::string reason;       // why it is dying
  const Allocation* blamed = nullptr;  // whose work that was, if it is known; compared only
  bool ends_for_kernel =
      false;  // one of its tenants' ran for too long; it is to say ExecutorFault. `reason` says so already
  ChildProcess process;
  std::unique_ptr<ExecutorLog> log;
  ExecutorUser user;
  std::string folder;  // the one it may write to
  std::unique_ptr<RefusedCalls> refused_calls;
  std::unique_ptr<Peer> peer;
  StreamPriorities priorities;
  // What it said of itself when it was ready; empty: an older one.
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
  Timer deadline;  // kStarting: to be ready; kReady: to end for a kernel; kDying: to exit by itself
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
