// SPDX-License-Identifier: Apache-2.0
// The parts of a loop (loop.h) with one session, run round by round by a test, a fuzzer or a benchmark:
// the real session, dispatcher and workers, and a scheduler that grants memory. One thread only.
//
//   rounds.Begin(rounds.NewOrder(…)); rounds.tenant().TryPost<…>(…); rounds.Round(now_ns); … rounds.End(now_ns);
#pragma once

#include <functional>
#include <memory>

#include "agent/executor/copy/staging.h"
#include "agent/executor/device/context_memory.h"
#include "agent/executor/device/device.h"
#include "agent/executor/device/driver_room.h"
#include "agent/executor/device/internal_stream.h"
#include "agent/executor/device/object_upkeep.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/device/spare_greens.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/launch/chain.h"
#include "agent/executor/memory/physical_memory.h"
#include "agent/executor/module/library_cache.h"
#include "agent/executor/printing/printer.h"
#include "agent/executor/session/host_budget.h"
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/session/session.h"
#include "agent/executor/session/tenant.h"
#include "agent/executor/session/time_sharing.h"
#include "agent/executor/session/work_pool.h"
#include "agent/executor/testing/grants.h"
#include "agent/executor/testing/regions.h"

namespace gpuloom::executor {

class TestingRounds {
 public:
  // Runs a part of a round, and returns what the part returns: whether there was anything to do.
  using Runner = std::function<bool(const std::function<bool()>&)>;
  struct Habits {
    int threads = 0;  // of each pool; 0: work runs inside Post
    uint64_t slice_ns = UINT64_MAX;
    bool batches = false;
    Runner run = [](const std::function<bool()>& part) { return part(); };
  };
  TestingRounds(const Driver& driver, Habits habits);
  ~TestingRounds();

  // The previous session and its arena must be gone. A session that cannot be created ends the process.
  void Begin(const control::AddSession& order);
  // A range of each kind of this size, apart from other orders' ranges, as a scheduler would choose them.
  control::AddSession NewOrder(uint64_t device_bytes, uint64_t host_bytes);

  // Does what a loop does in one round. Returns true if there was anything to do.
  bool Round(uint64_t now_ns);
  // Runs something else that a loop does, like the parts of a round.
  void Part(const std::function<bool()>& part) { habits_.run(part); }
  // Returns true if nothing waits for a quiet moment.
  bool IsQuiet() const { return quiet_.empty() && !quiet_.Running(); }
  void DropSession() { session_.reset(); }

  Session* session() { return session_.get(); }
  TestingRegions& tenant() { return tenant_; }
  const TestingGrants& grants() const { return grants_; }

 private:
  void AnswerQuestions();
  bool Quieten(uint64_t now_ns);

  // Workers make its context current when they start.
  struct StartedDevice : Device {
    explicit StartedDevice(const Driver& driver);
  };

  const Habits habits_;
  StartedDevice device_;
  InternalStream internal_{&device_};
  Staging staging_;
  SharedMemory shared_;
  TestingGrants grants_;
  control::Connection scheduler_;
  const std::unique_ptr<SchedulerLink> link_;
  const channel::UniqueFd wake_;
  WorkPool modules_, memory_, quiet_work_;
  Quiet quiet_{&quiet_work_};
  ObjectUpkeep upkeep_{&device_, &memory_, &quiet_};
  const std::shared_ptr<DomainBudget> budget_ =
      std::make_shared<DomainBudget>(DomainBudget::kDefaultBytes);
  std::unique_ptr<ContextMemory> context_memory_;
  LibraryCache libraries_{budget_};
  GraphRoom graphs_;
  SpareGreens greens_;
  Partitions partitions_{&device_, &quiet_, link_.get()};
  Chains chains_{&device_, &modules_, &quiet_, &graphs_};
  Printer printer_{&device_, &memory_, nullptr};
  Tenants tenants_;
  DriverRoom room_;
  TimeSharing sharing_{/*enforces=*/false};
  uint64_t sessions_ = 0;
  uint64_t device_end_, host_end_;  // end of the ranges given so far
  TestingRegions tenant_;
  std::unique_ptr<Session> session_;
};

}  // namespace gpuloom::executor
