// SPDX-License-Identifier: Apache-2.0
// How the program's threads wait for the executor: they poll for some time, first spinning and then
// yielding the processor, with naps through most of what such waits took lately; then they sleep. One of the sleeping threads polls the doorbell and the
// scheduler's connection for all; the others wait for it in the process. A hang-up of either peer
// ends every wait: the session is lost.
//
// Owned by Session, used after Start. Safe from any thread. Every function returns CUDA_SUCCESS or
// the error that every later call of the program also returns (sticky, like CUDA's after a fault).
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/sync/wait_history.h"
#include "proto/wire/completion_reader.h"
#include "proto/wire/regions.h"
#include "shim/process/futex.h"

namespace gpuloom {

// What a thread can wait for: a stream's progress, a reply, or a host function becoming due.
struct Awaited {
  enum class Kind : uint32_t { kStream, kReply, kHostFunction } kind;
  uint32_t index;  // stream id, reply slot, or which host function, counted from 0
  wire::Ticket ticket;
};

class Waiting {
 public:
  // The session owns the descriptors and regions, which outlive this object.
  void Start(wire::CommandRegion* commands, const wire::CompletionRegion* completions, int doorbell,
             int connection);

  [[nodiscard]] CUresult Wait(const Awaited& awaited);
  // How long a wait stays awake: CU_CTX_SCHED_* as the program set it.
  void set_schedule(unsigned schedule) { schedule_.store(schedule, std::memory_order_relaxed); }
  bool Holds(const Awaited& awaited) const {
    switch (awaited.kind) {
      case Awaited::Kind::kStream:
        return completions_.Done(wire::StreamId{awaited.index}, awaited.ticket);
      case Awaited::Kind::kReply:
        return completions_.FindReply(static_cast<uint16_t>(awaited.index), awaited.ticket) !=
               nullptr;
      case Awaited::Kind::kHostFunction:
        return static_cast<int32_t>(completions_.host_functions_due() - awaited.index) > 0;
    }
    return false;
  }

  // One turn of waiting for room in the ring; `turn` counts the caller's turns from 0, or is kLongTurn where that takes
  // long.
  static constexpr uint32_t kLongTurn = UINT32_MAX;
  [[nodiscard]] CUresult WaitForRoom(uint32_t turn);

  // Whether the session is alive, from memory alone.
  [[nodiscard]] CUresult Health() {
    const int lost = lost_.load(std::memory_order_relaxed);
    if (lost != 0) [[unlikely]] {
      return static_cast<CUresult>(lost);
    }
    if ((completions_.fault() | static_cast<uint32_t>(completions_.fatal())) != 0) [[unlikely]] {
      return NoteFailure();
    }
    return CUDA_SUCCESS;
  }
  // The same for programs that poll without waiting: also checks for a hang-up, at most every 10
  // ms.
  [[nodiscard]] CUresult HealthOfPoller();

  const wire::CompletionReader& completions() const { return completions_; }

 private:
  CUresult WaitLong(const Awaited& awaited);
  CUresult Sleep(const Awaited& awaited);
  CUresult NoteFailure();
  void LoseSession(CUresult code, const char* reason);
  void NoteHangUp();
  // Blocks for `timeout_ns` (negative: for ever) or until a peer hangs up.
  void PollForHangUp(int64_t timeout_ns);
  void PollDoorbell();

  wire::CompletionReader completions_;
  uint32_t* tenant_sleeps_ = nullptr;  // CommandHead::tenant_sleeps
  uint32_t* tenant_waits_ = nullptr;   // CommandHead::tenant_waits
  int doorbell_ = -1;
  int connection_ = -1;
  std::atomic<int> lost_{0};  // the sticky CUresult
  std::atomic<bool> fault_reported_{false};
  std::atomic<int64_t> last_hang_up_poll_ns_{0};
  std::atomic<unsigned> schedule_{0};
  // The kernel's timers are 50 us late by default, and short waits are not worth it.
  WaitHistory stream_waits_{/*shortest_ns=*/250'000, /*wake_ns=*/60'000};
  bool many_processors_ = false;

  Lock sleep_lock_;
  // CommandHead::tenant_sleeps is 1 while not zero.
  uint32_t sleepers_ GPULOOM_GUARDED_BY(sleep_lock_) = 0;
  bool has_poller_ GPULOOM_GUARDED_BY(sleep_lock_) = false;  // a thread is polling
  std::atomic<uint32_t> wake_{0};  // changes whenever the sleepers should check again
};

}  // namespace gpuloom
