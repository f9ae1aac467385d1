// SPDX-License-Identifier: Apache-2.0
// Records with CUPTI what the device does: enables CUPTI's activity records while there is a trace, attributes each
// kernel and copy to the session in whose stream it ran, and writes it into the trace's region.
//
// The first Start attaches CUPTI, not the constructor: an attached CUPTI makes launches a little slower even when it
// records nothing. It then stays attached: detaching while graphs exist has crashed processes.
//
// Owned by the tracer. At most one exists in a process, because CUPTI's callbacks do not say which object they are for.
// The ring thread makes all calls. A separate thread, which lives as long as a trace, calls CUPTI, because that may
// wait for the driver, and reads its buffers. CUPTI fills the buffers on threads of its own and during launches; at
// most kMostActivityBuffers exist, and CUPTI drops and counts what finds no room. Only Start can fail, which state()
// reports.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "agent/executor/trace/cupti.h"
#include "agent/executor/trace/stream_owners.h"
#include "agent/executor/trace/trace_writer.h"

namespace gpuloom::executor {

class Device;

// The size that CUPTI's documentation recommends; 64 MiB in all.
inline constexpr size_t kActivityBufferBytes = 4u << 20;
inline constexpr size_t kMostActivityBuffers = 16;

class Activity {
 public:
  enum class State { kIdle, kStarting, kRecords, kFailed, kStopping, kDone };

  // `wake_fd`: an eventfd of the caller's that becomes readable when the state has changed.
  Activity(const Device* device, const Cupti& cupti, int wake_fd)
      : device_(device), cupti_(cupti), wake_fd_(wake_fd) {}
  ~Activity();

  // From kIdle. Both arguments are used until kFailed or kDone.
  void Start(TraceWriter* writer, const StreamOwners* owners);
  // From kRecords.
  void Stop();
  // From kFailed and kDone; returns to kIdle.
  void Finish();
  State state() const { return state_.load(std::memory_order_acquire); }
  // In kFailed: the reason.
  const std::string& why() const { return why_; }

  // CUPTI's number for the stream, which must exist. In kRecords.
  std::optional<uint32_t> IdOf(CUstream stream) const;

 private:
  void Run();
  bool Enable();
  void Disable();
  void ReadBuffers();
  void ReadBuffer(uint8_t* buffer, size_t valid_bytes);
  void WriteKernel(const CuptiKernel& kernel);
  void WriteCopy(const CuptiCopy& copy);
  // `name`: nullptr if it has none.
  void Write(wire::TraceRecord record, uint32_t stream_id, const char* name);
  void NoteDropped();
  void SetState(State state);
  void Notify() const;

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
