// SPDX-License-Identifier: Apache-2.0
// Coordinates allocations, sessions, executors and the control socket of one GPU, and owns them all. Everything runs on
// the event loop's thread; nothing blocks. What a tenant or an executor sends is checked before it changes anything,
// and costs at most its own session or its own domain.
//
// Split by topic: control_flow.cc (agent ↔ scheduler), session_flow.cc (tenants), query_flow.cc (queries),
// executor_flow.cc (executors), spare_flow.cc (spare executors), memory_flow.cc (device memory), report_flow.cc
// (counters and reports), share_flow.cc (the device's time), kernel_flow.cc (long kernels), turn_flow.cc (turns at the
// device), trace_flow.cc (the operator's traces), own_trace_flow.cc (tenants' own traces), scheduler.cc (start, end,
// and what connects the others).
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
  // Call when LogsMore has changed: executors follow it, at once or when they are ready.
  void LetExecutorsLog();
  // Ends every session and executor, then stops the loop.
  void Shutdown();

 private:
  struct Controller {
    std::unique_ptr<Peer> peer;
    bool greeted = false;
  };
  // One round at a time per allocation, and one for all of them. Requests made during a round wait for the next one, so
  // that no executor can have others asked as often as it likes.
  struct ReclaimRound {
    const Allocation* of = nullptr;  // nullptr: all; only compared
    std::set<uint64_t> sessions;     // that have not answered yet
    std::vector<std::function<void()>> then;
    std::vector<std::function<void()>> next;
    EventLoop::Clock::time_point began;
    std::chrono::milliseconds limit;
    Timer timer;  // its deadline; afterwards, when the next round may begin
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
  // Each applies one request. Returns false with the reason.
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
  // Sends the allocations, before the answer.
  [[nodiscard]] bool Apply(uint64_t controller, const control::ListAllocations& message,
                           std::string* error);
  [[nodiscard]] bool Apply(uint64_t controller, const control::DescribeGpu& message,
                           std::string* error);
  void Remove(const std::string& name);

  // report_flow.cc
  void SendStates(Peer* peer, uint32_t request);
  void SendGpu(Peer* peer, uint32_t request);
  // Takes over the counters that its executor reports.
  void Raise(Session* session, uint64_t kernels_launched_untrusted,
             const control::TimeUsage& time_untrusted, const control::WorkCounts& work_untrusted);
  // Charges reported work, as far as the executor's part of the device's time allows.
  void ChargeTime(Session* session);
  void ChargeTimeOfAll();
  // Call when an allocation has left a trust domain, or an executor has ended.
  void ForgetDomains();
  // Counts a session's fault, once for each session. `what`: the error, or the kernel, in words.
  void NoteFault(Session* session, control::Fault fault, const std::string& what);

  // share_flow.cc
  [[nodiscard]] bool Apply(uint64_t controller, const control::SuspendAllocation& message,
                           std::string* error);
  void On(Executor* executor, const control::SessionHeld& message, control::Incoming& in);
  void On(Executor* executor, const control::SessionCounters& message, control::Incoming& in);
  // Returns the same number for equal names while somebody holds it; a number is never reused.
  std::shared_ptr<const uint64_t> NumberOfNamespace(const std::string& name);
  // Sends the allocation's terms to the executors of its sessions.
  void TellShares(const Allocation& allocation);
  // Adds what the allocation's sessions have done, live and ended ones.
  void AddSessions(const Allocation& allocation, control::AllocationState* state) const;

  // session_flow.cc
  void Admit(const AllocationPtr& allocation, Visitor visitor);
  [[nodiscard]] bool Prepare(Session* session, std::string* error);
  [[nodiscard]] bool TakeAddresses(Session* session, std::string* error);
  void ReturnAddresses(const Session& session);
  void AddToExecutor(Session* session);
  void OnTenantEvent(uint64_t session_id);
  void SendWelcome(Session* session, uint32_t multiprocessors);
  // Ends the session for the tenant at once; the executor drains its work.
  void EndSession(Session* session, const std::string& why);
  void StopServing(Session* session);
  void ExpectEnd(Session* session);
  // Call when nothing holds any part of the session.
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
  // kAbort: the executor hangs, and is to log where. If it has not ended after exit_grace, it is killed in any case.
  enum class End { kAsk, kAbort, kKill };
  // The executor stops serving sessions: its tenants are disconnected, and its domain may start another one.
  // `for_neighbours` is `reason` without the name of who was at fault, which only the log and the culprit may see;
  // empty: `reason` names nobody.
  void LoseExecutor(Executor* executor, End end, const std::string& reason,
                    std::string for_neighbours = {});
  void KillExecutor(Executor* executor);
  void OnReaped(uint64_t executor_id, const std::string& how);
  // Whether any allocation is bound to the domain. If none is, nobody can attach there.
  bool HasAllocations(const std::string& domain) const;
  void LookIdle(Executor* executor);

  // spare_flow.cc
  size_t Spares() const;  // spare executors that can be taken
  // Gives a spare executor, if there is one, to the domain.
  [[nodiscard]] Executor* TakeSpare(const std::string& domain, EventLoop::Clock::time_point now);
  // Call when a spare executor has been taken or has ended, and when another executor is ready.
  void LookAtSpares();
  void StartSpare();
  // Ends the spare executors and calls `then` when the device has their memory back. None is started for a while.
  void WithoutSpares(std::function<void()> then);
  void NoteSpareEnded();

  // memory_flow.cc
  void On(Executor* executor, const control::MemoryRequest& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryCharge& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryReturn& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryTransfer& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryInfoRequest& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryReclaimed& message, control::Incoming& in);
  // Answers a memory request. The session is nullptr if there is none that may have memory. Returns false if the device
  // had no room; on the last try it answers in any case.
  using OnRoom = std::function<bool(Executor*, Session*, bool last_try)>;
  // Calls `then`. Where the quota or the device has no room, it first reclaims the memory that sessions keep without
  // using it, or reclaims that memory and calls `then` again.
  void WithRoom(Executor* executor, uint64_t session_id_untrusted, uint64_t size_bytes,
                const OnRoom& then);
  [[nodiscard]] bool Grant(Executor* executor, Session* session,
                           const control::MemoryRequest& message, uint32_t request, bool last_try);
  // Whether the session may wait for others' memory: its policy decides.
  bool MayWait(const Session& session, uint64_t size_bytes) const;
  void Wait(const Session& session, const control::MemoryRequest& message, uint32_t request);
  // Returns false if the device has no room; with `last_try` the request is answered in any case.
  bool GrantWaiting(const MemoryQueue::Request& waiting, bool last_try);
  // Call when memory has come back to the device.
  void NoteRoom();
  // Tries the waiting requests, and answers those whose time is over.
  void Offer();
  void LookAtWaiting();
  // Answers the session's waiting requests.
  void StopWaiting(uint64_t session_id);
  Session* FindServed(uint64_t session_id_untrusted, const Executor& executor);
  // Asks the sessions of an allocation (nullptr: all sessions) to return the memory that they keep without using it.
  // Calls `then` when they have returned it, are gone, or take too long.
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
  // Answers BeginTrace or EndTrace when the executors have done their part.
  void AwaitTrace(bool begins, uint32_t request);
  // These do nothing without a trace.
  void AddTracePart(Executor* executor);
  void AddTraced(const Session& session);
  // Call when what the session was charged is final.
  void CountTraced(const Session& session);
  void LoseTracePart(const Executor& executor);
  void DropTraceOf(uint64_t controller);
  // These need one.
  void StopTrace();
  void LookAtTrace();
  void AnswerBegin();
  void SendTrace();
  // Call when the trace is over.
  std::unique_ptr<Trace> TakeTrace();
  void On(Executor* executor, const control::TraceProgress& message, control::Incoming& in);

  // own_trace_flow.cc
  void TraceOwn(const AllocationPtr& allocation, Visitor visitor);
  // Returns why the allocation may not trace itself. If it returns an empty string, it may, and `executor` records.
  std::string WhyNoOwnTrace(const Allocation& allocation, uint32_t time_ms_untrusted,
                            const Executor** executor) const;
  void AwaitOwnTrace(OwnTrace* trace, std::chrono::milliseconds patience);
  void AddOwnTraced(const Session& session);
  // Returns false if the message is about none of this executor's own traces.
  bool OnOwnTrace(const Executor& executor, const control::TraceProgress& message);
  void StopOwnTrace(OwnTrace* trace);
  void AnswerOwnTrace(OwnTrace* trace);
  void SendOfOwnTrace(uint64_t id);
  // `why`: the message for the tenant; empty: none.
  void EndOwnTrace(uint64_t id, const std::string& why);
  // Leaves alone the traces whose tenant has its answer.
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
  // Learned from the first executor that failed on this GPU.
  bool drivers_need_leniency_ = false;
  bool shutting_down_ = false;
  Timer unused_timer_;
  Timer spare_timer_;           // spare memory
  Timer spare_executor_timer_;  // when the next one may be started
  EventLoop::Clock::time_point next_spare_executor_{};
  std::vector<std::function<void()>> without_spares_;  // wait for the end of all spare executors
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
