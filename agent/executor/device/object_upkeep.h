// SPDX-License-Identifier: Apache-2.0
// Makes ahead the streams and events that will be needed, and destroys those that are not needed any more: neither may be
// done where somebody waits (driver_objects.h; destroying one takes up to 40 µs).
//
// Owned by the loop; ring thread only. The pool and the quiet moments outlive it, and call it back on that thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

class Device;
class Quiet;
class WorkPool;

class ObjectUpkeep {
 public:
  ObjectUpkeep(Device* device, WorkPool* pool, Quiet* quiet)
      : device_(device), pool_(pool), quiet_(quiet) {}

  // How long the driver is not asked again when it has refused: each time, all sessions are held.
  static constexpr uint64_t kRefusedPauseNs = 5'000'000'000;

  // Call once a round. When what was missing is there, the pool of the quiet moments has finished a piece of work, and
  // what waits should be looked at again.
  void Look(uint64_t now_ns);

 private:
  void LogRefusal(CUresult result);

  Device* device_;
  WorkPool* pool_;
  Quiet* quiet_;
  bool prepares_ = false;            // a quiet moment is asked for
  CUresult refusal_ = CUDA_SUCCESS;  // of the last preparation
  bool has_refused_ = false;         // since the last look
  uint64_t next_ns_ = 0;             // nothing is prepared before this
};

}  // namespace gpuloom::executor
