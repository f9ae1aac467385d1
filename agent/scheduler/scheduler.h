// SPDX-License-Identifier: Apache-2.0
// Coordinates allocations, sessions, executors and the control socket of one GPU, and owns them all. Everything runs on
// the event loop's thread; nothing blocks. What a tenant or an executor sends is checked before it changes anything,
// and costs at most its own session or its own domain.
//
// What it does is done by its parts, each in a file of its name (docs/design/scheduler-parts.md). The scheduler itself
// starts, ends, and connects them.
#pragma once

#include <string>

#include "agent/scheduler/accounting.h"
#include "agent/scheduler/allocations.h"
#include "agent/scheduler/controllers.h"
#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/executor_launcher.h"
#include "agent/scheduler/executors.h"
#include "agent/scheduler/long_kernels.h"
#include "agent/scheduler/memory_grants.h"
#include "agent/scheduler/memory_reclaims.h"
#include "agent/scheduler/operator_traces.h"
#include "agent/scheduler/own_traces.h"
#include "agent/scheduler/queries.h"
#include "agent/scheduler/reports.h"
#include "agent/scheduler/scheduler_port.h"
#include "agent/scheduler/session_addresses.h"
#include "agent/scheduler/sessions.h"
#include "agent/scheduler/shares.h"
#include "agent/scheduler/spare_executors.h"
#include "agent/scheduler/trust_domains.h"
#include "agent/scheduler/turn_messages.h"
#include "agent/scheduler/turns.h"
#include "proto/control/connection.h"

namespace gpuloom::scheduler {

class Scheduler final : private SchedulerPort {
 public:
  // `loop` and `device` outlive it.
  Scheduler(EventLoop* loop, Device* device, Options options);

  // Creates the control socket. Returns false with a message.
  [[nodiscard]] bool Listen(std::string* error);
  // Called on SIGCHLD.
  void OnChildExit();
  // Call when LogsMore has changed: executors follow it, at once or when they are ready.
  void LetExecutorsLog();
  // Ends every session and executor, then stops the loop.
  void Shutdown();

 private:
  // SchedulerPort
  [[nodiscard]] Executor* ExecutorFor(const std::string& domain, std::string* error) override;
  void LoseExecutor(Executor* executor, End end, const std::string& reason,
                    const std::string& for_neighbours) override;
  void ArmIdleTimer(Executor* executor) override;
  bool Unused() const override;
  void StopIfUnused() override;

  // Each passes on to the part that handles it.
  void OnExecutorMessage(Executor* executor, control::Incoming& in);
  void OnConnection(const AllocationPtr& allocation, TenantConnection connection);

  // In the order in which they may call each other: a part those above it.
  Turns turns_;
  TurnMessages turn_messages_{this, &turns_};
  TrustDomains trust_domains_{this};
  Accounting accounting_{this, &turns_, trust_domains_.book()};
  OwnTraces own_traces_{this};
  OperatorTraces operator_traces_{this, &accounting_, &own_traces_};
  SpareExecutors spare_executors_;
  MemoryReclaims memory_reclaims_{this};
  MemoryGrants memory_grants_{this, &spare_executors_, &memory_reclaims_};
  LongKernels long_kernels_{this, &turns_};
  Shares shares_{this};
  SessionAddresses session_addresses_{this};
  Sessions sessions_{this,
                     &accounting_,
                     &own_traces_,
                     &operator_traces_,
                     &memory_reclaims_,
                     &memory_grants_,
                     &session_addresses_};
  ExecutorLauncher launcher_{this};
  Executors executors_;
  Queries queries_{this, &memory_reclaims_};
  Reports reports_{this, &turns_, &trust_domains_, &accounting_, &memory_grants_, &executors_};
  Allocations allocations_;
  Controllers controllers_{this, &operator_traces_, &shares_, &reports_, &allocations_};

  // Nobody has connected for so long that nobody will.
  bool waited_ = false;
  Timer unused_timer_;
};

}  // namespace gpuloom::scheduler
