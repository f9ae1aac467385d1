#include "agent/executor/work_pool.h"

#include <unistd.h>

namespace gpuloom::executor {

WorkPool::WorkPool(const Device* device, int threads, int wake_fd)
    : device_(device), wake_fd_(wake_fd) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

void WorkPool::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  for (const Own& own : own_) {
    std::lock_guard lock(own.jobs->mutex);
    own.jobs->waiting.clear();
    own.jobs->closed = true;
    own.jobs->changed.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
  for (Own& own : own_) own.thread.join();
  threads_.clear();
  own_.clear();
  finished_.clear();
}

void WorkPool::Post(std::function<void()> work, std::function<void()> done) {
  if (stopping_) {
    work();
    done();
    return;
  }
  if (threads_.empty()) {
    work();
    std::lock_guard lock(mutex_);
    finished_.push_back(std::move(done));
    any_finished_.store(true, std::memory_order_release);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(work), std::move(done)});
  }
  changed_.notify_one();
}

bool WorkPool::RunFinished() {
  if (!any_finished_.load(std::memory_order_acquire)) return false;
  std::deque<std::function<void()>> finished;
  {
    std::lock_guard lock(mutex_);
    finished.swap(finished_);
    any_finished_.store(false, std::memory_order_relaxed);
  }
  for (auto& done : finished) done();
  return true;
}

void WorkPool::Run() {
  device_->MakeCurrent();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    Finish(&job);
    lock.lock();
  }
}

void WorkPool::RunOwn(Jobs* jobs) {
  device_->MakeCurrent();
  std::unique_lock lock(jobs->mutex);
  for (;;) {
    jobs->changed.wait(lock, [jobs] { return jobs->closed || !jobs->waiting.empty(); });
    if (jobs->waiting.empty()) break;
    Job job = std::move(jobs->waiting.front());
    jobs->waiting.pop_front();
    lock.unlock();
    Finish(&job);
    lock.lock();
  }
  jobs->ended = true;
}

void WorkPool::Finish(Job* job) {
  job->work();
  // What the work captured goes before `done` may run: it can hold the last use of a region.
  job->work = nullptr;
  {
    std::lock_guard lock(mutex_);
    finished_.push_back(std::move(job->done));
    any_finished_.store(true, std::memory_order_release);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof(one));
}

size_t WorkPool::own_threads() {
  std::erase_if(own_, [](Own& own) {
    if (!own.jobs->ended) return false;
    own.thread.join();
    return true;
  });
  return own_.size();
}

OwnThread::OwnThread(WorkPool* pool) : pool_(pool) {
  if (pool->threads_.empty()) return;
  jobs_ = std::make_shared<WorkPool::Jobs>();
  pool->own_.push_back({std::thread([pool, jobs = jobs_] { pool->RunOwn(jobs.get()); }), jobs_});
}

OwnThread::~OwnThread() {
  if (jobs_ == nullptr) return;
  std::lock_guard lock(jobs_->mutex);
  jobs_->closed = true;
  jobs_->changed.notify_all();
}

void OwnThread::Post(std::function<void()> work, std::function<void()> done) {
  if (jobs_ == nullptr) return pool_->Post(std::move(work), std::move(done));
  std::lock_guard lock(jobs_->mutex);
  if (jobs_->closed) return;  // the pool has stopped
  jobs_->waiting.push_back({std::move(work), std::move(done)});
  jobs_->changed.notify_all();
}

void Lane::Post(std::function<void()> work, std::function<void()> done) {
  waiting_.emplace_back(std::move(work), std::move(done));
  if (!busy_) Next();
}

void Lane::Next() {
  if (waiting_.empty()) {
    busy_ = false;
    return;
  }
  busy_ = true;
  auto [work, done] = std::move(waiting_.front());
  waiting_.pop_front();
  pool_->Post(std::move(work), [this, done = std::move(done)] {
    done();
    Next();
  });
}

}  // namespace gpuloom::executor
