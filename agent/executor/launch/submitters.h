// SPDX-License-Identifier: Apache-2.0
// Threads that launch for several tenants at once: what is launched for one of them is not in the way of
// the others, and the ring thread has time to read (docs/design/batching.md). With one tenant at work
// the ring thread launches by itself, which saves the way there and back.
//
// A stream whose chunk is on its way is busy: nothing else is handed to CUDA in it, so the order is
// that of the queues. Post and TakeDone belong to the ring thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/launch/chain.h"
#include "agent/executor/launch/chunk.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class Launches;
struct Stream;

// CUDA's plain launch.
CUresult LaunchPlainly(const Driver& cuda, const ChunkNode& node, const uint8_t* params,
                       CUstream stream);

struct SubmitJob {
  ChunkPtr chunk;
  CUstream cuda_stream;
  Launches* launches;
  Stream* stream;
  bool idle;                     // Chains::Target's
  ChainRef chain;                // that launched it; null: it went one by one
  std::vector<CUresult> errors;  // of launches that CUDA refused
};
using SubmitJobPtr = std::unique_ptr<SubmitJob>;

class Submitters {
 public:
  // With 0 threads nothing may be posted. `chains` outlives this.
  Submitters(Device* device, Chains* chains, int threads);
  ~Submitters() { Stop(); }
  // Waits for what runs; what has not begun is dropped.
  void Stop();

  bool any() const { return !lanes_.empty(); }
  // To the thread that has the least to do; among such, each owner has its favourite.
  void Post(uint64_t owner, SubmitJobPtr job);
  // Adds the jobs that are done.
  void TakeDone(std::vector<SubmitJobPtr>* done);

 private:
  struct Lane {
    Mutex mutex;
    CondVar changed;
    std::deque<SubmitJobPtr> jobs GPULOOM_GUARDED_BY(mutex);
    std::vector<SubmitJobPtr> done GPULOOM_GUARDED_BY(mutex);
    bool stopping GPULOOM_GUARDED_BY(mutex) = false;
    // For looking without the lock.
    std::atomic<bool> has_jobs{false};
    std::atomic<bool> has_done{false};
    std::thread thread;
    size_t at_work = 0;  // jobs posted and not taken back; the ring thread's
  };
  void Run(Lane* lane);
  void Launch(SubmitJob* job) const;

  Device* const device_;
  Chains* const chains_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace gpuloom::executor
