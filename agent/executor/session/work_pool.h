// SPDX-License-Identifier: Apache-2.0
// Threads for what may take long at CUDA: loading modules, importing and mapping memory, pinning.
// Work runs on a thread of the pool, which has the device's context current; `done` runs on the
// ring thread, in RunFinished. A Lane keeps the jobs of one session in order and one at a time, so
// that a session with many slow jobs takes no more than one thread.
//
// An OwnThread is for libraries that want every call about a thing from one thread.
//
// What runs cannot be stopped: a compilation takes as long as its author likes. So one tenant's jobs are at no more
// than half of the threads at a time; and when a job takes long, or the session that wanted it is gone
// (Lane::Leave), another thread takes the place of the one that is at it, which ends with its job.
// So what takes long takes no thread from the others, up to kMostLeft.
//
// Post, RunFinished, Lane and OwnThread belong to the ring thread. Work must not throw and must not touch what
// belongs to the ring thread.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/session/slice.h"
#include "proto/channel/unique_fd.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class WorkPool {
 public:
  // `wake_fd` is an eventfd of the caller's, which becomes readable when something has finished.
  // With 0 threads work runs inside Post (fuzzers).
  WorkPool(const Device* device, int threads, int wake_fd);
  // Waits for running work; what has not begun is dropped.
  ~WorkPool() { Stop(); }
  // The same; what is posted afterwards is done at once.
  void Stop();

  // `owner` identifies the job for Leave, `tenant` whom threads are shared among. Neither is dereferenced; null: none.
  void Post(std::function<void()> work, std::function<void()> done, const void* owner = nullptr,
            const void* tenant = nullptr);
  // The owner, which has posted one job, waits for it no more. True: it was not begun and is dropped, without
  // its `done`.
  bool Leave(const void* owner);
  // Gives threads to those who wait behind jobs that take long. To be called about once a second.
  void Tick(uint64_t now_ns);
  static constexpr uint64_t kLongNs = 1'000'000'000;
  // Jobs that take long or whose owner has left them that have a thread beside the pool's at the most: each
  // holds an image of up to 1 GiB and what its compilation takes.
  static constexpr uint32_t kMostLeft = 16;
  // Runs the `done` of what has finished, in its order, as far as the slice reaches. True when there was any.
  bool RunFinished(Slice* slice);
  // Work will be posted soon: for the next two milliseconds one thread stays awake for it, and whoever
  // waits for it does not pay for waking one up. Nothing where processors are few.
  void Expect();
  // What was posted and has not been run by RunFinished.
  bool busy() const { return posted_ != finished_count_; }

  // OwnThreads that still run, also those whose owner has left them.
  size_t own_threads();

 private:
  friend class OwnThread;
  struct Job {
    std::function<void()> work;
    std::function<void()> done;
    const void* owner = nullptr;
    const void* tenant = nullptr;
  };
  struct Worker {
    std::thread thread;
    const void* owner = nullptr;   // of its job
    const void* tenant = nullptr;  // the same
    uint64_t since_ns = 0;         // it is at its job; 0: it has none
    bool left = false;             // it ends with its job
    bool ended = false;
  };
  struct Jobs {
    Mutex mutex;
    CondVar changed;
    std::deque<Job> waiting GPULOOM_GUARDED_BY(mutex);
    bool closed GPULOOM_GUARDED_BY(mutex) = false;  // nothing more comes
    std::atomic<bool> ended{false};
  };
  struct Own {
    std::thread thread;
    std::shared_ptr<Jobs> jobs;
    std::shared_ptr<void> held;
  };

  void AddWorker() GPULOOM_REQUIRES(mutex_);
  void Replace(Worker* worker) GPULOOM_REQUIRES(mutex_);
  void TakeEnded(std::list<Worker>* ended) GPULOOM_REQUIRES(mutex_);
  bool MayRun(const Job& job) const GPULOOM_REQUIRES(mutex_);
  std::deque<Job>::iterator NextJob() GPULOOM_REQUIRES(mutex_);
  void Run(Worker* self);
  void RunOwn(Jobs* jobs);
  void Finish(Job* job);

  const Device* device_;
  const int wake_fd_;
  const size_t most_of_tenant_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ GPULOOM_GUARDED_BY(mutex_);
  std::deque<std::function<void()>> finished_ GPULOOM_GUARDED_BY(mutex_);
  std::atomic<bool> any_finished_{false};
  bool stopping_ = false;
  bool one_is_awake_ GPULOOM_GUARDED_BY(mutex_) = false;  // looks at waiting_count_
  std::atomic<uint32_t> waiting_count_{0};                // of jobs_
  std::atomic<uint64_t> expected_until_ns_{0};
  std::deque<std::function<void()>> taken_;  // of finished_; ring thread only, as the next
  uint64_t posted_ = 0;
  uint64_t finished_count_ = 0;
  std::list<Worker>
      workers_;  // changed by the ring thread only; what they hold is guarded by mutex_
  uint32_t left_ GPULOOM_GUARDED_BY(mutex_) = 0;  // of workers_
  std::vector<Own> own_;
};

class Lane {
 public:
  explicit Lane(WorkPool* pool, const void* tenant = nullptr) : pool_(pool), tenant_(tenant) {}

  // `done` runs before the next job of the lane begins. The lane must live until it is idle.
  void Post(std::function<void()> work, std::function<void()> done);
  // The same, before everything else that waits: for `done`, which goes on with what its job began.
  void PostNext(std::function<void()> work, std::function<void()> done);
  // Drops what has not begun. What runs goes on, and its `done` comes as ever.
  void Leave();
  bool Idle() const { return !busy_; }

 private:
  void Next();

  WorkPool* pool_;
  const void* tenant_;
  std::deque<std::pair<std::function<void()>, std::function<void()>>> waiting_;
  bool busy_ = false;
};

class OwnThread {
 public:
  // `held` is let go of on the ring thread when the thread has ended.
  OwnThread(WorkPool* pool, std::shared_ptr<void> held);
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;
  // What was posted is done all the same; nobody waits for it.
  ~OwnThread();

  void Post(std::function<void()> work, std::function<void()> done);

 private:
  WorkPool* pool_;
  std::shared_ptr<WorkPool::Jobs> jobs_;  // null: the pool has no threads
};

}  // namespace gpuloom::executor
