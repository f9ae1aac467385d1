// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/graph_run.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <system_error>
#include <thread>

#include "agent/softgpu/driver/state.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// More branches than that wait for their turn. A kernel takes all processors anyway; what the
// threads are for is waiting.
constexpr uint32_t kMaxThreads = 16;

// Nothing more is begun after a fault or during exit; steps still count as run, so that the stream
// goes on.
bool GoesOn() { return Fault() == CUDA_SUCCESS && !Stopping(); }

void RunShape(const GraphProgram& program, const GraphProgram::Shape& shape);

// Bodies run inside the node's step. The condition is read when the node's turn comes, after the
// kernels before it have set it.
void RunBranch(const GraphProgram& program, const GraphBranch& branch) {
  const auto run_body = [&](uint32_t body) {
    RunShape(program, *program.shapes[branch.first_body + body]);
  };
  switch (branch.kind) {
    case GraphBranch::Kind::kIf:
      if (branch.condition->value() != 0) {
        run_body(0);
      } else if (branch.bodies == 2) {
        run_body(1);
      }
      return;
    case GraphBranch::Kind::kWhile:
      // A fault ends the loop: the kernels that would change the condition are passed over then.
      while (branch.condition->value() != 0 && GoesOn()) run_body(0);
      return;
    case GraphBranch::Kind::kSwitch: {
      const uint32_t value = branch.condition->value();
      if (value < branch.bodies) run_body(value);
      return;
    }
  }
}

void RunStep(const GraphProgram& program, uint32_t place) {
  const GraphStep& step = *program.steps[place];
  if (!step.enabled || !GoesOn()) return;
  if (step.run != nullptr) step.run();
  if (step.branch != nullptr) RunBranch(program, *step.branch);
}

// One pass over one shape, by several threads. It lives on the stack of the thread that began it,
// which joins the others.
class Run {
 public:
  Run(const GraphProgram& program, const GraphProgram::Shape& shape)
      : program_(program), shape_(shape), waits_(shape.waits), left_(shape.waits.size()) {
    for (uint32_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i] == 0) ready_.push_back(i);
    }
  }

  // Runs steps until all have run.
  void Work() {
    MutexLock lock(mutex_);
    while (left_ != 0) {
      if (ready_.empty()) {
        changed_.Wait(mutex_);
        continue;
      }
      const uint32_t step = ready_.front();
      ready_.pop_front();
      // Without the lock: a step may take as long as it likes, and wait for what another branch
      // does.
      lock.Unlock();
      RunStep(program_, shape_.first + step);
      lock.Lock();
      --left_;
      size_t freed = 0;
      for (const uint32_t next : shape_.behind[step]) {
        if (--waits_[next] != 0) continue;
        ready_.push_back(next);
        ++freed;
      }
      // One of them is the next one of this thread.
      if (freed > 1 || left_ == 0) changed_.NotifyAll();
    }
  }

 private:
  const GraphProgram& program_;
  const GraphProgram::Shape& shape_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint32_t> waits_ GPULOOM_GUARDED_BY(mutex_);
  std::deque<uint32_t> ready_ GPULOOM_GUARDED_BY(mutex_);
  size_t left_ GPULOOM_GUARDED_BY(mutex_);
};

void RunShape(const GraphProgram& program, const GraphProgram::Shape& shape) {
  // Nothing is ever independent: no thread and no lock is needed. Steps are in topological order.
  if (shape.width == 1) {
    const auto steps = static_cast<uint32_t>(shape.waits.size());
    for (uint32_t i = 0; i < steps; ++i) RunStep(program, shape.first + i);
    return;
  }
  Run run(program, shape);
  std::vector<std::thread> threads;
  // The application's signal handlers belong on the application's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (threads.size() + 1 < std::min(shape.width, kMaxThreads)) {
    try {
      threads.emplace_back([&run] {
        pthread_setname_np(pthread_self(), "softgpu-graph");
        run.Work();
      });
    } catch (const std::system_error&) {
      break;  // no more threads for this process: the graph does with those that there are
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  run.Work();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

// Dependencies are numbered over the whole program; a shape counts from its first step.
std::shared_ptr<const GraphProgram::Shape> MakeShape(
    uint32_t first, uint32_t steps,
    const std::vector<std::pair<uint32_t, uint32_t>>& dependencies) {
  auto shape = std::make_shared<GraphProgram::Shape>();
  shape->first = first;
  shape->waits.resize(steps);
  shape->behind.resize(steps);
  for (const auto& [one, other] : dependencies) {
    const uint32_t before = one - first;
    const uint32_t after = other - first;
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

uint32_t HeadsOf(const GraphProgram& program) {
  const GraphProgram::Shape& shape = *program.shapes.front();
  std::vector<bool> is_behind(shape.waits.size());
  uint32_t heads = 0;
  for (uint32_t i = 0; i < is_behind.size(); ++i) {
    const GraphStep& step = *program.steps[shape.first + i];
    const bool is_work = step.enabled && (step.run != nullptr || step.branch != nullptr);
    heads += is_work && !is_behind[i];
    if (!is_work && !is_behind[i]) continue;
    for (const uint32_t next : shape.behind[i]) is_behind[next] = true;
  }
  return heads;
}

void RunGraph(const GraphProgram& program) {
  // Conditions begin with their default values in every run that was asked to
  // (CU_GRAPH_COND_ASSIGN_DEFAULT).
  for (const auto& condition : program.conditions) condition->Begin();
  RunShape(program, *program.shapes.front());
}

}  // namespace gpuloom::softgpu
