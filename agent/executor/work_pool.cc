#include "agent/executor/work_pool.h"

#include <unistd.h>

#include <algorithm>

#include "agent/executor/spin.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kExpectedNs = 2'000'000;
constexpr unsigned kManyProcessors = 8;

bool HasManyProcessors() {
  static const bool kHasMany = std::thread::hardware_concurrency() >= kManyProcessors;
  return kHasMany;
}

}  // namespace

WorkPool::WorkPool(const Device* device, int threads, int wake_fd)
    : device_(device), wake_fd_(wake_fd) {
  std::lock_guard lock(mutex_);
  for (int i = 0; i < threads; ++i) AddWorker();
}

void WorkPool::AddWorker() {
  Worker* worker = &workers_.emplace_back();
  worker->thread = std::thread([this, worker] { Run(worker); });
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
  for (Worker& worker : workers_) worker.thread.join();
  for (Own& own : own_) own.thread.join();
  workers_.clear();
  own_.clear();
  finished_.clear();
}

void WorkPool::Post(std::function<void()> work, std::function<void()> done, const void* owner) {
  if (stopping_) {
    work();
    done();
    return;
  }
  ++posted_;
  if (workers_.empty()) {
    work();
    std::lock_guard lock(mutex_);
    finished_.push_back(std::move(done));
    any_finished_.store(true, std::memory_order_release);
    return;
  }
  bool somebody_looks;
  {
    std::lock_guard lock(mutex_);
    jobs_.push_back({std::move(work), std::move(done), owner});
    somebody_looks = one_is_awake_ && jobs_.size() == 1;
    waiting_count_.store(static_cast<uint32_t>(jobs_.size()), std::memory_order_release);
  }
  if (!somebody_looks) changed_.notify_one();
}

bool WorkPool::Leave(const void* owner) {
  Job dropped;  // its end may post
  std::list<Worker> ended;
  std::lock_guard lock(mutex_);
  for (auto it = workers_.begin(); it != workers_.end();) {
    const auto worker = it++;
    if (worker->ended) ended.splice(ended.end(), workers_, worker);
  }
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
  const auto worker = std::find_if(workers_.begin(), workers_.end(),
                                   [owner](const Worker& one) { return one.owner == owner; });
  if (worker != workers_.end() && !worker->left && left_ < kMostLeft && !stopping_) {
    worker->left = true;
    ++left_;
    AddWorker();
  }
  return false;
}

void WorkPool::Expect() {
  if (!HasManyProcessors()) return;
  expected_until_ns_.store(NowNs() + kExpectedNs, std::memory_order_relaxed);
  std::lock_guard lock(mutex_);
  if (!one_is_awake_) changed_.notify_one();
}

bool WorkPool::RunFinished() {
  if (!any_finished_.load(std::memory_order_acquire)) return false;
  std::deque<std::function<void()>> finished;
  {
    std::lock_guard lock(mutex_);
    finished.swap(finished_);
    any_finished_.store(false, std::memory_order_relaxed);
  }
  finished_count_ += finished.size();
  for (auto& done : finished) done();
  return true;
}

void WorkPool::Run(Worker* self) {
  device_->MakeCurrent();
  std::unique_lock lock(mutex_);
  for (;;) {
    while (!stopping_ && jobs_.empty()) {
      if (one_is_awake_ || NowNs() >= expected_until_ns_.load(std::memory_order_relaxed)) {
        changed_.wait(lock);
        continue;
      }
      one_is_awake_ = true;
      lock.unlock();
      while (waiting_count_.load(std::memory_order_acquire) == 0 &&
             NowNs() < expected_until_ns_.load(std::memory_order_relaxed)) {
        for (int i = 0; i < 16; ++i) Pause();
      }
      lock.lock();
      one_is_awake_ = false;
    }
    if (stopping_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    waiting_count_.store(static_cast<uint32_t>(jobs_.size()), std::memory_order_release);
    self->owner = job.owner;
    lock.unlock();
    Finish(&job);
    lock.lock();
    self->owner = nullptr;
    if (!self->left) continue;
    self->ended = true;
    --left_;
    return;
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
  if (pool->workers_.empty()) return;
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
  ++pool_->posted_;
  jobs_->waiting.push_back({std::move(work), std::move(done)});
  jobs_->changed.notify_all();
}

void Lane::Post(std::function<void()> work, std::function<void()> done) {
  waiting_.emplace_back(std::move(work), std::move(done));
  if (!busy_) Next();
}

void Lane::PostNext(std::function<void()> work, std::function<void()> done) {
  waiting_.emplace_front(std::move(work), std::move(done));
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
  pool_->Post(
      std::move(work),
      [this, done = std::move(done)] {
        done();
        Next();
      },
      this);
}

void Lane::Leave() {
  waiting_.clear();
  if (busy_ && pool_->Leave(this)) busy_ = false;
}

}  // namespace gpuloom::executor
