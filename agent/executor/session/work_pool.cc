// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/work_pool.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "agent/executor/device/device.h"
#include "agent/executor/process/crash_report.h"
#include "agent/executor/session/slice.h"
#include "agent/node/clock.h"
#include "proto/sync/cpu_pause.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

// How long one worker stays awake for work that was announced (WorkPool::Expect).
constexpr uint64_t kExpectedNs = 2'000'000;
// With fewer, a worker that polls takes a processor from the threads it waits for.
constexpr unsigned kManyProcessors = 8;

bool HasManyProcessors() {
  static const bool kHasMany = std::thread::hardware_concurrency() >= kManyProcessors;
  return kHasMany;
}

}  // namespace

WorkPool::WorkPool(const Device* device, int threads, int wake_fd)
    : device_(device),
      wake_fd_(wake_fd),
      // Half of the threads: endless compilations of one tenant leave the others the rest at once,
      // and replacements later.
      most_of_tenant_(static_cast<size_t>(std::max(threads / 2, 1))) {
  const MutexLock lock(mutex_);
  for (int i = 0; i < threads; ++i) AddWorker();
}

void WorkPool::AddWorker() {
  Worker* worker = &workers_.emplace_back();
  worker->thread = std::thread([this, worker] { Run(worker); });
}

// Nothing is posted by workers, so when all have been joined only finished jobs are left. Their
// `done` is never called: at this point the sessions are about to be destroyed.
void WorkPool::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  changed_.NotifyAll();
  for (const Own& own : own_) {
    const MutexLock lock(own.jobs->mutex);
    own.jobs->waiting.clear();
    own.jobs->closed = true;
    own.jobs->changed.NotifyAll();
  }
  for (Worker& worker : workers_) worker.thread.join();
  for (Own& own : own_) own.thread.join();
  workers_.clear();
  own_.clear();
  std::deque<std::function<void()>> dropped;  // their destructors may call back into this
  {
    const MutexLock lock(mutex_);
    dropped.swap(finished_);
  }
  taken_.clear();
}

void WorkPool::Post(std::function<void()> work, std::function<void()> done, const void* owner,
                    const void* tenant) {
  // Called by destructors at the end of the process or of a test: the work is done at once, because
  // no thread would run it later.
  if (stopping_) {
    work();
    done();
    return;
  }
  ++posted_;
  // For fuzzers, which need every run to be the same.
  if (workers_.empty()) {
    work();
    const MutexLock lock(mutex_);
    finished_.push_back(std::move(done));
    any_finished_.store(true, std::memory_order_release);
    return;
  }
  bool somebody_looks;
  {
    const MutexLock lock(mutex_);
    jobs_.push_back({std::move(work), std::move(done), owner, tenant});
    // The worker that polls takes this one; for a second job another thread is woken.
    somebody_looks = worker_spinning_ && jobs_.size() == 1;
    waiting_count_.store(static_cast<uint32_t>(jobs_.size()), std::memory_order_release);
  }
  if (!somebody_looks) changed_.NotifyOne();
}

// Counts replaced workers, too: a tenant's jobs that were left behind keep their place in its half.
bool WorkPool::MayRun(const Job& job) const {
  if (job.tenant == nullptr) return true;
  const auto running = std::count_if(workers_.begin(), workers_.end(), [&](const Worker& one) {
    return one.since_ns != 0 && one.tenant == job.tenant;
  });
  return static_cast<size_t>(running) < most_of_tenant_;
}

// For each tenant, the pool has at most one job per session; other jobs belong to no tenant.
std::deque<WorkPool::Job>::iterator WorkPool::NextJob() {
  return std::find_if(jobs_.begin(), jobs_.end(),
                      [this](const Job& job) GPULOOM_REQUIRES(mutex_) { return MayRun(job); });
}

// The worker's thread cannot be stopped in the driver's call, so another one takes its place in the
// pool.
void WorkPool::Replace(Worker* worker) {
  if (worker->left || left_ >= kMostLeft || stopping_) return;
  worker->left = true;
  ++left_;
  AddWorker();
}

// Moves ended workers out of the list, for the ring thread to join: a thread cannot join itself.
void WorkPool::TakeEnded(std::list<Worker>* ended) {
  for (auto it = workers_.begin(); it != workers_.end();) {
    const auto worker = it++;
    if (worker->ended) ended->splice(ended->end(), workers_, worker);
  }
}

// A worker that has been at one job for long no longer counts as one of the pool's threads, whether
// its session still wants the result or not.
void WorkPool::Tick(uint64_t now_ns) {
  std::list<Worker> ended;
  {
    const MutexLock lock(mutex_);
    TakeEnded(&ended);
    for (Worker& worker : workers_) {
      if (worker.since_ns != 0 && now_ns > worker.since_ns + kLongNs) Replace(&worker);
    }
  }
  for (Worker& worker : ended) worker.thread.join();
}

bool WorkPool::Leave(const void* owner) {
  Job dropped;  // its destructor may post
  std::list<Worker> ended;
  const MutexLock lock(mutex_);
  TakeEnded(&ended);
  // An ended worker holds no lock and makes no call any more, so this waits for the thread's exit
  // only.
  for (Worker& worker : ended) worker.thread.join();
  const auto job = std::find_if(jobs_.begin(), jobs_.end(),
                                [owner](const Job& one) { return one.owner == owner; });
  if (job != jobs_.end()) {
    dropped = std::move(*job);
    jobs_.erase(job);
    waiting_count_.store(static_cast<uint32_t>(jobs_.size()), std::memory_order_release);
    ++finished_count_;
    return true;
  }
  const auto worker = std::find_if(workers_.begin(), workers_.end(), [owner](const Worker& one) {
    return one.since_ns != 0 && one.owner == owner;
  });
  if (worker != workers_.end()) Replace(&*worker);
  return false;
}

// The time is stored before the lock is taken: a worker on its way to sleep sees it, or is woken.
void WorkPool::Expect() {
  if (!HasManyProcessors()) return;
  expected_until_ns_.store(NowNs() + kExpectedNs, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  if (!worker_spinning_) changed_.NotifyOne();
}

// Takes all that has finished with one lock, and keeps what the slice leaves over for the next
// round.
bool WorkPool::RunFinished(Slice* slice) {
  if (any_finished_.load(std::memory_order_acquire)) {
    const MutexLock lock(mutex_);
    std::move(finished_.begin(), finished_.end(), std::back_inserter(taken_));
    finished_.clear();
    any_finished_.store(false, std::memory_order_relaxed);
  }
  // Jobs that these post and that finish at once, where there are no threads, follow in the next
  // round.
  size_t left = taken_.size();
  if (left == 0) return false;
  do {
    const std::function<void()> done = std::move(taken_.front());
    taken_.pop_front();
    ++finished_count_;
    done();
  } while (--left != 0 && !slice->Over());
  return true;
}

// A worker sleeps, or polls without the lock while work is expected; at most one polls. `self` is
// written with the lock held, for the ring thread reads it.
void WorkPool::Run(Worker* self) {
  ReserveCrashStack();
  device_->MakeCurrent();
  MutexLock lock(mutex_);
  for (;;) {
    auto next = jobs_.end();
    while (!stopping_ && (next = NextJob()) == jobs_.end()) {
      // Jobs that may not run yet are no reason to poll: their tenant's other jobs must end first.
      if (worker_spinning_ || !jobs_.empty() ||
          NowNs() >= expected_until_ns_.load(std::memory_order_relaxed)) {
        changed_.Wait(mutex_);
        continue;
      }
      worker_spinning_ = true;
      lock.Unlock();
      while (waiting_count_.load(std::memory_order_acquire) == 0 &&
             NowNs() < expected_until_ns_.load(std::memory_order_relaxed)) {
        for (int i = 0; i < 16; ++i) CpuPause();
      }
      lock.Lock();
      worker_spinning_ = false;
    }
    if (stopping_) return;
    Job job = std::move(*next);
    jobs_.erase(next);
    waiting_count_.store(static_cast<uint32_t>(jobs_.size()), std::memory_order_release);
    self->owner = job.owner;
    self->tenant = job.tenant;
    self->since_ns = NowNs();
    lock.Unlock();
    Finish(&job);
    lock.Lock();
    self->since_ns = 0;
    // A job that had to wait for the tenant's other jobs may now run.
    if (job.tenant != nullptr && !jobs_.empty()) changed_.NotifyOne();
    // Replaced meanwhile: the pool has its number of threads without this one.
    if (!self->left) continue;
    self->ended = true;
    --left_;
    return;
  }
}

// Ends when no more jobs will come and all that came are done: OwnThread's destructor does not wait
// for that.
void WorkPool::RunOwn(Jobs* jobs) {
  ReserveCrashStack();
  device_->MakeCurrent();
  MutexLock lock(jobs->mutex);
  for (;;) {
    jobs->changed.Wait(jobs->mutex, [jobs]() GPULOOM_REQUIRES(jobs->mutex) {
      return jobs->closed || !jobs->waiting.empty();
    });
    if (jobs->waiting.empty()) break;
    Job job = std::move(jobs->waiting.front());
    jobs->waiting.pop_front();
    lock.Unlock();
    Finish(&job);
    lock.Lock();
  }
  jobs->ended = true;
}

void WorkPool::Finish(Job* job) {
  job->work();
  // Destroys what `work` captured before `done` can run: it may be the last reference to a region.
  job->work = nullptr;
  {
    const MutexLock lock(mutex_);
    finished_.push_back(std::move(job->done));
    any_finished_.store(true, std::memory_order_release);
  }
  const uint64_t one = 1;
  // Cannot fail in a way that matters: a full eventfd is readable.
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

// Also joins threads that have ended: nothing else does.
size_t WorkPool::own_threads() {
  std::erase_if(own_, [](Own& own) {
    if (!own.jobs->ended) return false;
    own.thread.join();
    return true;
  });
  return own_.size();
}

OwnThread::OwnThread(WorkPool* pool, std::shared_ptr<void> held) : pool_(pool) {
  if (pool->workers_.empty()) return;
  jobs_ = std::make_shared<WorkPool::Jobs>();
  pool->own_.push_back(
      {std::thread([pool, jobs = jobs_] { pool->RunOwn(jobs.get()); }), jobs_, std::move(held)});
}

OwnThread::~OwnThread() {
  if (jobs_ == nullptr) return;
  const MutexLock lock(jobs_->mutex);
  jobs_->closed = true;
  jobs_->changed.NotifyAll();
}

void OwnThread::Post(std::function<void()> work, std::function<void()> done) {
  if (jobs_ == nullptr) return pool_->Post(std::move(work), std::move(done));
  const MutexLock lock(jobs_->mutex);
  if (jobs_->closed) return;  // the pool has stopped
  ++pool_->posted_;
  jobs_->waiting.push_back({std::move(work), std::move(done)});
  jobs_->changed.NotifyAll();
}

}  // namespace gpuloom::executor
