// SPDX-License-Identifier: Apache-2.0
// The words of a session's completion region in which its tenant sees how far its streams have come
// (CompletionRegion::completed), as the GPU can write them: where somebody waits, the GPU tells the
// tenant itself, and our look at an event and our store are not in the way
// (docs/design/completion.md).
//
// What we believe never comes from these words, because kernels of the domain can write them. They only
// say when it is worth asking the driver.
//
// Owned by the session, ring thread only. The region stays mapped until the driver has let go of
// it, also behind the session's end.
#pragma once

#include <memory>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/session/work_pool.h"
#include "agent/node/shared_region.h"
#include "proto/wire/handles.h"

namespace gpuloom::executor {

class CompletionWords {
 public:
  CompletionWords(Device* device, Quiet* quiet, std::shared_ptr<SharedRegion> region)
      : device_(device), quiet_(quiet), region_(std::move(region)) {}

  // Behind everything in `stream`: its word becomes `ticket`. False: the GPU cannot reach the words,
  // or not yet; the first call lets `lane` see to that.
  bool Write(Lane* lane, CUstream stream, wire::StreamId id, wire::Ticket ticket);

  // A hint: the word says so, whoever wrote it.
  bool Reached(wire::StreamId id, wire::Ticket ticket) const;

  // Everything written is done, and `lane` empty. At most once.
  void End();

 private:
  enum class State { kUnknown, kComing, kReachable, kUnreachable };

  void Register(Lane* lane);

  Device* const device_;
  Quiet* const quiet_;
  std::shared_ptr<SharedRegion> region_;
  State state_ = State::kUnknown;
  CUdeviceptr words_ = 0;
};

}  // namespace gpuloom::executor
