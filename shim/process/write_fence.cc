// SPDX-License-Identifier: Apache-2.0
#include "shim/process/write_fence.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#include "shim/process/futex.h"

namespace gpuloom {
namespace {

struct Fence {
  // Odd while the fence is up. What follows changes only while it is even.
  std::atomic<uint32_t> turn{0};
  std::atomic<uint64_t> begin{0};
  std::atomic<uint64_t> end{0};
  // All that was ever fenced lies in here.
  std::atomic<uint64_t> lowest{UINT64_MAX};
  std::atomic<uint64_t> highest{0};

  bool installed = false;
  struct sigaction previous = {};
};
constinit Fence fence;

// A thread's last fault for which the fence was already down when the handler ran. The instruction is then retried, once:
// if it faults again, the fault is the program's own. Not thread-local, because such memory may have to be allocated
// first. Threads that share an entry only retry more often.
struct Retried {
  std::atomic<uint32_t> thread{0};
  std::atomic<uint32_t> turn{0};
  std::atomic<uint64_t> address{0};

  // Records the fault. Returns false if it was the last one recorded, so a retry has failed.
  bool Note(uint32_t by, uint64_t at, uint32_t at_turn) {
    const bool thread_changed = thread.exchange(by) != by;
    const bool turn_changed = turn.exchange(at_turn) != at_turn;
    const bool address_changed = address.exchange(at) != at;
    return thread_changed || turn_changed || address_changed;
  }
};
constexpr uint32_t kRetried = 64;
constinit Retried retried[kRetried];

// Waits while the fence covers the address. Returns whether the instruction is to be retried.
bool WaitForFence(uint64_t address) {
  for (;;) {
    const uint32_t turn = fence.turn.load(std::memory_order_acquire);
    const bool inside = address >= fence.begin.load(std::memory_order_relaxed) &&
                        address < fence.end.load(std::memory_order_relaxed);
    if (fence.turn.load(std::memory_order_acquire) != turn) continue;
    if (turn % 2 != 0 && inside) {
      FutexWait(&fence.turn, turn);
      continue;
    }
    // The fence may have been up when the thread faulted. The same fault with the fence down is the program's own.
    if (address < fence.lowest.load(std::memory_order_relaxed) ||
        address >= fence.highest.load(std::memory_order_relaxed)) {
      return false;
    }
    const auto thread = static_cast<uint32_t>(syscall(SYS_gettid));
    return retried[thread % kRetried].Note(thread, address, turn);
  }
}

void PassOn(int signal, siginfo_t* info, void* context) {
  const struct sigaction& previous = fence.previous;
  const bool sent = info->si_code <= 0;  // by a process; a fault comes again by itself
  if ((previous.sa_flags & SA_SIGINFO) == 0) {
    if (previous.sa_handler == SIG_IGN && sent) return;
    if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
      struct sigaction none = {};
      none.sa_handler = SIG_DFL;
      sigaction(signal, &none, nullptr);
      if (sent) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), signal);
      return;
    }
  }
  if ((previous.sa_flags & SA_RESETHAND) != 0) {
    struct sigaction none = {};
    none.sa_handler = SIG_DFL;
    sigaction(signal, &none, nullptr);
  }
  if ((previous.sa_flags & SA_SIGINFO) != 0) {
    previous.sa_sigaction(signal, info, context);
  } else {
    previous.sa_handler(signal);
  }
}

void OnFault(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  const bool again =
      info->si_code == SEGV_ACCERR && WaitForFence(reinterpret_cast<uint64_t>(info->si_addr));
  errno = error;
  if (!again) PassOn(signal, info, context);
}

// Ours runs as the previous one would: on the same stack, with the same signals blocked.
bool HandlesFaults() {
  struct sigaction now = {};
  if (sigaction(SIGSEGV, nullptr, &now) != 0) return false;
  if (fence.installed) return (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == &OnFault;
  struct sigaction ours = {};
  ours.sa_sigaction = &OnFault;
  ours.sa_mask = now.sa_mask;
  const bool handled =
      (now.sa_flags & SA_SIGINFO) != 0 || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN);
  const int kept = handled ? now.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART) : SA_ONSTACK;
  ours.sa_flags = SA_SIGINFO | kept;
  fence.previous = now;
  fence.installed = sigaction(SIGSEGV, &ours, nullptr) == 0;
  return fence.installed;
}

}  // namespace

bool RaiseFence(uint64_t begin, uint64_t size_bytes) {
  if (!HandlesFaults()) return false;
  const uint64_t end = begin + size_bytes;
  fence.begin.store(begin, std::memory_order_relaxed);
  fence.end.store(end, std::memory_order_relaxed);
  if (begin < fence.lowest.load(std::memory_order_relaxed)) fence.lowest.store(begin);
  if (end > fence.highest.load(std::memory_order_relaxed)) fence.highest.store(end);
  fence.turn.fetch_add(1, std::memory_order_acq_rel);
  // When this returns, no processor writes there any more.
  if (mprotect(reinterpret_cast<void*>(begin), size_bytes, PROT_READ) == 0) return true;
  // A part may have been changed before the kernel ran out of memory.
  mprotect(reinterpret_cast<void*>(begin), size_bytes, PROT_READ | PROT_WRITE);
  LowerFence();
  return false;
}

void LowerFence() {
  fence.turn.fetch_add(1, std::memory_order_acq_rel);
  FutexWake(&fence.turn, INT_MAX);
}

}  // namespace gpuloom
