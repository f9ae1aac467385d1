// SPDX-License-Identifier: Apache-2.0
// Threads join whichever grid has least help and stay until it has no blocks left. They are never
// joined: a process may exit, or a stream run a grid, at any time.
#include "agent/softgpu/exec/machine/crew.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

namespace gpuloom::softgpu {
namespace {

// The affinity mask and not the number of processors: containers are often pinned to a few. A
// machine with more processors than cpu_set_t has bits runs grids alone.
uint32_t Processors() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&allowed)));
}

}  // namespace

// Never destroyed: its threads and grids outlive static destructors.
Crew& Crew::Instance() {
  static auto* crew = new Crew;
  return *crew;
}

Crew::Crew() : size_(Processors()) {}

void Crew::SetSize(uint32_t threads) { size_ = threads == 0 ? Processors() : threads; }

void Crew::StartLocked() {
  // Set first and for good: when some threads cannot be made, trying again with each grid would not
  // help.
  started_ = true;
  // The application's signal handlers belong on the application's threads. A new thread inherits
  // the mask of the one that makes it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (uint32_t i = 1; i < size_; ++i) {
    try {
      std::thread([this] { Serve(); }).detach();
    } catch (const std::system_error&) {
      break;  // no more threads for this process: grids do with those that there are
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Few grids run at once, so a walk is enough.
Crew::Help* Crew::NextLocked() {
  Help* best = nullptr;
  for (Help* const help : open_) {
    if (best == nullptr || help->inside_ < best->inside_) best = help;
  }
  return best;
}

void Crew::Serve() {
  pthread_setname_np(pthread_self(), "softgpu-blocks");
  MutexLock lock(mutex_);
  while (true) {
    Help* help = nullptr;
    wanted_.Wait(mutex_, [&]() GPULOOM_REQUIRES(mutex_) {
      help = NextLocked();
      return help != nullptr;
    });
    // Without the lock: the work is a grid's blocks. The Help cannot go meanwhile, as its
    // destructor waits for inside_.
    ++help->inside_;
    lock.Unlock();
    help->work_();
    lock.Lock();
    // Nothing was left to do, so no other thread needs to join. The destructor may have removed it
    // already.
    open_.remove(help);
    --help->inside_;
    left_.NotifyAll();
  }
}

Crew::Help::Help(std::function<void()> work) : work_(std::move(work)) {
  Crew& crew = Instance();
  const MutexLock lock(crew.mutex_);
  if (!crew.started_) crew.StartLocked();
  crew.open_.push_back(this);
  crew.wanted_.NotifyAll();
}

// In this order: no new thread joins, then those inside leave. After that, what `work` refers to
// may go.
Crew::Help::~Help() {
  Crew& crew = Instance();
  const MutexLock lock(crew.mutex_);
  crew.open_.remove(this);
  crew.left_.Wait(crew.mutex_, [&]() GPULOOM_REQUIRES(crew.mutex_) { return inside_ == 0; });
}

}  // namespace gpuloom::softgpu
