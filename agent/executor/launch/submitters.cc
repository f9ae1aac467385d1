// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/launch/submitters.h"

#include <algorithm>
#include <chrono>

#include "agent/executor/device/device.h"
#include "agent/executor/process/crash_report.h"
#include "agent/executor/stream/tally.h"
#include "agent/node/clock.h"
#include "proto/sync/cpu_pause.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

// Longer than the gap between two visits of the ring thread while tenants are at work.
constexpr std::chrono::microseconds kSpin{50};

// More threads look for work most of the time with most tenants; those that are not used sleep (docs/design/batching.md).
constexpr size_t kUsualLanes = 2;

}  // namespace

// The kernel is passed as a function: the driver then uses the stream's context (launch.cc).
CUresult LaunchPlainly(const Driver& cuda, const ChunkNode& node, const uint8_t* params,
                       CUstream stream) {
  size_t bytes = node.param_bytes;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint8_t*>(params),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  return cuda.cuLaunchKernel(reinterpret_cast<CUfunction>(node.kernel), node.grid[0], node.grid[1],
                             node.grid[2], node.block[0], node.block[1], node.block[2],
                             node.dynamic_shared_bytes, stream, nullptr,
                             bytes == 0 ? nullptr : extra);
}

Submitters::Submitters(Device* device, Chains* chains, int threads)
    : device_(device), chains_(chains) {
  for (int i = 0; i < threads; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    Lane* lane = lanes_.back().get();
    lane->thread = std::thread([this, lane] { Run(lane); });
  }
}

// has_jobs is set as well, so that a thread stops spinning at once.
void Submitters::Stop() {
  for (const auto& lane : lanes_) {
    {
      const MutexLock lock(lane->mutex);
      lane->stopping = true;
      lane->has_jobs = true;
    }
    lane->changed.NotifyAll();
  }
  for (const auto& lane : lanes_) {
    if (lane->thread.joinable()) lane->thread.join();
  }
}

// A session's chunks may go to different threads: those of one stream never do at a time, because
// the stream is busy, and streams are in no order but by events.
void Submitters::Post(uint64_t owner, SubmitJobPtr job) {
  const size_t usual = std::min(kUsualLanes, lanes_.size());
  size_t best = owner % usual;
  for (size_t i = 0; i < usual; ++i) {
    if (lanes_[i]->at_work < lanes_[best]->at_work) best = i;
  }
  for (size_t i = usual; i < lanes_.size() && lanes_[best]->at_work > 1; ++i) {
    if (lanes_[i]->at_work < lanes_[best]->at_work) best = i;
  }
  Lane& lane = *lanes_[best];
  ++lane.at_work;
  {
    const MutexLock lock(lane.mutex);
    lane.jobs.push_back(std::move(job));
    // The thread may be spinning on this, or asleep: NotifyOne costs little when nobody waits.
    lane.has_jobs.store(true, std::memory_order_release);
  }
  lane.changed.NotifyOne();
}

void Submitters::TakeDone(std::vector<SubmitJobPtr>* done) {
  for (const auto& lane : lanes_) {
    if (!lane->has_done.load(std::memory_order_acquire)) continue;
    const MutexLock lock(lane->mutex);
    for (SubmitJobPtr& job : lane->done) done->push_back(std::move(job));
    lane->at_work -= lane->done.size();
    lane->done.clear();
    lane->has_done.store(false, std::memory_order_relaxed);
  }
}

// Spins for a moment before it sleeps: waking a thread costs as much as launching several chains.
// The lock is never held while the driver is called.
void Submitters::Run(Lane* lane) {
  ReserveCrashStack();
  device_->MakeCurrent();
  for (;;) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    while (!lane->has_jobs.load(std::memory_order_acquire) &&
           std::chrono::steady_clock::now() < end) {
      CpuPause();
    }
    SubmitJobPtr job;
    {
      MutexLock lock(lane->mutex);
      lane->changed.Wait(lane->mutex, [&]() GPULOOM_REQUIRES(lane->mutex) {
        return lane->stopping || !lane->jobs.empty();
      });
      // What is still queued is dropped with the lane.
      if (lane->stopping) return;
      job = std::move(lane->jobs.front());
      lane->jobs.pop_front();
      lane->has_jobs.store(!lane->jobs.empty(), std::memory_order_relaxed);
    }
    Launch(job.get());
    const MutexLock lock(lane->mutex);
    lane->done.push_back(std::move(job));
    lane->has_done.store(true, std::memory_order_release);
  }
}

// Without singles: those are the ring thread's, and their launches would contend for one of the
// driver's locks (docs/design/batching.md).
void Submitters::Launch(SubmitJob* job) const {
  const uint64_t called_ns = NowNs();
  job->chain = chains_->Launch(
      *job->chunk, {job->stream, job->cuda_stream, job->context, job->idle}, &job->is_new);
  if (job->chain == nullptr) LaunchOneByOne(job);
  job->began_ns = Tally::LaunchedNs(called_ns, NowNs());
}

void Submitters::LaunchOneByOne(SubmitJob* job) const {
  const uint8_t* params = job->chunk->params.data();
  for (const ChunkNode& node : job->chunk->nodes) {
    const CUresult result =
        device_->Judge(LaunchPlainly(device_->cuda(), node, params, job->cuda_stream));
    if (result != CUDA_SUCCESS) job->errors.push_back(result);
    params += Chunk::RoundUp(node.param_bytes);
  }
}

}  // namespace gpuloom::executor
