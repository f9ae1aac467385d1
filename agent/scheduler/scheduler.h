// SPDX-License-Identifier: Apache-2.0
// Coordinates allocations, sessions, executors and the control socket of one GPU. Everything runs
// on the event loop's thread; nothing blocks. What a tenant or an executor sends is checked before
// it changes anything, and costs at most its own session or its own domain.
//
// Split by topic: control_flow.cc (agent ↔ scheduler), session_flow.cc (tenants), query_flow.cc
// (queries), executor_flow.cc (executors), spare_flow.cc (spare ones), memory_flow.cc (device
// memory), report_flow.cc (what is counted), share_flow.cc (the device's time), kernel_flow.cc
// (long kernels), turn_flow.cc (turns at it), trace_flow.cc (traces), own_trace_flow.cc (tenants'
// own), scheduler.cc (start, end, and what joins them).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/scheduler/address_window.h"
#include "agent/scheduler/allocation.h"
#include "agent/scheduler/device.h"
#include "agent/scheduler/domain_book.h"
#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/executor.h"
#include "agent/scheduler/executor_folders.h"
#include "agent/scheduler/executor_users.h"
#include "agent/scheduler/memory_book.h"
#include "agent/scheduler/memory_queue.h"
#include "agent/scheduler/own_trace.h"
#include "agent/scheduler/peer.h"
#include "agent/scheduler/session.h"
#include "agent/scheduler/tenant_door.h"
#include "agent/scheduler/trace.h"
#include "agent/scheduler/turns.h"
#include "proto/control/messages.h"
#include "proto/control/trace_messages.h"

namespace gpuloom::scheduler {

struct Options {
  std::string state_dir;
  std::string cuda_library;  // handed to executors
  std::string executor_path;
  std::string executor_log_level = "info";  // one of LogLevel's names
  ExecutorUsers executor_users;
  std::string executor_folders = "/tmp";  // where each has one of its own
  uint64_t executor_memory_bytes =
      0;  // of the node's, for one executor's tenants; 0: its own default
  std::chrono::milliseconds idle_timeout{60'000};   // of an executor without sessions
  std::chrono::milliseconds drain_timeout{10'000};  // for a session's work after its end
  bool exit_when_unused = false;
  // Executors that are started before a domain needs them.
  uint32_t spare_executors = 0;
  // See SpareMemory. Without it, every existing piece of memory belongs to a session.
  bool make_spare_memory = false;
  // Creating a context takes half a second on real hardware, several when the machine has just
  // started.
  std::chrono::milliseconds start_timeout{60'000};
  std::string version;  // this program's release, for those who ask
  // Extra time beyond drain_timeout before the executor itself is considered stuck.
  std::chrono::milliseconds drain_grace{2'000};
  // An executor whose connection is closed exits by itself; after this it is killed.
  std::chrono::milliseconds exit_grace{3'000};
  // Of the device's time beside other domains, for an executor whose turn has ended: see Turns.
  std::chrono::milliseconds overrun_limit{300'000};
  // Of a trust domain of which nothing is there. Longer than the agent's ledger keeps what was reported of it last, so that
  // its counters go on if it comes back.
  std::chrono::milliseconds domain_linger{600'000};
  // For executors to begin a trace, and to write what is left, and for a tenant to take its own. Less than whoever asks waits
  // for an answer.
  std::chrono::milliseconds trace_patience{10'000};
};

class Scheduler {
 public:
  // More processes than any container of one pod has been seen to use a GPU with.
  static constexpr uint32_t kMaxSessionsPerAllocation = 64;
  static constexpr size_t kMaxAllocations = 1024;
  static constexpr size_t kMaxControlConnections = 64;

  // `loop` and `device` outlive it.
  Scheduler(EventLoop* loop, Device* device, Options options);
  ~Scheduler();

  // Creates the control socket. Returns false with a message.
  [[nodiscard]] bool Listen(std::string* error);
  // Called on SIGCHLD.
  void OnChildExit();
  // LogsMore has changed: executors follow it, now or when they are ready.
  void LetExecutorsLog();
  // Ends every session and executor, then stops the loop.
  void Shutdown();

 private:
  struct Controller {
    std::unique_ptr<Peer> peer;
    bool greeted = false;
  };
  // One at a time per allocation, and one for all of them: requests made meanwhile wait for the
  // next round, so that no executor can have others asked as often as it likes.
  struct ReclaimRound {
    const Allocation* of = nullptr;  // nullptr: all; only compared
    std::set<uint64_t> sessions;     // that have not answered yet
    std::vector<std::function<void()>> then;
    std::vector<std::function<void()>> next;
    EventLoop::Clock::time_point began;
    std::chrono::milliseconds limit;
    Timer timer;  // its deadline; then, when the next may begin
  };
  using AllocationPtr = std::shared_ptr<Allocation>;
  struct DoorAndAllocation {
    AllocationPtr allocation;
    std::unique_ptr<TenantDoor> door;
  };

  // control_flow.cc
  void AcceptController();
  void OnControl(uint64_t controller, const control::Incoming& in);
  void EndController(uint64_t controller);
  // Applies one request. Returns false with the reason.
  [[nodiscard]] bool Apply(uint64_t controller, const control::ControlHello& message,
                           std::string* error);
  [[nodiscard]] bool Apply(uint64_t controller, const control::AddAllocation& message,
                           std::string* error);
  [[nodiscard]] bool Apply(uint64_t controller, const control::BindAllocation& message,
                           std::string* error);
  [[nodiscard]] bool Apply(uint64_t controller, const control::PrepareExecutor& message,
                           std::string* error);
  [[nodiscard]] bool Apply(uint64_t controller, const control::RemoveAllocation& message,
                           std::string* error);
  // Names what is there, after which the list is sent.
  [[nodiscard]] bool Apply(uint64_t controller, const control::ListAllocations& message,
                           std::string* error);
  [[nodiscard]] bool Apply(uint64_t controller, const control::DescribeGpu& message,
                           std::string* error);
  void Remove(const std::string& name);

  // report_flow.cc
  void SendStates(Peer* peer, uint32_t request);
  void SendGpu(Peer* peer, uint32_t request);
  // Takes over what its executor reports.
  void Raise(Session* session, uint64_t kernels_launched_untrusted,
             const control::TimeUsage& time_untrusted, const control::WorkCounts& work_untrusted);
  // For what has been reported, as far as the executor's part of the device's time goes.
  void ChargeTime(Session* session);
  void ChargeTimeOfAll();
  // Call when an allocation has left a trust domain, or an executor has ended.
  void ForgetDomains();
  // Counts it, once for each session.
  // `what`: the error, or the kernel, in words.
  void NoteFault(Session* session, control::Fault fault, const std::string& what);

  // share_flow.cc
  [[nodiscard]] bool Apply(uint64_t controller, const control::SuspendAllocation& message,
                           std::string* error);
  void On(Executor* executor, const control::SessionHeld& message, control::Incoming& in);
  void On(Executor* executor, const control::SessionCounters& message, control::Incoming& in);
  // The same for equal names while it is kept, and never given to another.
  std::shared_ptr<const uint64_t> NumberOfNamespace(const std::string& name);
  // Tells the executors of its sessions its terms.
  void TellShares(const Allocation& allocation);
  // Adds what its sessions have done, live and ended ones.
  void AddSessions(const Allocation& allocation, control::AllocationState* state) const;

  // session_flow.cc
  void Admit(const AllocationPtr& allocation, Visitor visitor);
  [[nodiscard]] bool Prepare(Session* session, std::string* error);
  [[nodiscard]] bool TakeAddresses(Session* session, std::string* error);
  void ReturnAddresses(const Session& session);
  void AddToExecutor(Session* session);
  void OnTenantEvent(uint64_t session_id);
  void SendWelcome(Session* session, uint32_t multiprocessors);
  // Ends it for the tenant at once; the executor drains.
  void EndSession(Session* session, const std::string& why);
  void StopServing(Session* session);
  void ExpectEnd(Session* session);
  // Called when nothing holds any part of it any more.
  void ForgetSession(uint64_t session_id);
  Session* FindSession(uint64_t session_id_untrusted, const Executor& executor);

  // query_flow.cc
  // Answers after the allocation's sessions have returned the memory that they keep without using
  // it.
  void AnswerWhenReturned(const AllocationPtr& allocation, Visitor visitor);
  void Answer(const Allocation& allocation, const Visitor& visitor);

  // executor_flow.cc
  [[nodiscard]] Executor* ExecutorFor(const std::string& domain, std::string* error);
  [[nodiscard]] Executor* StartExecutor(const std::string& domain, std::string* error);
  [[nodiscard]] bool StartProcess(Executor* executor, int control, std::string* error);
  void NoteFailedStart(const std::string& domain, const std::string& reason);
  // It is ready and has its domain.
  void BeginServing(Executor* executor);
  void OnExecutorMessage(uint64_t executor_id, control::Incoming& in);
  // One per message type; `in` has the request number and descriptors.
  void On(Executor* executor, const control::RefusedCalls& message, control::Incoming& in);
  void On(Executor* executor, const control::ExecutorReady& message, control::Incoming& in);
  void On(Executor* executor, const control::SessionReady& message, control::Incoming& in);
  void On(Executor* executor, const control::SessionEnded& message, control::Incoming& in);
  void On(Executor* executor, const control::SessionWaits& message, control::Incoming& in);
  void On(Executor* executor, const control::UnsupportedCall& message, control::Incoming& in);
  void On(Executor* executor, const control::ArenaReturned& message, control::Incoming& in);
  void On(Executor* executor, const control::ExecutorFault& message, control::Incoming& in);
  // kAbort: it hangs, and is to log where. If it has not ended after exit_grace, it is killed in
  // any case.
  enum class End { kAsk, kAbort, kKill };
  // It no longer serves sessions: its tenants are disconnected, its domain may start another. `for_neighbours` is `reason`
  // without who was at fault, which only the log and the culprit may know; empty: `reason` names nobody.
  void LoseExecutor(Executor* executor, End end, const std::string& reason,
                    std::string for_neighbours = {});
  void KillExecutor(Executor* executor);
  void OnReaped(uint64_t executor_id, const std::string& how);
  // Returns whether any allocation is bound to the domain: nobody else may attach there.
  bool HasAllocations(const std::string& domain) const;
  void LookIdle(Executor* executor);

  // spare_flow.cc
  size_t Spares() const;  // those that can be taken
  // Gives a spare executor, if there is one, to the domain.
  [[nodiscard]] Executor* TakeSpare(const std::string& domain, EventLoop::Clock::time_point now);
  // Call when one has been taken or has ended, and when another executor is ready.
  void LookAtSpares();
  void StartSpare();
  // Ends them and calls `then` when their memory is the device's again; none is started for a
  // while.
  void WithoutSpares(std::function<void()> then);
  void NoteSpareEnded();

  // memory_flow.cc
  void On(Executor* executor, const control::MemoryRequest& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryCharge& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryReturn& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryTransfer& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryInfoRequest& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryReclaimed& message, control::Incoming& in);
  // Answers a memory request. The session is nullptr if there is none that may have any. Returns
  // false, unless it is the last try, if the device had no room.
  using OnRoom = std::function<bool(Executor*, Session*, bool last_try)>;
  // Calls `then`. Where the quota or the device has no room, first reclaims what sessions keep, or
  // reclaims it and calls `then` again.
  void WithRoom(Executor* executor, uint64_t session_id_untrusted, uint64_t size_bytes,
                const OnRoom& then);
  [[nodiscard]] bool Grant(Executor* executor, Session* session,
                           const control::MemoryRequest& message, uint32_t request, bool last_try);
  // For others' memory, as its policy says.
  bool MayWait(const Session& session, uint64_t size_bytes) const;
  void Wait(const Session& session, const control::MemoryRequest& message, uint32_t request);
  // Returns false if the device has no room; with `last_try` it is answered in any case.
  bool GrantWaiting(const MemoryQueue::Request& waiting, bool last_try);
  // Call when memory has come back to the device.
  void NoteRoom();
  // Tries those who wait, and answers those whose time is over.
  void Offer();
  void LookAtWaiting();
  // Answers what the session waits for.
  void StopWaiting(uint64_t session_id);
  Session* FindServed(uint64_t session_id_untrusted, const Executor& executor);
  // Asks the sessions of an allocation (nullptr: all sessions) to return the memory they keep;
  // calls `then` when they have returned it, are gone, or take too long.
  void Reclaim(const Allocation* allocation, std::chrono::milliseconds limit,
               std::function<void()> then);
  void BeginReclaim(const Allocation* allocation, std::chrono::milliseconds limit,
                    std::vector<std::function<void()>> then);
  void NoteReclaimed(uint64_t reclaim_id, uint64_t session_id);
  void EndReclaim(uint64_t reclaim_id);
  void BeginNextReclaim(uint64_t reclaim_id);

  // kernel_flow.cc
  void On(Executor* executor, const control::LongKernel& message, control::Incoming& in);
  void Judge(Session* session, const control::LongKernel& message, control::Answer* answer);

  // turn_flow.cc
  void On(Executor* executor, const control::AllocationWants& message, control::Incoming& in);
  void On(Executor* executor, const control::TurnUsage& message, control::Incoming& in);
  void On(Executor* executor, const control::TurnDrained& message, control::Incoming& in);
  void EndForOverrun(Executor* executor, uint64_t overran_ns);

  // trace_flow.cc
  [[nodiscard]] bool Apply(uint64_t controller, const control::BeginTrace& message,
                           std::string* error);
  [[nodiscard]] bool Apply(uint64_t controller, const control::EndTrace& message,
                           std::string* error);
  // One of these two is answered when its executors have done their part.
  void AwaitTrace(bool begins, uint32_t request);
  // These do nothing without a trace.
  void AddTracePart(Executor* executor);
  void AddTraced(const Session& session);
  // What the session was charged is final.
  void CountTraced(const Session& session);
  void LoseTracePart(const Executor& executor);
  void DropTraceOf(uint64_t controller);
  // These need one.
  void StopTrace();
  void LookAtTrace();
  void AnswerBegin();
  void SendTrace();
  // It is over.
  std::unique_ptr<Trace> TakeTrace();
  void On(Executor* executor, const control::TraceProgress& message, control::Incoming& in);

  // own_trace_flow.cc
  void TraceOwn(const AllocationPtr& allocation, Visitor visitor);
  // Empty: it may, and `executor` is who records.
  std::string WhyNoOwnTrace(const Allocation& allocation, uint32_t time_ms_untrusted,
                            const Executor** executor) const;
  void AwaitOwnTrace(OwnTrace* trace, std::chrono::milliseconds patience);
  void AddOwnTraced(const Session& session);
  // Returns false if it is about none of this executor's.
  bool OnOwnTrace(const Executor& executor, const control::TraceProgress& message);
  void StopOwnTrace(OwnTrace* trace);
  void AnswerOwnTrace(OwnTrace* trace);
  void SendOfOwnTrace(uint64_t id);
  // `why`: the message for the tenant; empty: none.
  void EndOwnTrace(uint64_t id, const std::string& why);
  // But those that have their answer.
  void EndOwnTraces(const std::function<bool(const OwnTrace&)>& which, const std::string& why);
  void EndOwnTracesNotAllowed(const Allocation& allocation);
  bool TracesItself(const Executor& executor) const;

  // scheduler.cc
  bool Unused() const;
  void LookUnused();

  EventLoop* loop_;
  Device* device_;
  Options options_;
  MemoryBook memory_;
  Turns turns_;
  DividedWindow device_window_{kDeviceWindow, kNeededDeviceBytes, kAssuredDeviceBytes};
  DividedWindow host_window_{kHostWindow, kNeededHostBytes, kAssuredHostBytes};

  channel::UniqueFd control_listener_;
  Watch control_watch_;
  Timer control_pause_;
  bool was_used_ = false;
  // For this GPU, learned from the first executor that failed.
  bool drivers_need_leniency_ = false;
  bool shutting_down_ = false;
  Timer unused_timer_;
  Timer spare_timer_;           // spare memory
  Timer spare_executor_timer_;  // when the next one may be started
  EventLoop::Clock::time_point next_spare_executor_{};
  std::vector<std::function<void()>> without_spares_;  // wait for the end of all
  MemoryQueue waiting_;
  Timer waiting_timer_;  // its next moment
  Timer offer_timer_;    // memory has come back
  EventLoop::Clock::time_point last_offer_{};

  const EventLoop::Clock::time_point began_ = EventLoop::Clock::now();
  control::BusyTime busy_{};
  ExecutorCounts executor_counts_;

  ExecutorFolders folders_;
  uint64_t last_id_ = 0;
  uint32_t last_hold_request_ = 0;
  std::map<std::string, std::weak_ptr<const uint64_t>> namespaces_;
  std::map<uint64_t, Controller> controllers_;
  std::map<std::string, DoorAndAllocation> allocations_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::map<uint64_t, std::unique_ptr<Executor>> executors_;
  std::map<std::string, Executor*> domains_;  // the executor that serves new sessions
  DomainBook book_;
  Timer forget_timer_;  // its next moment
  std::map<uint64_t, ReclaimRound> reclaims_;
  std::unique_ptr<Trace> trace_;
  std::map<uint64_t, std::unique_ptr<OwnTrace>> own_traces_;
};

}  // namespace gpuloom::scheduler
