// SPDX-License-Identifier: Apache-2.0
#include "shim/copy/copy_threads.h"

#include "proto/sync/cpu_pause.h"
#include "shim/process/clock.h"
#include "shim/process/futex.h"
#include "shim/process/processors.h"
#include "shim/process/thread.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

// Processors left to the caller and the executor.
constexpr uint32_t kProcessorsOfOthers = 2;
// About what sleeping and waking costs.
constexpr int64_t kStayAwakeNs = 60'000;
// A helper that is still copying its last piece needs only some microseconds more.
constexpr int kSpinsForTheLast = 4000;

// Whether helpers are inside the caller's function, and whether the caller sleeps until they have
// left.
constexpr uint32_t kNoneInside = 0;
constexpr uint32_t kInside = 1;
constexpr uint32_t kAwaited = 2;

using Part = void (*)(void* context);

struct CopyThreads {
  Lock lock;
  bool started GPULOOM_GUARDED_BY(lock) = false;
  uint32_t count GPULOOM_GUARDED_BY(lock) = 0;
  bool open GPULOOM_GUARDED_BY(lock) = false;  // helpers may join
  // A call is being helped, or waits for its last helper.
  bool taken GPULOOM_GUARDED_BY(lock) = false;
  uint32_t inside GPULOOM_GUARDED_BY(lock) = 0;  // helpers
  Part part GPULOOM_GUARDED_BY(lock) = nullptr;
  void* context GPULOOM_GUARDED_BY(lock) = nullptr;

  std::atomic<uint32_t> announced{0};  // calls, running free
  std::atomic<uint32_t> asleep{0};     // helpers, or about to be
  std::atomic<uint32_t> helpers{kNoneInside};
};
constinit CopyThreads threads;

// Returns false if no copy wants help.
bool HelpOnce() {
  Part part;
  void* context;
  {
    Holding holding(&threads.lock);
    if (!threads.open) return false;
    ++threads.inside;
    if (threads.inside == 1) threads.helpers.store(kInside, std::memory_order_relaxed);
    part = threads.part;
    context = threads.context;
  }
  part(context);
  bool wake = false;
  {
    Holding holding(&threads.lock);
    if (--threads.inside == 0) {
      wake = threads.helpers.exchange(kNoneInside, std::memory_order_acq_rel) == kAwaited;
    }
  }
  if (wake) FutexWake(&threads.helpers, 1);
  return true;
}

void RunHelper() {
  for (int64_t helped_ns = 0;;) {
    const uint32_t seen = threads.announced.load(std::memory_order_acquire);
    if (HelpOnce()) helped_ns = NowNs();
    bool called = false;
    while (!called && NowNs() - helped_ns < kStayAwakeNs) {
      for (int i = 0; i < 32 && !called; ++i) {
        CpuPause();
        called = threads.announced.load(std::memory_order_acquire) != seen;
      }
    }
    if (called) continue;
    threads.asleep.fetch_add(1, std::memory_order_seq_cst);
    FutexWait(&threads.announced, seen);  // returns at once when there was another call
    threads.asleep.fetch_sub(1, std::memory_order_seq_cst);
  }
}

uint32_t WantedThreads() {
  const int asked = session.settings().copy_threads;
  const uint32_t processors = asked >= 0 ? 0 : CountProcessors();
  uint32_t wanted = static_cast<uint32_t>(asked);
  if (asked < 0) wanted = processors > kProcessorsOfOthers ? processors - kProcessorsOfOthers : 0;
  return wanted < kMostCopyThreads ? wanted : kMostCopyThreads;
}

void StartLocked() GPULOOM_REQUIRES(threads.lock) {
  threads.started = true;
  const uint32_t wanted = WantedThreads();
  while (threads.count < wanted && StartThread("gpuloom-copy", nullptr, &RunHelper)) {
    ++threads.count;
  }
}

// Returns false if the caller has to work alone.
bool Open(Part part, void* context, Help help) {
  Holding holding(&threads.lock);
  if (!threads.started && help == Help::kWake) StartLocked();
  if (threads.count == 0 || threads.taken) return false;
  threads.open = threads.taken = true;
  threads.part = part;
  threads.context = context;
  return true;
}

void Close() {
  {
    Holding holding(&threads.lock);
    threads.open = false;
  }
  for (int spins = 0;; ++spins) {
    uint32_t seen = threads.helpers.load(std::memory_order_acquire);
    if (seen == kNoneInside) break;
    if (spins < kSpinsForTheLast) {
      CpuPause();
    } else if (seen == kAwaited || threads.helpers.compare_exchange_strong(seen, kAwaited)) {
      FutexWait(&threads.helpers, kAwaited);
    }
  }
  Holding holding(&threads.lock);
  threads.taken = false;
}

}  // namespace

bool CopiesAlone() {
  Holding holding(&threads.lock);
  if (!threads.started) StartLocked();
  return threads.count == 0;
}

void DoTogether(void (*part)(void* context), void* context, Help help) {
  const bool helped = help != Help::kNone && Open(part, context, help);
  if (helped) {
    threads.announced.fetch_add(1, std::memory_order_seq_cst);
    if (help == Help::kWake && threads.asleep.load(std::memory_order_seq_cst) != 0) {
      FutexWake(&threads.announced, static_cast<int>(kMostCopyThreads));
    }
  }
  part(context);
  if (helped) Close();
}

}  // namespace gpuloom
