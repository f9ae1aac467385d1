// SPDX-License-Identifier: Apache-2.0
// Records with CUPTI what the device does: enables its activity records for the time of a trace, attributes each kernel and
// copy to the session whose stream it ran in, and writes it into the trace's region.
//
// Attaching happens with the first Start, not before: an attached CUPTI costs launches a little even when it records
// nothing. It stays attached then: detaching while graphs exist has crashed processes.
//
// Owned by the tracer; one at a time in a process, as CUPTI's callbacks say nothing of whom they are for. The ring thread
// calls everything here; a thread of our own, which lives as long as a trace, calls CUPTI, because that may wait for the
// driver, and reads its buffers. CUPTI fills these on threads of its own and in launches; at most kMostActivityBuffers exist, and what
// has no room CUPTI drops and counts. Nothing fails but Start, which state() tells.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "agent/executor/device/device.h"
#include "agent/executor/trace/cupti.h"
#include "agent/executor/trace/stream_owners.h"
#include "agent/executor/trace/trace_writer.h"

namespace gpuloom::executor {

// As CUPTI's documentation recommends; 64 MiB in all.
inline constexpr size_t kActivityBufferBytes = 4u << 20;
inline constexpr size_t kMostActivityBuffers = 16;

class Activity {
 public:
  enum class State { kIdle, kStarting, kRecords, kFailed, kStopping, kDone };

  // `wake_fd`: an eventfd of the caller's that becomes readable when the state has changed.
  Activity(const Device* device, const Cupti& cupti, int wake_fd)
      : device_(device), cupti_(cupti), wake_fd_(wake_fd) {}
  ~Activity();

  // From kIdle. Both are used until kFailed or kDone.
  void Start(TraceWriter* writer, const StreamOwners* owners);
  // From kRecords.
  void Stop();
  // From kFailed and kDone: to kIdle.
  void Finish();
  State state() const { return state_.load(std::memory_order_acquire); }
  // In kFailed.
  const std::string& why() const { return why_; }

  // How CUPTI's records call the stream, which must exist. In kRecords.
  std::optional<uint32_t> IdOf(CUstream stream) const;

 private:
  void Run();
  bool Enable();
  void Disable();
  void ReadBuffers();
  void ReadBuffer(uint8_t* buffer, size_t valid_bytes);
  void WriteKernel(const CuptiKernel& kernel);
  void WriteCopy(const CuptiCopy& copy);
  // `name`: null if it has none.
  void Write(wire::TraceRecord record, uint32_t stream_id, const char* name);
  void NoteDropped();
  void SetState(State state);
  void Tell() const;

  const Device* const device_;
  const Cupti& cupti_;
  const int wake_fd_;
  TraceWriter* writer_ = nullptr;
  const StreamOwners* owners_ = nullptr;
  uint64_t lost_ = 0;
  std::string why_;
  std::atomic<State> state_{State::kIdle};
  std::thread thread_;
};

}  // namespace gpuloom::executor
