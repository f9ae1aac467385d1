// SPDX-License-Identifier: Apache-2.0
#include "shim/session/waiting.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>

#include "proto/channel/socket.h"
#include "proto/cuda/return_if_error.h"
#include "proto/sync/cpu_pause.h"
#include "shim/process/log.h"

namespace gpuloom {
namespace {

// A round trip through a waking executor takes 5 to 20 us.
constexpr int64_t kSpinNs = 30'000;
// Going to sleep and being woken costs 35 to 85 us in a virtual machine: 1 % of the wait at the
// end of this time and more before, so until then a wait stays awake, or naps as long as the last
// ones let it, and leaves the processor to whoever wants it. NVIDIA's driver spins without end
// unless it is told otherwise.
constexpr int64_t kYieldNs = 8'000'000;
// With fewer processors, the executor or the scheduler may be waiting for ours.
constexpr int kManyProcessors = 4;
// If the program asks for spinning: a wait longer than this must notice a hang-up.
constexpr int64_t kLongSpinNs = 100'000'000;
constexpr int64_t kHangUpPollNs = 10'000'000;
constexpr int64_t kRoomNapNs = 50'000;
constexpr uint32_t kRoomSpins = 2000;

int64_t Now(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

void Waiting::Start(wire::CommandRegion* commands, const wire::CompletionRegion* completions,
                    int doorbell, int connection) {
  completions_ = wire::CompletionReader(completions);
  tenant_sleeps_ = &commands->head.tenant_sleeps;
  tenant_waits_ = &commands->head.tenant_waits;
  doorbell_ = doorbell;
  connection_ = connection;
  cpu_set_t processors;
  many_processors_ = sched_getaffinity(0, sizeof(processors), &processors) != 0 ||
                     CPU_COUNT(&processors) >= kManyProcessors;
}

CUresult Waiting::Wait(const Awaited& awaited) {
  if (Holds(awaited)) return CUDA_SUCCESS;
  if (awaited.kind != Awaited::Kind::kStream) return WaitLong(awaited);
  // As early as possible: the executor checks this when it has submitted what we wait for.
  const std::atomic_ref<uint32_t> waits(*tenant_waits_);
  waits.fetch_add(1, std::memory_order_relaxed);
  const CUresult result = WaitLong(awaited);
  waits.fetch_sub(1, std::memory_order_relaxed);
  return result;
}

CUresult Waiting::WaitLong(const Awaited& awaited) {
  const unsigned schedule = schedule_.load(std::memory_order_relaxed);
  // The thread for host functions does not spin: the program has not asked for its latency at the
  // cost of a processor.
  const bool in_background = awaited.kind == Awaited::Kind::kHostFunction;
  const int64_t spin_ns = schedule == CU_CTX_SCHED_SPIN && !in_background ? kLongSpinNs : kSpinNs;
  const int64_t yield_ns =
      schedule == CU_CTX_SCHED_BLOCKING_SYNC || !many_processors_ || in_background ? 0 : kYieldNs;
  // Not where the program asks for spinning, nor for a reply: those waits have no common length.
  const bool naps =
      awaited.kind == Awaited::Kind::kStream && schedule != CU_CTX_SCHED_SPIN && yield_ns != 0;
  const int64_t begin_ns = Now(CLOCK_MONOTONIC);
  for (int64_t waited_ns = 0; waited_ns < spin_ns + yield_ns;
       waited_ns = Now(CLOCK_MONOTONIC) - begin_ns) {
    if (const int64_t nap_ns = naps ? stream_waits_.SleepNs(waited_ns) : 0; nap_ns != 0) {
      PollForHangUp(nap_ns);
    } else if (waited_ns >= spin_ns) {
      sched_yield();
    }
    for (int i = 0; i < 16; ++i) {
      if (Holds(awaited)) {
        if (naps && waited_ns >= spin_ns)
          stream_waits_.Note(waited_ns, Now(CLOCK_MONOTONIC) - begin_ns);
        return CUDA_SUCCESS;
      }
      CpuPause();
    }
    CUDA_RETURN_IF_ERROR(Health());
  }
  const CUresult result = Sleep(awaited);
  if (naps) {
    const int64_t waited_ns = Now(CLOCK_MONOTONIC) - begin_ns;
    stream_waits_.Note(waited_ns, waited_ns);
  }
  return result;
}

CUresult Waiting::Sleep(const Awaited& awaited) {
  {
    Holding holding(&sleep_lock_);
    if (sleepers_++ == 0) {
      std::atomic_ref<uint32_t>(*tenant_sleeps_).store(1, std::memory_order_seq_cst);
    }
  }
  CUresult result = CUDA_SUCCESS;
  for (;;) {
    const uint32_t seen = wake_.load(std::memory_order_acquire);
    // Having announced the sleep, look again: the executor publishes first, then checks whether
    // a thread sleeps.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (Holds(awaited)) break;
    result = Health();
    if (result != CUDA_SUCCESS) break;
    bool lead = false;
    {
      Holding holding(&sleep_lock_);
      // Since we looked, the thread that led may have consumed the doorbell byte that was meant for us.
      if (wake_.load(std::memory_order_relaxed) != seen) continue;
      if (!has_poller_) has_poller_ = lead = true;
    }
    if (!lead) {
      FutexWait(&wake_, seen);
      continue;
    }
    PollDoorbell();
    bool others;
    {
      Holding holding(&sleep_lock_);
      has_poller_ = false;
      others = sleepers_ > 1;
      // Before the next one leads: what the doorbell said is gone.
      wake_.fetch_add(1, std::memory_order_acq_rel);
    }
    if (others) FutexWake(&wake_, INT_MAX);
  }
  Holding holding(&sleep_lock_);
  if (--sleepers_ == 0) {
    std::atomic_ref<uint32_t>(*tenant_sleeps_).store(0, std::memory_order_relaxed);
  }
  return result;
}

void Waiting::PollDoorbell() {
  pollfd peers[2] = {{doorbell_, POLLIN, 0}, {connection_, POLLIN, 0}};
  if (poll(peers, 2, -1) <= 0) return;  // a signal: the caller looks again
  bool hung_up = false;
  if (peers[0].revents != 0) hung_up = !channel::DrainDoorbell(doorbell_);
  if (peers[1].revents != 0) {
    // The scheduler says nothing after its welcome; whatever a later one says is dropped.
    char dropped[64];
    const ssize_t size = recv(connection_, dropped, sizeof(dropped), MSG_DONTWAIT);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) hung_up = true;
  }
  if (hung_up) NoteHangUp();
}

void Waiting::PollForHangUp(int64_t timeout_ns) {
  pollfd peers[2] = {{doorbell_, 0, 0}, {connection_, 0, 0}};
  const timespec timeout = {timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  if (ppoll(peers, 2, &timeout, nullptr) <= 0) return;
  if (((peers[0].revents | peers[1].revents) & (POLLHUP | POLLERR | POLLNVAL)) != 0) NoteHangUp();
}

CUresult Waiting::WaitForRoom(uint32_t turn) {
  CUDA_RETURN_IF_ERROR(Health());
  if (turn < kRoomSpins) {
    CpuPause();
  } else {
    // The executor does not ring when it moves its head, so take a short nap, which ends at a
    // hang-up.
    PollForHangUp(kRoomNapNs);
  }
  return Health();
}

CUresult Waiting::HealthOfPoller() {
  CUDA_RETURN_IF_ERROR(Health());
  const int64_t now_ns = Now(CLOCK_MONOTONIC_COARSE);
  int64_t last_ns = last_hang_up_poll_ns_.load(std::memory_order_relaxed);
  if (now_ns - last_ns >= kHangUpPollNs &&
      last_hang_up_poll_ns_.compare_exchange_strong(last_ns, now_ns, std::memory_order_relaxed)) {
    PollForHangUp(0);
  }
  return Health();
}

void Waiting::NoteHangUp() {
  // What the executor published before it ended is still there, and tells more than the hang-up.
  if (completions_.fault() != 0 || completions_.fatal() != wire::Fatal::kNone) {
    NoteFailure();
  } else {
    LoseSession(CUDA_ERROR_LAUNCH_FAILED, "the executor or its scheduler has ended");
  }
}

CUresult Waiting::NoteFailure() {
  const uint32_t fault = completions_.fault();
  const wire::Fatal fatal = completions_.fatal();
  if (fault != 0) {
    if (lost_.load(std::memory_order_relaxed) == 0 && !fault_reported_.exchange(true)) {
      uint32_t bytes = completions_.fault_text_bytes();
      if (bytes > wire::kFaultTextBytes) bytes = wire::kFaultTextBytes;
      if (bytes != 0) WriteError(completions_.fault_text(), bytes);
    }
    LoseSession(static_cast<CUresult>(fault), "the device reported a fault");
  } else if (fatal != wire::Fatal::kNone) {
    const std::string_view text = wire::FatalText(fatal);
    char reason[160];
    snprintf(reason, sizeof(reason), "the executor refused what we wrote: %.*s",
             static_cast<int>(text.size()), text.data());
    LoseSession(CUDA_ERROR_LAUNCH_FAILED, reason);
  }
  return static_cast<CUresult>(lost_.load(std::memory_order_relaxed));
}

void Waiting::LoseSession(CUresult code, const char* reason) {
  int none = 0;
  if (!lost_.compare_exchange_strong(none, code)) return;
  Log(LogLevel::kError,
      "session lost: %s; every CUDA call of this process returns error %d from here on, restart it",
      reason, static_cast<int>(code));
  wake_.fetch_add(1, std::memory_order_acq_rel);
  FutexWake(&wake_, INT_MAX);
}

}  // namespace gpuloom
