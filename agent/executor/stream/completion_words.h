// SPDX-License-Identifier: Apache-2.0
// The words in a session's completion region that tell its tenant how far its streams are
// (CompletionRegion::completed), as written by the GPU: where a caller is waiting, the GPU notifies
// the tenant directly, without the delay of our polling an event and storing the word
// (docs/design/completion.md).
//
// We never trust these words, because kernels of the domain can write them. They only tell us when
// it is worth asking the driver.
//
// Owned by the session, ring thread only. The region stays mapped until the driver has released it,
// even after the session's end.
#pragma once

#include <memory>

#include "agent/node/shared_region.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom::executor {

class Device;
class Lane;
class Quiet;

class CompletionWords {
 public:
  CompletionWords(Device* device, Quiet* quiet, std::shared_ptr<SharedRegion> region)
      : device_(device), quiet_(quiet), region_(std::move(region)) {}

  // Starts registering the words, on `lane`. Call once, when the session begins: registering takes the driver's locks,
  // and a program's first launches would wait for them if it came with their end.
  void Begin(Lane* lane);

  // The word of `id` becomes `ticket` after everything in `stream`. Returns false if the GPU cannot
  // reach the words, or not yet.
  bool Write(CUstream stream, wire::StreamId id, wire::Ticket ticket);

  // A hint: the tenant may have written the word itself.
  bool Reached(wire::StreamId id, wire::Ticket ticket) const;

  // Call when everything written is done, and `lane` is empty. At most once.
  void End();

 private:
  enum class State { kUnknown, kComing, kReachable, kUnreachable };

  void Unregister();

  Device* const device_;
  Quiet* const quiet_;
  std::shared_ptr<SharedRegion> region_;
  State state_ = State::kUnknown;
  CUdeviceptr words_ = 0;
};

}  // namespace gpuloom::executor
