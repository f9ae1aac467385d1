#include "agent/softgpu/graph_run.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "agent/softgpu/state.h"

namespace gpuloom::softgpu {
namespace {

// More branches than that wait for their turn. A kernel takes all processors anyway; what the
// threads are for is waiting.
constexpr uint32_t kMaxThreads = 16;

void RunStep(const GraphStep& step) {
  if (step.run != nullptr && step.enabled && Fault() == CUDA_SUCCESS && !Stopping()) step.run();
}

class Run {
 public:
  explicit Run(const GraphProgram& program)
      : program_(program), waits_(program.shape->waits), left_(program.steps.size()) {
    for (uint32_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i] == 0) ready_.push_back(i);
    }
  }

  // Runs steps until all have run.
  void Work() {
    std::unique_lock lock(mutex_);
    while (left_ != 0) {
      if (ready_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const uint32_t step = ready_.front();
      ready_.pop_front();
      lock.unlock();
      RunStep(*program_.steps[step]);
      lock.lock();
      --left_;
      size_t freed = 0;
      for (const uint32_t next : program_.shape->behind[step]) {
        if (--waits_[next] != 0) continue;
        ready_.push_back(next);
        ++freed;
      }
      // One of them is this thread's own next one.
      if (freed > 1 || left_ == 0) changed_.notify_all();
    }
  }

 private:
  const GraphProgram& program_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint32_t> waits_;
  std::deque<uint32_t> ready_;
  size_t left_;
};

}  // namespace

std::shared_ptr<const GraphProgram::Shape> MakeShape(
    uint32_t steps, const std::vector<std::pair<uint32_t, uint32_t>>& dependencies) {
  auto shape = std::make_shared<GraphProgram::Shape>();
  shape->waits.resize(steps);
  shape->behind.resize(steps);
  for (const auto& [before, after] : dependencies) {
    ++shape->waits[after];
    shape->behind[before].push_back(after);
  }
  // The widest level. A graph can be wider between levels, which costs time and no more.
  std::vector<uint32_t> level(steps);
  std::vector<uint32_t> wide(steps);
  for (uint32_t i = 0; i < steps; ++i) {
    shape->width = std::max(shape->width, ++wide[level[i]]);
    for (const uint32_t next : shape->behind[i]) level[next] = std::max(level[next], level[i] + 1);
  }
  return shape;
}

void RunGraph(const GraphProgram& program) {
  if (program.shape->width == 1) {
    for (const auto& step : program.steps) RunStep(*step);
    return;
  }
  Run run(program);
  std::vector<std::thread> threads;
  // The application's signal handlers belong on the application's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (threads.size() + 1 < std::min(program.shape->width, kMaxThreads)) {
    threads.emplace_back([&run] {
      pthread_setname_np(pthread_self(), "softgpu-graph");
      run.Work();
    });
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  run.Work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace gpuloom::softgpu
