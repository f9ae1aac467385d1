// SPDX-License-Identifier: Apache-2.0
// What the driver writes to this process's standard streams: printf output of tenants' kernels
// (stdout), and messages about failed asserts (stderr). Both are redirected to in-memory files, so
// that writing never blocks the driver; the executor's own log keeps the original stderr.
//
// Created once, by Serve (process/service.h), before threads start; otherwise safe from any thread.
#pragma once

#include <string>
#include <utility>

#include "proto/channel/unique_fd.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class DriverOutput {
 public:
  // Returns false with a message.
  [[nodiscard]] bool Capture(std::string* error);
  // Replaces Capture in tests, whose own output must not be taken: what is appended to this file counts as the driver's
  // errors.
  void ReadErrors(channel::UniqueFd file) {
    const MutexLock lock(mutex_);
    errors_.fd = std::move(file);
  }

  // Returns what was written since the last call.
  std::string TakePrinted() {
    const MutexLock lock(mutex_);
    return Take(&printed_);
  }
  std::string TakeErrors() {
    const MutexLock lock(mutex_);
    return Take(&errors_);
  }

 private:
  struct File {
    channel::UniqueFd fd;
    int64_t taken_bytes = 0;
  };
  std::string Take(File* file) GPULOOM_REQUIRES(mutex_);
  bool Redirect(int standard, const char* name, File* file) GPULOOM_REQUIRES(mutex_);

  Mutex mutex_;
  File printed_ GPULOOM_GUARDED_BY(mutex_);
  File errors_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::executor
