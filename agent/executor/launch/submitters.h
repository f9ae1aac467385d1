// SPDX-License-Identifier: Apache-2.0
// Threads that launch for several tenants at once: launches of one tenant do not delay the others',
// and the ring thread has time to read (docs/design/batching.md). With one active tenant the ring
// thread launches by itself, which saves the handover.
//
// A stream whose chunk is on its way is busy: nothing else is submitted to CUDA in it, so queue
// order is kept. Post and TakeDone belong to the ring thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "agent/executor/launch/chain.h"
#include "agent/executor/launch/chunk.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class Device;
class Launches;
struct Stream;

// A plain CUDA launch.
CUresult LaunchPlainly(const Driver& cuda, const ChunkNode& node, const uint8_t* params,
                       CUstream stream);

struct SubmitJob {
  ChunkPtr chunk;
  CUstream cuda_stream;
  CUcontext context;  // the stream's
  Launches* launches;
  Stream* stream;
  bool idle;          // as in Chains::Target
  bool is_new;        // as in Chains::Launch
  uint64_t began_ns;  // when its thread began with it; behind a long call: Tally::LaunchedNs
  ChainRef chain;     // the one that launched it; null: launched one by one
  std::vector<CUresult> errors;  // of launches that CUDA refused
};
using SubmitJobPtr = std::unique_ptr<SubmitJob>;

class Submitters {
 public:
  // With 0 threads nothing may be posted. `chains` outlives this.
  Submitters(Device* device, Chains* chains, int threads);
  ~Submitters() { Stop(); }
  // Waits for running jobs; drops the others.
  void Stop();

  bool any() const { return !lanes_.empty(); }
  // Posts to the least busy thread; among equally busy ones, each owner has a preferred thread. Threads beyond the first
  // two get something only when all before them have more than the job that they are at.
  void Post(uint64_t owner, SubmitJobPtr job);
  // Appends the finished jobs.
  void TakeDone(std::vector<SubmitJobPtr>* done);

 private:
  struct Lane {
    Mutex mutex;
    CondVar changed;
    std::deque<SubmitJobPtr> jobs GPULOOM_GUARDED_BY(mutex);
    std::vector<SubmitJobPtr> done GPULOOM_GUARDED_BY(mutex);
    bool stopping GPULOOM_GUARDED_BY(mutex) = false;
    // For checking without the lock.
    std::atomic<bool> has_jobs{false};
    std::atomic<bool> has_done{false};
    std::thread thread;
    size_t at_work = 0;  // jobs posted and not taken back; ring thread only
  };
  void Run(Lane* lane);
  void Launch(SubmitJob* job) const;
  void LaunchOneByOne(SubmitJob* job) const;

  Device* const device_;
  Chains* const chains_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace gpuloom::executor
