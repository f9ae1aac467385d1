// SPDX-License-Identifier: Apache-2.0
#include "shim/process/thread.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "shim/process/log.h"
#include "shim/process/oldest_glibc.h"

extern "C" {
__attribute__((weak)) int OldPthreadCreate(pthread_t*, const pthread_attr_t*, void* (*)(void*),
                                           void*);
__attribute__((weak)) int OldPthreadDetach(pthread_t);
}
__asm__(".symver OldPthreadCreate, pthread_create@" GPULOOM_OLDEST_GLIBC);
__asm__(".symver OldPthreadDetach, pthread_detach@" GPULOOM_OLDEST_GLIBC);

namespace gpuloom {
namespace {

// What the new thread is to do; malloc'ed, and freed by it, since the starter does not wait.
struct Order {
  const char* name;
  void (*run)();
};

void* Run(void* allocated) {
  const Order order = *static_cast<Order*>(allocated);
  free(allocated);
  // By prctl: pthread_setname_np would be another symbol of the thread library. Operators see the
  // name in `top -H`.
  prctl(PR_SET_NAME, order.name, 0, 0, 0);
  order.run();
  return nullptr;
}

}  // namespace

bool StartThread(const char* name, const char* purpose, void (*run)()) {
  if (OldPthreadCreate == nullptr || OldPthreadDetach == nullptr) {
    if (purpose != nullptr) {
      Log(LogLevel::kWarn,
          "%s need a program with threads here: link it with -pthread, or run it on glibc 2.34 or "
          "newer",
          purpose);
    }
    return false;
  }
  auto* order = static_cast<Order*>(malloc(sizeof(Order)));
  if (order == nullptr) return false;
  *order = {name, run};
  // A thread inherits its starter's mask, so the signals are blocked from its first instruction on.
  sigset_t blocked, previous;
  sigfillset(&blocked);
  // Blocked, a fault would end the process without asking its handler.
  constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
  for (const int fault : kFaults) sigdelset(&blocked, fault);
  sigprocmask(SIG_SETMASK, &blocked, &previous);
  pthread_t thread;
  const bool started = OldPthreadCreate(&thread, nullptr, &Run, order) == 0;
  sigprocmask(SIG_SETMASK, &previous, nullptr);
  if (started) {
    // Nobody joins it: it ends with the process.
    OldPthreadDetach(thread);
  } else {
    free(order);
  }
  return started;
}

}  // namespace gpuloom
