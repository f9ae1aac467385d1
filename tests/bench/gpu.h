// SPDX-License-Identifier: Apache-2.0
// One GPU as the benchmark uses it: a libcuda, the primary context of device 0, one stream, the
// kernels. Everything ends with the process, as in most programs; nothing is released.
//
// From one thread at a time. A failed call is kept (the first one of a line): Ok() says false, the line is
// reported as failed, and the next line starts afresh with TakeError().
#pragma once

#include <cstdint>
#include <string>

#include "proto/cuda/driver.h"
#include "tests/bench/kernels.h"
#include "tests/bench/launch_sequence.h"

namespace gpuloom::bench {

class Gpu {
 public:
  // Loads the library, initialises it, takes the context, makes the stream, loads the kernels.
  // False with the error kept.
  bool Start(const std::string& library);

  // Of LaunchChanging's sequence.
  void Seed(uint64_t seed) { changing_ = LaunchSequence(seed); }

  // On another thread than Start's, before its first call.
  bool MakeCurrent() { return Ok(cu_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

  const Driver& cu() const { return cu_; }
  CUstream stream() const { return stream_; }

  // True when the call succeeded; otherwise keeps `call` and the result's name.
  bool Ok(CUresult result, const char* call);
  // Keeps a wrong result as the line's error. Always false.
  bool Wrong(const std::string& what);
  bool failed() const { return !error_.empty(); }
  std::string TakeError();

  // One asynchronous launch of one thread of kernel `nothing`: what the launch figures time. Not
  // checked here, so that nothing but the call is timed.
  CUresult LaunchNothing() { return Launch(nothing_, 1, 1, 0, 0, 0, 0); }
  // The next of a sequence that does not repeat.
  CUresult LaunchChanging() {
    const LaunchSequence::Step step = changing_.Next();
    return Launch(nothings_[step.function], step.blocks, 32, step.argument, 0,
                  static_cast<uint32_t>(step.argument >> 32), 0);
  }
  CUresult LaunchCount(CUdeviceptr counter, uint32_t step) {
    return Launch(count_, 1, 1, counter, 0, step, 0);
  }
  CUresult LaunchFill(CUdeviceptr out, uint32_t seed, uint32_t n) {
    return Launch(fill_, (n + kFillThreads - 1) / kFillThreads, kFillThreads, out, 0, seed, n);
  }
  bool Synchronize() { return Ok(cu_.cuStreamSynchronize(stream_), "cuStreamSynchronize"); }

  CUfunction nothing() const { return nothing_; }
  // nothing_0 … nothing_7
  CUfunction nothing(uint32_t number) const { return nothings_[number]; }

  // The fields of a ReportFact: device name, driver version, memory.
  std::string Describe();

 private:
  static constexpr uint32_t kFillThreads = 128;

  CUresult Launch(CUfunction kernel, uint32_t blocks, uint32_t threads, uint64_t a, uint64_t b,
                  uint32_t c, uint32_t d) {
    void* parameters[] = {&a, &b, &c, &d};
    return cu_.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream_, parameters, nullptr);
  }

  Driver cu_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUfunction nothing_ = nullptr;
  CUfunction nothings_[kNothings] = {};
  LaunchSequence changing_{1};
  CUfunction count_ = nullptr;
  CUfunction fill_ = nullptr;
  std::string error_;
};

}  // namespace gpuloom::bench
