// SPDX-License-Identifier: Apache-2.0
// The GPU of this process: the driver, the one primary context, and the streams and events that are
// used again instead of being destroyed (destroying waits, and costs a driver call each).
//
// Owned by main, outlives everything that uses it. Start is called once. Judge, lost and
// MakeCurrent are safe from any thread, and so is the linker; the pools belong to the ring thread. Failures of CUDA are
// CUresults; a sticky one loses the device for good, which lost() tells.
#pragma once

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "agent/executor/module/linker.h"
#include "proto/cuda/driver.h"

namespace gpuloom::executor {

// True for errors after which the context, and with it the process, is of no use.
bool IsSticky(CUresult result);

class Device {
 public:
  explicit Device(const Driver& driver) : cuda_(driver) {}
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Makes the primary context of the device with this UUID ("GPU-…", as nvidia-smi prints it) and
  // leaves it current on this thread. False with a message.
  [[nodiscard]] bool Start(const std::string& uuid, std::string* error);

  // To be called on every other thread that makes CUDA calls.
  void MakeCurrent() const;

  const Driver& cuda() const { return cuda_; }
  CUdevice device() const { return device_; }
  CUcontext context() const { return context_; }
  // That it holds at a time; 0 when it does not say.
  uint64_t ResidentThreads() const;
  int priority_least() const { return priority_least_; }
  int priority_greatest() const { return priority_greatest_; }

  // Passes `result` on and remembers the first sticky one.
  CUresult Judge(CUresult result);
  // The same for calls that compile, link or load what a tenant gave. The compiler answers UNKNOWN
  // for code that it cannot link: no tenant's text may end its neighbours. A context that is lost
  // indeed says so again at the next call of another kind.
  CUresult JudgeImage(CUresult result) {
    return result == CUDA_ERROR_UNKNOWN ? result : Judge(result);
  }
  Linker& linker() { return linker_; }
  // CUDA_SUCCESS while the context lives.
  CUresult lost() const { return lost_.load(std::memory_order_acquire); }

  // Non-blocking streams, by priority. What is given back must be idle; null is nothing.
  [[nodiscard]] CUresult TakeStream(int priority, CUstream* stream);
  void GiveStream(int priority, CUstream stream);
  // Not to be used again: another context's, say.
  void DropStream(CUstream stream) {
    if (stream != nullptr) excess_.streams.push_back(stream);
  }

  // Events. What is given back may still be pending: recording it again is allowed by CUDA, and so is
  // destroying it.
  [[nodiscard]] CUresult TakeEvent(bool timing, CUevent* event);
  void GiveEvent(bool timing, CUevent event);

  // Idle ones that are kept for who comes next, of all priorities and of each kind. A stream takes some
  // 0.5 MiB of device memory, and a program that has many seldom has more.
  static constexpr size_t kMaxIdleStreams = 32;
  static constexpr size_t kMaxIdleEvents = 1024;
  // What was given back beyond that, to be destroyed on a worker: each takes up to 40 µs there.
  struct Excess {
    std::vector<CUstream> streams;
    std::vector<CUevent> events;
    bool empty() const { return streams.empty() && events.empty(); }
    void Destroy(const Driver& cuda) const;
  };
  // A piece of it; empty when there is none.
  [[nodiscard]] Excess TakeExcess();

  // The name of an error for the log, never null.
  const char* NameOf(CUresult result) const;

 private:
  bool Find(const std::string& uuid, std::string* error);

  Driver cuda_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  int priority_least_ = 0;
  int priority_greatest_ = 0;
  Linker linker_;
  std::atomic<CUresult> lost_{CUDA_SUCCESS};
  std::map<int, std::vector<CUstream>> idle_streams_;
  size_t idle_stream_count_ = 0;
  std::vector<CUevent> idle_events_[2];
  Excess excess_;
};

}  // namespace gpuloom::executor
