// SPDX-License-Identifier: Apache-2.0
// TestingDriver's state between calls. For its own parts only.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/executor/testing/program.h"
#include "proto/cuda/driver.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

struct TestingState {
  Mutex mutex;
  uint64_t release GPULOOM_GUARDED_BY(mutex) = 0;  // raised by Release
  bool held GPULOOM_GUARDED_BY(mutex) = false;
  bool loads_block GPULOOM_GUARDED_BY(mutex) = false;
  bool refuses_cubins GPULOOM_GUARDED_BY(mutex) = false;
  CUresult failure GPULOOM_GUARDED_BY(mutex) = CUDA_SUCCESS;
  int errors_fd GPULOOM_GUARDED_BY(mutex) = -1;
  std::string assert_text GPULOOM_GUARDED_BY(mutex);
  CUresult graph_failure GPULOOM_GUARDED_BY(mutex) = CUDA_SUCCESS;
  uint64_t streams GPULOOM_GUARDED_BY(mutex) = 0;
  uint64_t events GPULOOM_GUARDED_BY(mutex) = 0;
  uint64_t objects GPULOOM_GUARDED_BY(mutex) = 0;
  struct Pending {
    bool held = false;
    uint64_t since = 0;  // value of `release` then
    std::shared_ptr<TestingProgram> program;
  };
  std::map<uint64_t, std::vector<CUstreamBatchMemOpParams>> graph_operations
      GPULOOM_GUARDED_BY(mutex);                                    // by graph
  std::map<uint64_t, uint64_t> graph_of GPULOOM_GUARDED_BY(mutex);  // by executable
  std::set<uint64_t> large_kernels GPULOOM_GUARDED_BY(mutex);       // named "large"
  std::set<uint64_t> conditional GPULOOM_GUARDED_BY(mutex);         // graphs
  std::vector<int> priorities GPULOOM_GUARDED_BY(mutex);  // of streams, launches and nodes
  std::atomic<int> live_graphs{0};
  std::map<uint64_t, Pending> stream_work GPULOOM_GUARDED_BY(mutex);  // by stream: its newest work
  std::map<uint64_t, Pending> event_work GPULOOM_GUARDED_BY(mutex);
  std::vector<std::string> calls GPULOOM_GUARDED_BY(mutex);
  int unquiet GPULOOM_GUARDED_BY(mutex) = 0;
  std::map<CUlinkState, std::thread::id> link_threads GPULOOM_GUARDED_BY(mutex);
  int foreign_link_calls GPULOOM_GUARDED_BY(mutex) = 0;
  size_t limit GPULOOM_GUARDED_BY(mutex) = 1024;  // of the context, whichever was asked for
  CondVar calls_changed;
  std::string held_call GPULOOM_GUARDED_BY(mutex);  // empty: none
  int held_calls GPULOOM_GUARDED_BY(mutex) = 0;
  int most_held_calls GPULOOM_GUARDED_BY(mutex) = INT_MAX;

  bool Done(const Pending& pending) const GPULOOM_REQUIRES(mutex) {
    return (!pending.held || release > pending.since) &&
           (pending.program == nullptr || pending.program->Run());
  }
  bool AnythingPending() const GPULOOM_REQUIRES(mutex) {
    for (const auto& [stream, pending] : stream_work) {
      if (!Done(pending)) return true;
    }
    return false;
  }
};

// The only instance.
TestingState& S();
void NotePriority(int priority);
// Every pinned allocation is this: 8 MiB, as much as the executor requests.
void* PinnedMemory();

// Handles are numbers, from 1 in order of creation.
inline uint64_t Number(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }
template <typename Handle>
Handle Make(uint64_t number) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(number));
}

// Adds work of this name to a stream; it is done when the stream's earlier work is, and nothing is held.
CUresult Work(const std::string& what, CUstream stream);

}  // namespace gpuloom::executor
