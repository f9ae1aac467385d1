// SPDX-License-Identifier: Apache-2.0
// The messages between agent, scheduler and executor: one plain struct per message over
// SOCK_SEQPACKET.
//
//   agent      ↔ scheduler   <state dir>/control.sock; the agent asks, the scheduler answers
//   scheduler  ↔ executor    the executor's descriptor kExecutorControlFd, a pair made by the
//                            scheduler
//
// Every message begins with MessageHeader. `request` is chosen by the requester and repeated in the
// answer; 0 = no answer is expected. Strings are NUL-terminated in fixed fields. The scheduler
// treats what an executor sends as untrusted. A struct here changes only as protocol_version.h
// says, because one end may be older than the other: docs/design/control.md. Plain values.
//
// Longer than other files may be: it is one table, in which a reader looks for one message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/control/device_time.h"
#include "proto/wire/wire_struct.h"

namespace gpuloom::control {

inline constexpr int kExecutorControlFd = 3;
inline constexpr char kControlSocketName[] = "control.sock";
inline constexpr char kLockName[] = "lock";
// Nearly twice the longest, leaving room for fields of later minors.
inline constexpr uint32_t kMaxMessageBytes = 4096;

// Who sends a message to whom; dispatch.h makes one table for each receiver.
enum class Route : uint32_t {
  kAgentAsks,        // agent → scheduler; answered if `request` is not 0
  kExecutorSays,     // executor → scheduler
  kSchedulerOrders,  // scheduler → executor, unasked
  kAnswers,          // scheduler → the requester, with its `request`
};

struct MessageHeader {
  uint32_t type;  // the message's place in AllMessages (message_list.h), counted from 1
  uint32_t request;
};

// Kubernetes: namespace and container are DNS labels (63), a pod's name a subdomain (253), a
// uid 36.
using Label = char[64];
using Name = char[256];

// ---- agent ↔ scheduler ----

// First message of a connection. Answered by Answer; a scheduler of another major refuses with a
// message. Its fields, and those of Answer, are the same in every major, so that any two releases
// can tell each other that they differ.
struct ControlHello {
  static constexpr std::string_view kName = "ControlHello";
  static constexpr Route kRoute = Route::kAgentAsks;
  uint16_t major;
  uint16_t minor;
};

struct Answer {
  static constexpr std::string_view kName = "Answer";
  static constexpr Route kRoute = Route::kAnswers;
  static constexpr size_t kShortestBytes = 528;
  uint32_t ok;
  uint32_t unused;
  uint64_t device_memory_bytes;  // of the GPU; in the answer to ControlHello
  char message[512];             // why it failed
  // Since 3.1, in the answer to ControlHello: the version that the scheduler speaks.
  uint16_t major;
  uint16_t minor;
  // Since 3.5, in the answer to ControlHello: the CUDA version of the GPU's driver, 12020 for 12.2;
  // 0 before.
  uint32_t driver_version;
};

// An allocation is one Allocate call of the kubelet: `slots` slots, one directory. The scheduler
// creates gpuloom.sock in it. Sessions are refused until it is bound. Adding the same name again
// (after a restart of the agent) is no error.
struct AddAllocation {
  static constexpr std::string_view kName = "AddAllocation";
  static constexpr Route kRoute = Route::kAgentAsks;
  Label name;  // the directory's random name
  char directory[1024];
  uint32_t slots;
  // 1: the allocation is removed when this connection closes (`gpuloom run`). 0: it outlives its
  // maker, so that an agent can be replaced.
  uint32_t ends_with_connection;
};

// Sets the allocation's identity. Repeating it with the same identity is no error and updates quota
// and limits live; another identity under the same name is refused.
struct BindAllocation {
  static constexpr std::string_view kName = "BindAllocation";
  static constexpr Route kRoute = Route::kAgentAsks;
  static constexpr size_t kShortestBytes = 784;
  Label name;
  Label pod_namespace;
  Name pod;
  Label pod_uid;
  Label container;
  Name trust_domain;            // sessions of one trust domain share an executor
  uint64_t memory_quota_bytes;  // of the whole allocation, rounded down to 2 MiB by the scheduler
  uint64_t pinned_limit_bytes;  // host memory its sessions may register, each
  // Since 3.2.
  ShareTerms shares;
  uint32_t
      memory_wait_ms;  // how long a request within the quota may wait for memory of the device's
  PartitionTerms partition;  // since 3.4
  KernelTerms kernels;
  uint32_t trace;  // TraceTerms; since 3.6
  // How long its work may wait behind that of a higher class until that pauses for it; 0: not said, and the default
  // applies; kNeverRescued: for ever. Since 3.7
  uint32_t rescue_after_ms;
};
inline constexpr uint32_t kNeverRescued = UINT32_MAX;

// What the allocation's programs may see of a trace.
enum class TraceTerms : uint32_t {
  kNone,
  kOwn,         // their own part, by the executor's own records
  kOwnByCupti,  // the same; where CUPTI is, by that. Of those whose trust domain is their pod's alone
};
inline constexpr uint32_t kTraceTerms = 3;

// A program of this bound allocation is about to start: the executor of its domain is started now
// if there is none, so that the program's first call does not wait for a context. Only a hint:
// without it the first session starts the executor.
struct PrepareExecutor {
  static constexpr std::string_view kName = "PrepareExecutor";
  static constexpr Route kRoute = Route::kAgentAsks;
  Label name;
};

// Ends its sessions, removes its socket and forgets it. Unknown names are no error.
struct RemoveAllocation {
  static constexpr std::string_view kName = "RemoveAllocation";
  static constexpr Route kRoute = Route::kAgentAsks;
  Label name;
};

// Suspends all sessions of the allocation, and those that begin later; or resumes them. It stays in force until the
// opposite is requested, by whichever client. AllocationState shows when all that ran has ended. Since 3.2.
struct SuspendAllocation {
  static constexpr std::string_view kName = "SuspendAllocation";
  static constexpr Route kRoute = Route::kAgentAsks;
  Label name;
  uint32_t suspend;  // 0: resume
  uint32_t unused;
};

// Answered by one AllocationState for each, then Answer.
struct ListAllocations {
  static constexpr std::string_view kName = "ListAllocations";
  static constexpr Route kRoute = Route::kAgentAsks;
};

struct AllocationState {
  static constexpr std::string_view kName = "AllocationState";
  static constexpr Route kRoute = Route::kAnswers;
  static constexpr size_t kShortestBytes = 2360;
  Label name;
  Label pod_namespace;
  Name pod;
  Label pod_uid;
  Label container;
  Name trust_domain;
  uint32_t bound;
  uint32_t slots;
  uint32_t sessions;           // now
  uint32_t unsupported_count;  // names, since the allocation was added
  uint64_t memory_quota_bytes;
  uint64_t memory_used_bytes;
  uint64_t memory_peak_bytes;
  uint64_t memory_refused_count;  // requests that the quota refused, since the allocation was added
  uint64_t kernels_launched;  // since the allocation was added, by sessions that have ended and by
                              // live ones
  // The unsupported CUDA features that its programs have requested, the oldest first, each ended by
  // a newline; as many as fit.
  char unsupported[1536];
  // Since 3.2.
  TimeUsage time;  // since the allocation was added, as kernels_launched
  ShareTerms shares;
  uint32_t suspended;
  uint32_t held_sessions;   // those of `sessions` that have no work at the device because of that
  uint32_t memory_waiting;  // requests that wait for device memory now
  // Since 3.3, as are all below; counted since the allocation was added.
  WorkCounts work;
  uint64_t sessions_begun;
  uint64_t sessions_refused;
  uint64_t faults[kFaults];  // sessions that ended by each Fault
  // Since 3.4.
  uint64_t
      long_kernels;  // that have run for longer than a limit of KernelTerms, since the allocation was added
  KernelTerms kernels;
  // Since 3.5: by which fault the latest of its sessions that faulted has ended, in words; empty: none did.
  // Schedulers up to 3.6 also say here why a session was not admitted.
  char latest_fault[256];
  // Since 3.7: why the latest of its sessions that were refused was not admitted, in words; empty: none was refused.
  char latest_refusal[256];
  // Since 3.8: why its sessions do not have the multiprocessors that the policy says (PartitionPending), and how often
  // that began, since the allocation was added.
  char pending_partition[256];
  uint64_t pending_partitions;
};

// ---- scheduler ↔ executor ----
//
// The scheduler starts  gpuloom-executor --gpu <GPU-uuid> --cuda-library <path> --domain <name>
// with no descriptors but 0, 1, 2, kExecutorControlFd and, with --user, a lock on that user after
// it, which is released when the user's last process has ended.

// Executor: the context exists, sessions can be added.
struct ExecutorReady {
  static constexpr std::string_view kName = "ExecutorReady";
  static constexpr Route kRoute = Route::kExecutorSays;
  static constexpr size_t kShortestBytes = 528;
  uint32_t ok;
  // 1: not ok, because the driver does not start in this process, for a reason that confinement may be.
  uint32_t driver_failed;
  // As reported by cuCtxGetStreamPriorityRange, which needs a context; the scheduler has none.
  int32_t stream_priority_least;
  int32_t stream_priority_greatest;
  char message[512];  // why it failed
  // Since 3.7: its release; the CUPTI with which it records traces, or why it has none.
  char version[64];
  char cupti[256];
  uint32_t has_cupti;
};

// Descriptors that come with AddSession, in this order.
enum SessionFd : uint32_t {
  kSessionCommandFd,     // read-only
  kSessionCompletionFd,  // read-write
  kSessionArenaFd,       // read-write
  kSessionDoorbellFd,
  kSessionFds,
};

// Scheduler: a tenant has connected. With kSessionFds descriptors.
struct AddSession {
  static constexpr std::string_view kName = "AddSession";
  static constexpr Route kRoute = Route::kSchedulerOrders;
  static constexpr size_t kShortestBytes = 584;
  static constexpr size_t kFds = kSessionFds;
  uint64_t session_id;  // never reused
  uint64_t device_range_begin;
  uint64_t device_range_bytes;
  uint64_t host_range_begin;
  uint64_t host_range_bytes;
  uint64_t pinned_limit_bytes;
  uint64_t memory_quota_bytes;
  // The first part of the device range, for the executor's allocations; in the rest the tenant
  // reserves addresses itself. 0: all of it.
  uint64_t device_own_bytes;
  uint32_t drain_timeout_ms;
  uint32_t unused;
  char label[512];  // "namespace/pod/container", for the log
  // Since 3.2. Neither number is ever reused; allocations of one namespace have the same namespace_id.
  uint64_t allocation_id;
  uint64_t namespace_id;
  uint32_t slots;
  ShareTerms shares;
  uint32_t held;  // 1: the session begins held, as after HoldSession with kOperator
  uint32_t unused_too;
  PartitionTerms partition;  // since 3.4
  KernelTerms kernels;
  uint32_t rescue_after_ms;  // as in BindAllocation; since 3.7
  // The minor of the scheduler's control version, so that an executor of a later release sends nothing that ends it there;
  // 0: one before 3.8. Since 3.8
  uint32_t scheduler_minor;
};

// Executor: the session's regions are mapped and its ring is being read; or not, with the reason.
struct SessionReady {
  static constexpr std::string_view kName = "SessionReady";
  static constexpr Route kRoute = Route::kExecutorSays;
  static constexpr size_t kShortestBytes = 272;
  uint64_t session_id;
  uint32_t ok;
  uint32_t unused;
  char message[256];
  uint32_t multiprocessors;  // how many its kernels may use; 0: all. Since 3.4
  uint32_t unused_too;
};

// Scheduler: the tenant has hung up (or its allocation is gone). The executor drains and answers
// SessionEnded.
struct RemoveSession {
  static constexpr std::string_view kName = "RemoveSession";
  static constexpr Route kRoute = Route::kSchedulerOrders;
  uint64_t session_id;
};

// Executor: nothing of the session runs any more, its memory is unmapped and returned. Also sent
// unasked after Fatal. `drained` 0: it did not drain in time; the scheduler ends the executor, and
// reuses nothing until that is dead.
struct SessionEnded {
  static constexpr std::string_view kName = "SessionEnded";
  static constexpr Route kRoute = Route::kExecutorSays;
  static constexpr size_t kShortestBytes = 24;
  uint64_t session_id;
  uint64_t kernels_launched;
  uint32_t fatal;  // wire::Fatal
  uint32_t drained;
  TimeUsage time;   // since 3.2
  WorkCounts work;  // since 3.3
};

// Executor: requests `size_bytes` (a multiple of 2 MiB) of device memory for a session. Answered by
// MemoryGranted.
struct MemoryRequest {
  static constexpr std::string_view kName = "MemoryRequest";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
  uint64_t size_bytes;
};

// Executor: requests room in the session's quota for `size_bytes` (any size) that the driver uses
// for it inside the executor, as for arrays. Answered by MemoryGranted without a descriptor;
// returned by MemoryReturn like other memory.
struct MemoryCharge {
  static constexpr std::string_view kName = "MemoryCharge";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
  uint64_t size_bytes;
};

// Scheduler: with one descriptor (a CUmemGenericAllocationHandle as a POSIX fd) when result is
// CUDA_SUCCESS.
struct MemoryGranted {
  static constexpr std::string_view kName = "MemoryGranted";
  static constexpr Route kRoute = Route::kAnswers;
  static constexpr size_t kFds = 1;
  uint64_t session_id;
  uint64_t memory_id;
  uint64_t size_bytes;
  uint32_t result;  // CUresult
  uint32_t
      must_clear;  // 1: it may hold another tenant's data; clear it before the tenant can reach it
};

// Executor: the memory is unmapped and its handle released. Answered by Answer when `request` is
// not 0, so that a tenant sees its quota free again when its cuMemFree returns.
struct MemoryReturn {
  static constexpr std::string_view kName = "MemoryReturn";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
  uint64_t memory_id;
};

// Executor: asks how much the session may still take.
struct MemoryInfoRequest {
  static constexpr std::string_view kName = "MemoryInfoRequest";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
};

struct MemoryInfo {
  static constexpr std::string_view kName = "MemoryInfo";
  static constexpr Route kRoute = Route::kAnswers;
  uint64_t session_id;
  uint64_t free_bytes;
  uint64_t total_bytes;
};

// Executor, before it exits: the device context is lost.
struct ExecutorFault {
  static constexpr std::string_view kName = "ExecutorFault";
  static constexpr Route kRoute = Route::kExecutorSays;
  static constexpr size_t kShortestBytes = 16;
  uint32_t result;  // CUresult
  uint32_t unused;
  uint64_t session_id;  // whose work it most likely was, 0 = not known
  // The session's work that was at the device. Since 3.6.
  uint32_t launches;  // one of them failed; 0: not known
  uint32_t unused_launches;
  char function[256];  // the first one's name; empty: a graph, or not known
};

// Executor, about once a second while the numbers change, for AllocationState. SessionEnded has the
// final ones.
struct SessionCounters {
  static constexpr std::string_view kName = "SessionCounters";
  static constexpr Route kRoute = Route::kExecutorSays;
  static constexpr size_t kShortestBytes = 16;
  uint64_t session_id;
  uint64_t kernels_launched;  // since the session began
  TimeUsage time;             // since 3.2
  WorkCounts work;            // since 3.3
};

// Executor: the session's arena is unmapped, so its host addresses may be given to another session.
// May come long after SessionEnded: unpinning waits for a moment in which the device is idle.
struct ArenaReturned {
  static constexpr std::string_view kName = "ArenaReturned";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
};

// Executor: memory of an ending session is still held by another session of the same executor,
// which is charged for it from now on, whatever its quota.
struct MemoryTransfer {
  static constexpr std::string_view kName = "MemoryTransfer";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t from_session_id;
  uint64_t to_session_id;
  uint64_t memory_id;
};

// Executor: a program of the session has requested an unsupported CUDA feature.
struct UnsupportedCall {
  static constexpr std::string_view kName = "UnsupportedCall";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
  char name[104];
};

// Scheduler: memory is needed. The executor returns what it keeps of the session's freed memory,
// waits for what is on its way, and answers MemoryReclaimed; for an unknown session, at once.
struct MemoryReclaim {
  static constexpr std::string_view kName = "MemoryReclaim";
  static constexpr Route kRoute = Route::kSchedulerOrders;
  uint64_t session_id;
  uint64_t reclaim_id;
};

struct MemoryReclaimed {
  static constexpr std::string_view kName = "MemoryReclaimed";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
  uint64_t reclaim_id;
};

// Executor, once per drain time-out of a session that is to end: the session cannot end yet, for a reason other than
// its own work, for example because memory that it was granted is still being cleared, after other sessions' kernels.
// Its usage stays charged and nothing is reused until SessionEnded.
struct SessionWaits {
  static constexpr std::string_view kName = "SessionWaits";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
};

// Executor, at most once and before ExecutorReady, if started with --tell-refused-calls: with one
// descriptor through which the kernel reports each system call that the executor's filter refuses
// (seccomp_unotify(2)) and waits for the answer. The executor keeps no copy: its holder could let a
// call through.
struct RefusedCalls {
  static constexpr std::string_view kName = "RefusedCalls";
  static constexpr Route kRoute = Route::kExecutorSays;
  static constexpr size_t kFds = 1;
};

// Scheduler: these terms apply to all sessions of the allocation from now on. Since 3.2, as all
// below.
struct SetShares {
  static constexpr std::string_view kName = "SetShares";
  static constexpr Route kRoute = Route::kSchedulerOrders;
  static constexpr size_t kShortestBytes = 32;
  uint64_t allocation_id;
  uint32_t slots;
  ShareTerms shares;
  PartitionTerms partition;  // since 3.4
  KernelTerms kernels;
  uint32_t rescue_after_ms;  // as in BindAllocation; since 3.7
  uint32_t unused;
};

enum class HoldReason : uint32_t {
  kOperator,
};
inline constexpr uint32_t kHoldReasons = 1;

// Scheduler: no more work of the session is submitted to the device until this reason, and every other, has been
// withdrawn. Work at the device runs to its end; then the executor sends SessionHeld, with this message's `request`.
// Ignored for an unknown session.
struct HoldSession {
  static constexpr std::string_view kName = "HoldSession";
  static constexpr Route kRoute = Route::kSchedulerOrders;
  uint64_t session_id;
  uint32_t reason;  // HoldReason
  uint32_t hold;    // 0: the reason is withdrawn, which has no answer
};

// Executor: the session is held, and none of its work is at the device. Sent once for each hold, unless that is
// withdrawn before.
struct SessionHeld {
  static constexpr std::string_view kName = "SessionHeld";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
  uint32_t reason;  // HoldReason
  uint32_t unused;
};

// Turns between trust domains (docs/design/sharing-time.md). An executor that has received neither of the next two
// messages has an endless turn, and sends none of the three after them. A turn is for kernels, and what else goes to
// their engine: copies between host and device need none.

// Scheduler: the executor may submit, allocations of the class `lowest` and above.
struct GiveTurn {
  static constexpr std::string_view kName = "GiveTurn";
  static constexpr Route kRoute = Route::kSchedulerOrders;
  uint32_t lowest;  // 1 high, 2 normal, 3 low
  uint32_t unused;
  // How much predicted work may be in flight; UINT64_MAX: no other domain waits, and there is no bound.
  uint64_t in_flight_ns;
};

// Scheduler: the executor must submit no more kernels. Those at the device run to their end; then the executor sends
// TurnDrained, with this message's `request`, unless it was given a turn meanwhile.
struct EndTurn {
  static constexpr std::string_view kName = "EndTurn";
  static constexpr Route kRoute = Route::kSchedulerOrders;
};

// Executor: whether the allocation has kernels for the device. Sent only when that changes; 0 only after it had none for a
// while. Ignored for an allocation that is unknown or belongs to another domain.
struct AllocationWants {
  static constexpr std::string_view kName = "AllocationWants";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t allocation_id;
  uint32_t wants;  // 0 or 1
  uint32_t unused;
};

struct AllocationUse {
  uint64_t allocation_id;
  uint64_t used_ns;
};
inline constexpr uint32_t kUsesAtOnce = 32;

// Executor: which allocations have used the device since the last such message. Sent before TurnDrained, and at least
// once in each second in which any has. The executor's turn is divided among them in these
// proportions.
struct TurnUsage {
  static constexpr std::string_view kName = "TurnUsage";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint32_t count;
  uint32_t more;  // 1: the next TurnUsage continues this one
  AllocationUse uses[kUsesAtOnce];
};

// Executor: no kernel of its sessions is at the device, and none will be until GiveTurn.
struct TurnDrained {
  static constexpr std::string_view kName = "TurnDrained";
  static constexpr Route kRoute = Route::kExecutorSays;
};

// ---- agent ↔ scheduler, since 3.3 ----

// Answered by one GpuState, one DomainState for each trust domain, then Answer.
struct DescribeGpu {
  static constexpr std::string_view kName = "DescribeGpu";
  static constexpr Route kRoute = Route::kAgentAsks;
};

// How long each engine has been busy, by the scheduler's clock (scheduler/device_time.h). The sums are what all
// allocations together have been charged.
struct BusyTime {
  uint64_t compute_ns;
  uint64_t copy_to_device_ns;
  uint64_t copy_from_device_ns;
};

struct GpuState {
  static constexpr std::string_view kName = "GpuState";
  static constexpr Route kRoute = Route::kAnswers;
  char uuid[48];
  char name[256];    // the driver's
  char version[64];  // the scheduler's release
  uint64_t memory_bytes;
  uint64_t memory_promised_bytes;  // the quotas of all bound allocations
  uint64_t memory_used_bytes;      // by sessions, those that are ending included
  uint64_t running_ns;             // since the scheduler began
  BusyTime busy;                   // since then
  uint64_t executors_started;
  uint64_t executors_failed;  // ended before they were ready
  uint64_t executors_lost;    // ended while they had sessions
  uint32_t executors;         // now
  uint32_t sessions;
  uint32_t allocations;
  uint32_t slots;  // of all allocations
};

// A trust domain that has allocations or an executor. Its figures start at 0 again after it has had neither.
struct DomainState {
  static constexpr std::string_view kName = "DomainState";
  static constexpr Route kRoute = Route::kAnswers;
  static constexpr size_t kShortestBytes = 320;
  Name name;
  BusyTime busy;
  uint64_t executors_started;
  uint64_t executors_failed;
  uint64_t executors_lost;
  uint32_t executors;  // now, those that are ending included
  uint32_t sessions;
  uint32_t allocations;
  uint32_t unused;
  uint64_t overruns;  // turns that it ended so late that others did not wait for it; since 3.7
  // Since 3.7: from the serving executor's ExecutorReady; empty: none is ready, or it is an older one.
  char executor_version[64];
  char executor_cupti[256];
  uint32_t executor_has_cupti;
  uint32_t
      executor_is_lenient;  // 1: the serving one is not fully confined: its driver does not start otherwise
  // How much of the device's time the others are to have before the domain, which overran a turn for long, gets one
  // again; 0: it does not wait. Since 3.8
  uint64_t overrun_wait_ns;
};

// ---- long kernels, since 3.4 ----

// Executor, about once a second: a kernel of the session has been running for a second or longer, and its allocation
// has a limit (KernelTerms). Answered by Answer when `request` is not 0: not ok if it has run for too long, with the
// message for its program. Then the executor sends ExecutorFault, and ends.
struct LongKernel {
  static constexpr std::string_view kName = "LongKernel";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t session_id;
  uint64_t kernel;    // the same number: the same kernel
  uint64_t ran_ns;    // for how long no known work has been ahead of it
  uint32_t launches;  // this many went to the device together; one of them is the kernel
  uint32_t unused;
  char function[256];  // the first one's name; empty: a graph, or not known
};

// ---- since 3.8 ----

// Executor: the sessions of the allocation keep the multiprocessors that they have, because what the policy says of them
// (PartitionTerms) is not possible now. It is tried again whenever something changes. Sent when that begins, when the
// reason changes, and when it ends; no longer in force once the allocation has no session. Not sent to schedulers before 3.8
// (AddSession::scheduler_minor).
struct PartitionPending {
  static constexpr std::string_view kName = "PartitionPending";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t allocation_id;
  char why[256];  // in words; empty: they have what the policy says
};

}  // namespace gpuloom::control
