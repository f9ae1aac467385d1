// SPDX-License-Identifier: Apache-2.0
// The one thread that serves all tenants of this executor: reads their rings, submits work, polls
// for completion, publishes results. It never blocks on CUDA or on the scheduler; what may block
// runs on workers.
//
// When there is nothing to do it spins for a moment (an active tenant alternates between submitting and waiting),
// then announces on every ring that it sleeps, checks again, and sleeps until a doorbell, the scheduler or a
// worker wakes it. While the GPU is working, or a stream waits for a word, and the rings are empty, it sleeps through most
// of what such waits took lately (wait_history.h), and otherwise a sixty-fourth of the time it has been waiting: long
// kernels do not cost a core, short ones are noticed at once. When a program that thinks for about as long each time is
// expected to send its next command (think_times.h), it is awake, too.
//
// Owned by Serve (process/service.h); everything runs on the thread that calls Run.
#pragma once

#include <memory>
#include <string>
#include <vector>

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
#include "agent/executor/launch/submitters.h"
#include "agent/executor/memory/physical_memory.h"
#include "agent/executor/module/library_cache.h"
#include "agent/executor/printing/printer.h"
#include "agent/executor/session/host_budget.h"
#include "agent/executor/session/long_kernels.h"
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/session/tenant.h"
#include "agent/executor/session/time_sharing.h"
#include "agent/executor/session/turns.h"
#include "agent/executor/session/work_pool.h"
#include "agent/executor/trace/tracer.h"
#include "agent/node/line_budget.h"
#include "proto/control/trace_messages.h"
#include "proto/sync/wait_history.h"

namespace gpuloom::executor {

class Session;

class Loop {
 public:
  // `device` is started, its context current on the calling thread. `output` may be null: kernels' printf output is
  // then not delivered. With `batches` false every launch goes to CUDA by itself. Negative `submit_threads`: as many as
  // suit the machine's processors. `memory_limit_bytes`: DomainBudget's. Without `shares` every session submits without
  // limits (time_sharing.h). `means`, for traces, outlives this.
  Loop(Device* device, channel::UniqueFd control, DriverOutput* output = nullptr,
       bool batches = true, int submit_threads = -1,
       uint64_t memory_limit_bytes = DomainBudget::kDefaultBytes, bool shares = true,
       const TraceMeans* means = nullptr);
  ~Loop();

  // Returns false with a message, which has also been sent to the scheduler.
  [[nodiscard]] bool Start(std::string* error);

  // Optional, after Start: prepares graphs for launching (chain.h); streams and events (driver_objects.h).
  void ReserveGraphs() { chains_.Reserve(); }
  void ReserveObjects() { device_->PrepareFirst(); }

  enum class Outcome { kSchedulerGone, kDeviceLost };
  // Sends ExecutorReady, then serves until one of the two happens. kDeviceLost is also the outcome when a kernel has
  // run for longer than the policy allows. After it, all tenants and the scheduler have been notified, and the process
  // must end.
  Outcome Run();

 private:
  // Longer than the gap between two launches of a tenant, so that a working tenant need not wake us (eager programs launch
  // every 8–30 µs, with longer gaps now and then). With few processors the tenant needs ours.
  static constexpr uint64_t kSpinNs = 200'000;
  static constexpr uint64_t kShortSpinNs = 30'000;
  // How much earlier than needed a sleep ends. The timers of this process are exact (process/environment.h); to wake takes
  // 5 to 12 µs in a virtual machine.
  static constexpr int64_t kWakeNs = 15'000;
  static constexpr uint64_t kShortestSliceNs = 20'000;
  static constexpr uint64_t kCountersEveryNs = 1'000'000'000;

  bool Serve(uint64_t now_ns);
  // Polls for a few microseconds, only for what can arrive at any moment. Returns true if something arrived.
  bool Spin();
  void ReportCounters();
  void SendCounters(uint64_t now_ns);
  void DropEnded();
  // Returns true if some session has ceased to be held.
  bool TickQuiet(uint64_t now_ns, uint64_t idle_ns);
  bool AnythingAtDevice() const;
  bool AnyWordWatched() const;
  bool AnyWordOverdue() const;
  // How long to sleep, in nanoseconds; negative: until an event; 0: do not sleep.
  // `awaited_ns`: for how long AwaitedSinceNs has been so.
  int64_t SleepNs(uint64_t idle_ns, uint64_t awaited_ns) const;
  int64_t SleepForWorkNs(uint64_t idle_ns, uint64_t awaited_ns) const;
  // Since when programs have only waited for what is at the device, and sent nothing; 0: it is not so.
  uint64_t AwaitedSinceNs() const;
  bool AnnounceSleep();
  void Awake();
  // Waits for events and handles them; with 0 it does not wait.
  void HandleEvents(int64_t timeout_ns, uint64_t now_ns);
  void SleepOnDoorbells(int64_t timeout_ns, uint64_t now_ns);
  void OnOrder(control::Incoming* in, uint64_t now_ns);
  void On(const control::AddSession& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::RemoveSession& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::MemoryReclaim& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::SetShares& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::HoldSession& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::GiveTurn& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::EndTurn& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::StartTracing& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::StartTracingOwn& order, control::Incoming* in, uint64_t now_ns);
  void On(const control::StopTracing& order, control::Incoming* in, uint64_t now_ns);
  void LogPredictions() const;
  void ReportFault();
  control::ExecutorFault SuspectedOf(const Session& session) const;
  // Call when the policy does not let a kernel of the session run any longer.
  void EndForKernel(uint64_t session_id, std::string_view text);
  // Writes the driver's errors to the log, and returns them.
  std::string LogDriverErrors();
  bool WatchDoorbell(const Session& session);
  Session* FindSession(uint64_t id) const;

  Device* device_;
  DriverOutput* output_;
  // Polled while awake: the scheduler, workers, and hang-ups. A tenant rings only while we sleep, so doorbells are
  // polled only then: a tenant that keeps ringing wakes us needlessly, but delays no other one.
  channel::UniqueFd epoll_;
  channel::UniqueFd sleeping_epoll_;  // epoll_ and the doorbells
  channel::UniqueFd wake_;
  SchedulerLink scheduler_;
  InternalStream internal_;
  Staging staging_;
  SharedMemory shared_;
  const uint64_t spin_ns_;
  WaitHistory device_waits_;  // how long AwaitedSinceNs stayed the same
  WorkPool modules_;
  WorkPool memory_;
  WorkPool quiet_work_;
  Quiet quiet_;
  ObjectUpkeep upkeep_;
  GraphRoom graphs_;
  SpareGreens greens_;
  Partitions partitions_;
  Chains chains_;
  Submitters submitters_;
  std::vector<SubmitJobPtr> done_jobs_;  // used by Serve
  DriverRoom room_;
  TimeSharing sharing_;
  Turns turns_;
  Tracer tracer_;
  LongKernels long_kernels_;
  bool ends_for_kernel_ = false;
  bool several_at_work_ = false;
  const bool batches_;
  Printer printer_;
  std::vector<Quiet::Party> parties_;  // used by TickQuiet
  Tenants tenants_;
  const std::shared_ptr<DomainBudget> budget_;
  ContextMemory context_memory_;
  LibraryCache libraries_;
  std::vector<std::unique_ptr<Session>> sessions_;
  bool watching_write_ = false;
  LineBudget driver_lines_;
  uint64_t last_counters_ns_ = 0;
  uint64_t chunks_reported_ = 0;
};

}  // namespace gpuloom::executor
