// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/printing/printer.h"

#include <algorithm>
#include <memory>

#include "agent/executor/device/device.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/lane.h"

namespace gpuloom::executor {

Printer::Printer(Device* device, WorkPool* pool, DriverOutput* output)
    : device_(device), output_(output), lane_(std::make_unique<Lane>(pool)) {}

Printer::~Printer() = default;

// First come, first served among sessions. The owner may launch more only while no other session
// waits; once one does, the turn passes when the launches are done.
bool Printer::MayPrint(uint64_t session, uint64_t now_ns) {
  if (IsTurnOf(session, now_ns)) return true;
  const auto own = std::find_if(waiting_.begin(), waiting_.end(),
                                [session](const Waiting& one) { return one.session == session; });
  if (own == waiting_.end()) {
    waiting_.push_back({session});
  } else {
    *own = {session};
  }
  return false;
}

bool Printer::IsTurnOf(uint64_t session, uint64_t now_ns) {
  if (owner_ != 0 && owner_ != session) return false;
  for (Waiting& ahead : waiting_) {
    if (ahead.session == session) return true;
    if (ahead.passed) continue;
    // While its own launches run, no other session could print anyway.
    if (owner_ == session) return false;
    if (!ahead.blocks_ns) ahead.blocks_ns = now_ns;
    if (now_ns < *ahead.blocks_ns + kPatienceNs) return false;
    ahead.passed = true;
  }
  return true;
}

bool Printer::Waits(uint64_t session) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [session](const Waiting& one) {
    return one.session == session && !one.passed;
  });
}

bool Printer::AnyWaits() const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const Waiting& one) { return !one.passed; });
}

// What is in the buffer when a turn begins was written after the last owner's text had been taken:
// whose it is cannot be known.
void Printer::Began(uint64_t session) {
  Forget(session);
  if (owner_ == 0 && output_ != nullptr) {
    if (const std::string nobodys = output_->TakePrinted(); !nobodys.empty()) {
      LogFor(&lines_, LogLevel::kInfo, "%zu bytes on stdout that are no session's are dropped",
             nobodys.size());
    }
  }
  owner_ = session;
  ++launches_;
}

void Printer::Ended(uint32_t launches) {
  launches_ -= launches;
  if (launches_ == 0) owner_ = 0;
}

// The stream has no work of its own. Synchronizing it makes the driver write what kernels have
// printed, and waiting for the event makes sure that this is behind the launch.
void Printer::Flush(CUevent reached, std::function<void(std::string)> done) {
  CUresult result = CUDA_SUCCESS;
  if (stream_ == nullptr) result = device_->Judge(device_->TakeStream(0, &stream_));
  struct Flushed {
    CUresult result;
    std::string text;
  };
  auto flushed = std::make_shared<Flushed>(Flushed{result, {}});
  lane_->Post(
      [flushed, reached, stream = stream_, output = output_, &cuda = device_->cuda()] {
        if (flushed->result == CUDA_SUCCESS) {
          flushed->result = cuda.cuStreamWaitEvent(stream, reached, 0);
        }
        if (flushed->result == CUDA_SUCCESS) flushed->result = cuda.cuStreamSynchronize(stream);
        if (output != nullptr) flushed->text = output->TakePrinted();
      },
      [this, flushed, done = std::move(done)] {
        device_->Judge(flushed->result);
        done(std::move(flushed->text));
      });
}

}  // namespace gpuloom::executor
