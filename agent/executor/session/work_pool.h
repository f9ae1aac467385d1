// SPDX-License-Identifier: Apache-2.0
// Threads for slow CUDA calls: loading modules, importing and mapping memory, pinning. Work runs on
// a thread of the pool, where the device's context is current; `done` runs on the ring thread, in
// RunFinished. Sessions post through lanes (lane.h).
//
// An OwnThread is for libraries that require all calls for an object to come from one thread.
//
// Running work cannot be stopped: a compilation takes as long as its author likes. So one tenant's jobs occupy at most
// half of the threads at a time; and when a job is slow, or its session is gone (Lane::Leave), a new thread replaces
// the one that runs it, which ends with its job. So slow jobs take no threads from others, up to kMostLeft.
//
// Post, RunFinished and OwnThread belong to the ring thread. Work must not throw and must not
// touch ring thread data.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "proto/channel/unique_fd.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class Device;
class Slice;

class WorkPool {
 public:
  // `wake_fd` is an eventfd owned by the caller; it becomes readable when something has finished. With 0 threads work
  // runs inside Post (fuzzers).
  WorkPool(const Device* device, int threads, int wake_fd);
  // Waits for running work; drops what has not begun.
  ~WorkPool() { Stop(); }
  // Like the destructor; work posted afterwards is done at once.
  void Stop();

  // `owner` identifies the job for Leave, `tenant` the jobs that share a limit of threads. Neither is dereferenced;
  // nullptr: none.
  void Post(std::function<void()> work, std::function<void()> done, const void* owner = nullptr,
            const void* tenant = nullptr);
  // The owner, which has posted one job, no longer waits for it. Returns true if it had not begun:
  // it is dropped, without its `done`.
  bool Leave(const void* owner);
  // Gives threads to jobs waiting behind slow ones. Call about once a second.
  void Tick(uint64_t now_ns);
  static constexpr uint64_t kLongNs = 1'000'000'000;
  // Limit for threads in addition to the pool's, replacing those whose jobs are slow or were left
  // by their owner: each holds an image of up to 1 GiB and what its compilation takes.
  static constexpr uint32_t kMostLeft = 16;
  // Runs the `done` of finished jobs, in order, as the slice permits. Returns true if there were any.
  bool RunFinished(Slice* slice);
  // Work will be posted soon: for the next two milliseconds one thread stays awake for it, which
  // saves the latency of waking one up. No effect if there are few processors.
  void Expect();
  // Returns true if work was posted that RunFinished has not handled yet.
  bool busy() const { return posted_ != finished_count_; }

  // OwnThreads still running, including those left by their owner.
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
    uint64_t since_ns = 0;         // when its job began; 0: it has none
    bool left = false;             // replaced: ends with its job
    bool ended = false;
  };
  struct Jobs {
    Mutex mutex;
    CondVar changed;
    std::deque<Job> waiting GPULOOM_GUARDED_BY(mutex);
    bool closed GPULOOM_GUARDED_BY(mutex) = false;  // no more jobs will come
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
  bool worker_spinning_ GPULOOM_GUARDED_BY(mutex_) = false;  // polling waiting_count_
  std::atomic<uint32_t> waiting_count_{0};                   // size of jobs_
  std::atomic<uint64_t> expected_until_ns_{0};
  std::deque<std::function<void()>> taken_;  // of finished_; ring thread only, like the next two
  uint64_t posted_ = 0;
  uint64_t finished_count_ = 0;
  // Modified by the ring thread only; their contents are guarded by mutex_.
  std::list<Worker> workers_;
  uint32_t left_ GPULOOM_GUARDED_BY(mutex_) = 0;  // in workers_
  std::vector<Own> own_;
};

class OwnThread {
 public:
  // `held` is released on the ring thread when the thread has ended.
  OwnThread(WorkPool* pool, std::shared_ptr<void> held);
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;
  // Posted work is still done; nothing waits for it.
  ~OwnThread();

  void Post(std::function<void()> work, std::function<void()> done);

 private:
  WorkPool* pool_;
  std::shared_ptr<WorkPool::Jobs> jobs_;  // null: the pool has no threads
};

}  // namespace gpuloom::executor
