// What TestingDriver knows between its calls. For its own parts only.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "agent/executor/testing/program.h"
#include "proto/cuda/driver.h"

namespace gpuloom::executor {

struct TestingState {
  std::mutex mutex;
  uint64_t release = 0;  // raised by Release
  bool held = false;
  bool loads_block = false;
  CUresult failure = CUDA_SUCCESS;
  CUresult graph_failure = CUDA_SUCCESS;
  bool launches_wait = false;  // those of graphs, until their operations have run
  uint64_t streams = 0;
  uint64_t events = 0;
  uint64_t objects = 0;
  struct Pending {
    bool held = false;
    uint64_t since = 0;  // value of `release` then
    std::shared_ptr<TestingProgram> program;
  };
  std::map<uint64_t, std::vector<CUstreamBatchMemOpParams>> graph_operations;  // by graph
  std::map<uint64_t, uint64_t> graph_of;                                       // by executable
  std::set<uint64_t> conditional;                                              // graphs
  std::atomic<int> live_graphs{0};
  std::map<uint64_t, Pending> stream_work;  // by stream: its newest work
  std::map<uint64_t, Pending> event_work;
  std::vector<std::string> calls;
  int unquiet = 0;
  std::map<CUlinkState, std::thread::id> link_threads;
  int foreign_link_calls = 0;
  size_t limit = 1024;  // of the context, whichever was asked for
  std::condition_variable calls_changed;
  std::string held_call;  // empty: none
  int held_calls = 0;

  bool Done(const Pending& pending) const {
    return (!pending.held || release > pending.since) &&
           (pending.program == nullptr || pending.program->Run());
  }
  bool AnythingPending() const {
    for (const auto& [stream, pending] : stream_work) {
      if (!Done(pending)) return true;
    }
    return false;
  }
};

// The one state.
TestingState& S();
// What every pinned allocation is: 8 MiB, as much as the executor asks for.
void* PinnedMemory();

// Handles are numbers, from 1 as they are made.
inline uint64_t Number(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }
template <typename Handle>
Handle Make(uint64_t number) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(number));
}

// Work of this name in a stream, done when what the stream had before is, and nothing is held.
CUresult Work(const std::string& what, CUstream stream);

}  // namespace gpuloom::executor
