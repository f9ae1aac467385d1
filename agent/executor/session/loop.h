// SPDX-License-Identifier: Apache-2.0
// The one thread that serves all tenants of this executor: reads their rings, submits, looks at
// what is done, tells them. It never blocks on CUDA or on the scheduler; what may block runs on
// workers.
//
// When there is nothing to do it spins for a moment (a tenant that works alternates between
// submitting and waiting), then says on every ring that it sleeps, looks again, and sleeps until a
// doorbell, the scheduler or a worker wakes it. While the GPU works, or a stream waits for a word, and the rings are empty it
// sleeps a sixty-fourth of the time it has waited already: a long kernel costs no core, a short one is
// seen at once.
//
// Owned by main; everything runs on the thread that calls Run.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/executor/copy/staging.h"
#include "agent/executor/device/context_memory.h"
#include "agent/executor/device/device.h"
#include "agent/executor/device/driver_room.h"
#include "agent/executor/device/internal_stream.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/device/spare_greens.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/launch/chain.h"
#include "agent/executor/launch/submitters.h"
#include "agent/executor/memory/physical_memory.h"
#include "agent/executor/module/library_cache.h"
#include "agent/executor/printing/printer.h"
#include "agent/executor/session/host_budget.h"
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/session/tenant.h"
#include "agent/executor/session/work_pool.h"
#include "agent/node/line_budget.h"

namespace gpuloom::executor {

class Session;

class Loop {
 public:
  // `device` is started, its context current on the calling thread.
  // `output` may be null: what kernels print is nobody's.
  // With `batches` false every launch goes to CUDA by itself. Negative `submit_threads`: as many as the
  // machine has processors for. `memory_limit_bytes`: DomainBudget's.
  Loop(Device* device, channel::UniqueFd control, DriverOutput* output = nullptr,
       bool batches = true, int submit_threads = -1,
       uint64_t memory_limit_bytes = DomainBudget::kDefaultBytes);
  ~Loop();

  // False with a message, which the scheduler has been told too.
  [[nodiscard]] bool Start(std::string* error);

  // Optional, after Start: readies what launches by graphs will need (chain.h).
  void ReserveGraphs() { chains_.Reserve(); }

  enum class Outcome { kSchedulerGone, kDeviceLost };
  // Says ExecutorReady, then serves until one of the two happens. After kDeviceLost every tenant
  // and the scheduler have been told, and the process must end.
  Outcome Run();

 private:
  bool Serve(uint64_t now_ns);
  // Looks for what can come at any moment, and for nothing else, for a few microseconds. True when
  // something did.
  bool Spin();
  void SendCounters(uint64_t now_ns);
  void DropEnded();
  // True when somebody is not held any more.
  bool TickQuiet(uint64_t now_ns, uint64_t idle_ns);
  bool AnythingAtDevice() const;
  bool AnyWordWatched() const;
  bool AnyWordOverdue() const;
  // How long to sleep, in nanoseconds; negative: until something happens; 0: look again.
  int64_t SleepNs(uint64_t idle_ns) const;
  bool AnnounceSleep();
  void Awake();
  // Waits for events and handles them; 0: without waiting.
  void HandleEvents(int64_t timeout_ns, uint64_t now_ns);
  void SleepOnDoorbells(int64_t timeout_ns, uint64_t now_ns);
  void OnOrder(control::Incoming* in, uint64_t now_ns);
  void On(const control::AddSession& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::RemoveSession& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::MemoryReclaim& order, control::Incoming* in, uint64_t now_ns);
  void TellFault();
  // To the log; returns it.
  std::string LogDriverErrors();
  Session* FindSession(uint64_t id) const;

  Device* device_;
  DriverOutput* output_;
  // Looked at while awake: orders, workers, and who has hung up. A tenant rings only when we sleep, so its
  // doorbell is looked at only then: who rings without end wakes us in vain, and delays nobody.
  channel::UniqueFd epoll_;
  channel::UniqueFd sleeping_epoll_;  // that and the doorbells
  channel::UniqueFd wake_;
  SchedulerLink scheduler_;
  InternalStream internal_;
  Staging staging_;
  SharedMemory shared_;
  const uint64_t spin_ns_;
  WorkPool modules_;
  WorkPool memory_;
  WorkPool quiet_work_;
  Quiet quiet_;
  GraphRoom graphs_;
  SpareGreens greens_;
  Chains chains_;
  Submitters submitters_;
  std::vector<SubmitJobPtr> handed_;  // of Serve
  DriverRoom room_;
  bool several_at_work_ = false;
  const bool batches_;
  Printer printer_;
  std::vector<Quiet::Party> parties_;  // of TickQuiet
  Tenants tenants_;
  const std::shared_ptr<DomainBudget> budget_;
  ContextMemory context_memory_;
  LibraryCache libraries_;
  std::vector<std::unique_ptr<Session>> sessions_;
  bool watching_write_ = false;
  LineBudget driver_lines_;
  uint64_t last_counters_ns_ = 0;
  uint64_t chunks_told_ = 0;
};

}  // namespace gpuloom::executor
