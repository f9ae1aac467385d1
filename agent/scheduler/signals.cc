// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/signals.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "agent/node/log_signals.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"

namespace gpuloom::scheduler {
namespace {

sigset_t ExpectedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGCHLD, SIGTERM, SIGINT, kLogMoreSignal, kLogAsConfiguredSignal}) {
    sigaddset(&signals, signal);
  }
  return signals;
}

}  // namespace

void BlockSignals() {
  const sigset_t signals = ExpectedSignals();
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

SignalWatch::SignalWatch() {
  const sigset_t signals = ExpectedSignals();
  fd_ = channel::UniqueFd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
}

void SignalWatch::Begin(EventLoop* loop, Scheduler* scheduler) {
  watch_ = loop->WatchFd(fd_.get(), EPOLLIN, [this, scheduler](uint32_t) { PassOn(scheduler); });
}

void SignalWatch::PassOn(Scheduler* scheduler) {
  signalfd_siginfo info;
  while (read(fd_.get(), &info, sizeof(info)) == sizeof(info)) {
    switch (info.ssi_signo) {
      case SIGCHLD:
        scheduler->OnChildExit();
        break;
      case kLogMoreSignal:
      case kLogAsConfiguredSignal:
        LogMore("gpuloom-scheduler", info.ssi_signo == kLogMoreSignal);
        scheduler->LetExecutorsLog();
        break;
      default:
        scheduler->Shutdown();
    }
  }
}

}  // namespace gpuloom::scheduler
