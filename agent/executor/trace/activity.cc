// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/trace/activity.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/process/crash_report.h"
#include "agent/node/clock.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

using wire::TraceKind;
using wire::TraceRecord;

constexpr uint32_t kKinds[] = {kCuptiConcurrentKernel, kCuptiMemcpy, kCuptiMemset};
// How often buffers that are not full are requested.
constexpr std::chrono::milliseconds kFlushEvery{100};
// How long the end of a trace waits for work that had begun.
constexpr std::chrono::milliseconds kDrain{50};

// CUPTI's copy kinds.
constexpr uint8_t kHostToDevice = 1, kDeviceToHost = 2, kHostToArray = 3, kArrayToHost = 4;

// Passes buffers between CUPTI's callbacks, which come on any thread, and the thread that reads.
class Buffers {
 public:
  // nullptr: there are enough.
  // Called by CUPTI within launches, too: never waits for the reader.
  uint8_t* Take() {
    const MutexLock lock(mutex_);
    if (!free_.empty()) {
      uint8_t* const buffer = free_.back();
      free_.pop_back();
      return buffer;
    }
    if (made_ == kMostActivityBuffers) return nullptr;
    auto* const buffer = static_cast<uint8_t*>(malloc(kActivityBufferBytes));
    if (buffer != nullptr) ++made_;
    return buffer;
  }
  void Give(uint8_t* buffer) {
    const MutexLock lock(mutex_);
    free_.push_back(buffer);
  }
  // CUPTI has filled it, and gives it up.
  void Fill(uint8_t* buffer, size_t valid_bytes) {
    {
      const MutexLock lock(mutex_);
      filled_.push_back({buffer, valid_bytes});
    }
    changed_.NotifyOne();
  }
  std::pair<uint8_t*, size_t> TakeFilled() {
    const MutexLock lock(mutex_);
    if (filled_.empty()) return {nullptr, 0};
    const auto first = filled_.front();
    filled_.pop_front();
    return first;
  }
  void Wake() {
    {
      const MutexLock lock(mutex_);
      woken_ = true;
    }
    changed_.NotifyOne();
  }
  // Waits for a full buffer, for the end of the trace, or for the time at which buffers that are
  // not full are requested.
  void WaitForOne() {
    MutexLock lock(mutex_);
    changed_.WaitFor(mutex_, kFlushEvery, [this]() GPULOOM_REQUIRES(mutex_) {
      return std::exchange(woken_, false) || !filled_.empty();
    });
  }
  // CUPTI may keep some; those come back with the next trace.
  void FreeUnused() {
    const MutexLock lock(mutex_);
    for (uint8_t* buffer : free_) free(buffer);
    made_ -= free_.size();
    free_.clear();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<uint8_t*> free_ GPULOOM_GUARDED_BY(mutex_);
  std::deque<std::pair<uint8_t*, size_t>> filled_ GPULOOM_GUARDED_BY(mutex_);
  size_t made_ GPULOOM_GUARDED_BY(mutex_) = 0;
  bool woken_ GPULOOM_GUARDED_BY(mutex_) = false;
};

// CUPTI's callbacks outlive every trace.
Buffers& TheBuffers() {
  static auto* const kBuffers = new Buffers;
  return *kBuffers;
}

// CUPTI drops records, and counts them, where it gets no buffer.
void OnRequested(uint8_t** buffer, size_t* size_bytes, size_t* most_records) {
  *buffer = TheBuffers().Take();
  *size_bytes = *buffer == nullptr ? 0 : kActivityBufferBytes;
  *most_records = 0;  // as many as it holds
}

void OnCompleted(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  if (buffer != nullptr) TheBuffers().Fill(buffer, valid_bytes);
}

TraceKind KindOf(const CuptiCopy& copy) {
  if (copy.kind == kCuptiMemset) return TraceKind::kFill;
  if (copy.copy_kind == kHostToDevice || copy.copy_kind == kHostToArray) {
    return TraceKind::kCopyToDevice;
  }
  if (copy.copy_kind == kDeviceToHost || copy.copy_kind == kArrayToHost) {
    return TraceKind::kCopyFromDevice;
  }
  return TraceKind::kCopyOnDevice;
}

}  // namespace

// At the end of the process or a test: a trace that is going on is stopped and waited for.
Activity::~Activity() {
  if (thread_.joinable()) {
    SetState(State::kStopping);
    TheBuffers().Wake();
    thread_.join();
  }
}

// The thread is made for each trace: attaching CUPTI may wait for the driver, which the ring thread
// must not.
void Activity::Start(TraceWriter* writer, const StreamOwners* owners) {
  writer_ = writer;
  owners_ = owners;
  lost_ = 0;
  state_ = State::kStarting;
  thread_ = std::thread([this] { Run(); });
}

void Activity::Stop() {
  state_ = State::kStopping;
  TheBuffers().Wake();
}

void Activity::Finish() {
  thread_.join();
  state_ = State::kIdle;
}

// Null for the context: the calling thread's.
std::optional<uint32_t> Activity::IdOf(CUstream stream) const {
  uint32_t id = 0;
  if (cupti_.cuptiGetStreamIdEx(nullptr, stream, 0, &id) != kCuptiSuccess) return std::nullopt;
  return id;
}

// Released, so that whoever sees the state sees what it says of `why_` and the region.
void Activity::SetState(State state) {
  state_.store(state, std::memory_order_release);
  Notify();
}

void Activity::Notify() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(wake_fd_, &one, sizeof(one));
}

// Attaches CUPTI, the first time. Our clock makes its times comparable with the scheduler's and
// other executors'. What has been enabled is disabled again if the rest fails.
bool Activity::Enable() {
  const char* what = "taking our clock";
  int result = cupti_.cuptiActivityRegisterTimestampCallback(NowNs);
  if (result == kCuptiSuccess) {
    what = "taking our buffers";
    result = cupti_.cuptiActivityRegisterCallbacks(OnRequested, OnCompleted);
  }
  for (const uint32_t kind : kKinds) {
    if (result != kCuptiSuccess) break;
    what = "recording";
    result = cupti_.cuptiActivityEnable(kind);
  }
  if (result == kCuptiSuccess) return true;
  Disable();
  const char* name = nullptr;
  if (cupti_.cuptiGetResultString(result, &name) != kCuptiSuccess || name == nullptr) name = "?";
  why_ = "cupti: " + cupti_.path + ": " + what + ": " + name + " (" + std::to_string(result) + ")";
  return false;
}

void Activity::Disable() {
  for (const uint32_t kind : kKinds) (void)cupti_.cuptiActivityDisable(kind);
}

void Activity::Run() {
  ReserveCrashStack();
  device_->MakeCurrent();
  // Brings back what an earlier trace left over.
  while (uint8_t* const buffer = TheBuffers().TakeFilled().first) TheBuffers().Give(buffer);
  if (!Enable()) return SetState(State::kFailed);
  writer_->Begin(wire::TraceSource::kCupti, "", NowNs());
  // Not done if the process ends meanwhile.
  State starting = State::kStarting;
  if (state_.compare_exchange_strong(starting, State::kRecords)) Notify();
  while (state() == State::kRecords) {
    TheBuffers().WaitForOne();
    ReadBuffers();
    // Brings back the buffers whose records are all complete, full or not.
    (void)cupti_.cuptiActivityFlushAll(0);
    NoteDropped();
  }
  // What had begun is usually done by then, and its record is complete. What begins meanwhile is
  // beyond the trace's end.
  std::this_thread::sleep_for(kDrain);
  (void)cupti_.cuptiActivityFlushAll(0);
  ReadBuffers();
  Disable();
  (void)cupti_.cuptiActivityFlushAll(kCuptiFlushForced);
  ReadBuffers();
  NoteDropped();
  TheBuffers().FreeUnused();
  SetState(State::kDone);
}

// CUPTI counts from one question to the next, so they are added up.
void Activity::NoteDropped() {
  size_t dropped = 0;
  if (cupti_.cuptiActivityGetNumDroppedRecords(nullptr, 0, &dropped) != kCuptiSuccess) return;
  lost_ += dropped;
  // CUPTI does not say whose they were: a tenant only learns that some are missing.
  writer_->SetLost(owners_->is_own() ? std::min<uint64_t>(lost_, 1) : lost_);
}

void Activity::ReadBuffers() {
  for (;;) {
    const auto [buffer, valid_bytes] = TheBuffers().TakeFilled();
    if (buffer == nullptr) return;
    ReadBuffer(buffer, valid_bytes);
    TheBuffers().Give(buffer);
  }
}

// Copied out of the buffer, because newer records are longer, and only their beginning is known
// here.
void Activity::ReadBuffer(uint8_t* buffer, size_t valid_bytes) {
  if (valid_bytes == 0) return;
  uint8_t* record = nullptr;
  while (cupti_.cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == kCuptiSuccess) {
    uint32_t kind = 0;
    std::memcpy(&kind, record, sizeof(kind));
    if (kind == kCuptiConcurrentKernel) {
      CuptiKernel kernel;
      std::memcpy(&kernel, record, sizeof(kernel));
      WriteKernel(kernel);
    } else if (kind == kCuptiMemcpy || kind == kCuptiMemset) {
      CuptiCopy copy;
      std::memcpy(&copy, record, sizeof(copy));
      WriteCopy(copy);
    }
  }
}

void Activity::WriteKernel(const CuptiKernel& kernel) {
  TraceRecord record{};
  record.begin_ns = kernel.start_ns;
  record.end_ns = kernel.end_ns;
  record.kind = static_cast<uint32_t>(TraceKind::kKernel);
  // The nodes of one launch of a graph have it in common.
  if (kernel.graph_node_id != 0) record.correlation = kernel.correlation_id;
  Write(record, kernel.stream_id, kernel.name);
}

void Activity::WriteCopy(const CuptiCopy& copy) {
  TraceRecord record{};
  record.begin_ns = copy.start_ns;
  record.end_ns = copy.end_ns;
  record.kind = static_cast<uint32_t>(KindOf(copy));
  record.bytes = copy.bytes;
  if (copy.graph_node_id != 0) record.correlation = copy.correlation_id;
  Write(record, copy.stream_id, nullptr);
}

// A record of nobody's stream has session 0, and CUPTI's number instead of the session's number of
// the stream.
void Activity::Write(TraceRecord record, uint32_t stream_id, const char* name) {
  const auto owner = owners_->Find(stream_id, record.begin_ns);
  if (!owners_->Wants(owner, record.begin_ns)) return;
  // Comes after the owner is known: a tenant is told of its own records only.
  if (record.begin_ns == 0 || record.end_ns < record.begin_ns) return writer_->NoteIncomplete();
  record.commands = 1;
  record.stream = stream_id;
  if (owner) {
    record.session_id = owner->session_id;
    record.stream = owner->stream;
  }
  if (name != nullptr) record.name = writer_->Name(name);
  writer_->Write(record);
}

}  // namespace gpuloom::executor
