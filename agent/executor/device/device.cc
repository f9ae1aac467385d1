// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/device.h"

#include <algorithm>
#include <cstdio>

#include "agent/executor/device/driver_objects.h"
#include "agent/executor/module/linker.h"
#include "agent/executor/process/log.h"
#include "agent/node/gpu_uuid.h"

namespace gpuloom::executor {
namespace {

// Of the driver's objects (driver_objects.h). The first streams are one block more than a context
// has: a block takes 23 MiB of device memory.
constexpr size_t kFirstStreams = 72;
constexpr size_t kFirstEvents = 4000;
constexpr size_t kStreamsAtATime = 64;
constexpr size_t kEventsAtATime = 4000;
// Of the events that can be made without waiting, so many are for marks, of which the driver's queues
// take 512 (driver_room.h); and of the streams and events so many for the executor's own: a stream
// for clearing memory in each class, one each for graphs' uploads, for printing and for arrays, and
// those that workers are destroying.
constexpr size_t kEventsForMarks = 768;
constexpr size_t kEventsForOwn = 64;
constexpr size_t kStreamsForOwn = 8;
// Beyond those the last ones are for tenants that have few.
constexpr size_t kEventsForOthers = 256;
constexpr size_t kStreamsForOthers = 8;
constexpr size_t kGreenStreamsAtATime = 43;
// For those that are being destroyed.
constexpr size_t kGreenStreamsForOwn = 4;

size_t Beyond(size_t count, size_t margin) { return count - std::min(count, margin); }

}  // namespace

// The errors after which, as CUDA says, the process must be ended; those of hardware and context
// that it documents as fatal; and UNKNOWN, after which nobody can say what still works.
bool IsSticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

Device::Device(const Driver& driver)
    : cuda_(driver),
      linker_(std::make_unique<Linker>()),
      objects_(std::make_unique<DriverObjects>()) {}
Device::~Device() = default;

// By UUID and not by number: the driver's order of devices depends on the environment.
CUresult Device::Find(const std::string& uuid, std::string* error) {
  int count = 0;
  CUresult result = cuda_.cuDeviceGetCount(&count);
  for (int i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    CUuuid bytes;
    result = cuda_.cuDeviceGet(&device_, i);
    if (result == CUDA_SUCCESS) result = cuda_.cuDeviceGetUuid_v2(&bytes, device_);
    if (result == CUDA_SUCCESS && FormatUuid(bytes.bytes) == uuid) return CUDA_SUCCESS;
  }
  if (result != CUDA_SUCCESS) {
    *error = std::string("cuda: looking for ") + uuid + ": " + NameOf(result);
    return result;
  }
  *error = "cuda: no device " + uuid + " among " + std::to_string(count) + " devices";
  return CUDA_ERROR_NO_DEVICE;
}

CUresult Device::Start(const std::string& uuid, std::string* error) {
  CUresult result = CUDA_SUCCESS;
  const auto check = [&](CUresult call_result, const char* call) {
    result = call_result;
    if (result == CUDA_SUCCESS) return true;
    *error = std::string("cuda: ") + call + " for " + uuid + ": " + NameOf(result);
    return false;
  };
  if (!check(cuda_.cuInit(0), "cuInit")) return result;
  result = Find(uuid, error);
  if (result != CUDA_SUCCESS) return result;
  Log(LogLevel::kDebug, "start: cuInit is done");
  if (check(cuda_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain") &&
      check(cuda_.cuCtxSetCurrent(context_), "cuCtxSetCurrent")) {
    check(cuda_.cuCtxGetStreamPriorityRange(&priority_least_, &priority_greatest_),
          "cuCtxGetStreamPriorityRange");
  }
  return result;
}

void Device::MakeCurrent() const { cuda_.cuCtxSetCurrent(context_); }

uint32_t Device::Capability() const {
  int major = 0;
  int minor = 0;
  (void)cuda_.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_);
  (void)cuda_.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_);
  return static_cast<uint32_t>(major * 10 + minor);
}

uint64_t Device::ResidentThreads() const {
  int multiprocessors = 0;
  int threads = 0;
  (void)cuda_.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                   device_);
  (void)cuda_.cuDeviceGetAttribute(&threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR,
                                   device_);
  return uint64_t{static_cast<uint32_t>(multiprocessors)} * static_cast<uint32_t>(threads);
}

// The first sticky error stays, whichever thread meets it: later ones are mostly its consequences.
CUresult Device::Judge(CUresult result) {
  if (result != CUDA_SUCCESS && IsSticky(result)) {
    CUresult expected = CUDA_SUCCESS;
    lost_.compare_exchange_strong(expected, result, std::memory_order_release,
                                  std::memory_order_relaxed);
  }
  return result;
}

CUresult Device::TakeStream(int priority, CUstream* stream) {
  std::vector<CUstream>& idle = idle_streams_[priority];
  if (!idle.empty()) {
    *stream = idle.back();
    idle.pop_back();
    --idle_stream_count_;
    return CUDA_SUCCESS;
  }
  const CUresult result =
      Judge(cuda_.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, priority));
  if (result == CUDA_SUCCESS) objects_->streams.Add();
  return result;
}

void Device::GiveStream(int priority, CUstream stream) {
  if (stream == nullptr) return;
  if (idle_stream_count_ == kMaxIdleStreams) return DropStream(stream, nullptr);
  ++idle_stream_count_;
  idle_streams_[priority].push_back(stream);
}

CUresult Device::TakeEvent(bool timing, CUevent* event) {
  std::vector<CUevent>& idle = idle_events_[timing];
  if (!idle.empty()) {
    *event = idle.back();
    idle.pop_back();
    return CUDA_SUCCESS;
  }
  const CUresult result =
      Judge(cuda_.cuEventCreate(event, timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING));
  if (result == CUDA_SUCCESS) objects_->events.Add();
  return result;
}

// At most kMaxIdleEvents of each kind are kept; the others are destroyed on a worker.
void Device::GiveEvent(bool timing, CUevent event) {
  std::vector<CUevent>& idle = idle_events_[timing];
  (idle.size() < kMaxIdleEvents ? idle : excess_.events).push_back(event);
}

bool Device::HasSpareGreenStream(CUgreenCtx green) {
  ObjectCount& streams = objects_->StreamsOf(green);
  if (streams.HasSpare(1, kGreenStreamsForOwn)) {
    streams.SetRefusal(CUDA_SUCCESS);
    return true;
  }
  if (std::find(short_greens_.begin(), short_greens_.end(), green) == short_greens_.end()) {
    short_greens_.push_back(green);
  }
  return false;
}

bool Device::HasSpareStream(int priority, bool has_few) const {
  const auto found = idle_streams_.find(priority);
  const size_t idle = found == idle_streams_.end() ? 0 : found->second.size();
  const size_t spare = idle + Beyond(objects_->streams.Spare(), kStreamsForOwn);
  return spare > (has_few ? 0 : kStreamsForOthers);
}

// Marks take what has come back and has no timing, and what is new. However often they come back, programs' events leave so
// many for them.
size_t Device::EventsToKeep(bool timing) const {
  const size_t fresh = objects_->events.Spare();
  const size_t spare = Beyond(idle_events_[false].size() + fresh, kEventsForMarks);
  return timing ? idle_events_[true].size() + std::min(spare, fresh) : spare;
}

bool Device::HasSpareEvent(bool timing, EventUse use) const {
  const size_t idle = idle_events_[timing].size();
  switch (use) {
    case EventUse::kKept:
      return EventsToKeep(timing) > kEventsForOthers;
    case EventUse::kFew:
      return EventsToKeep(timing) != 0;
    case EventUse::kMark:
      return idle != 0 || objects_->events.HasSpare(1, kEventsForOwn);
    case EventUse::kOwn:
      return idle != 0 || objects_->events.HasSpare(1, 0);
  }
  return false;
}

std::unique_ptr<EventPromise> Device::PromiseEvents(size_t events) {
  if (events != 0 && !objects_->events.HasSpare(events, kEventsForMarks + kEventsForOthers)) {
    wanted_events_ = std::max(wanted_events_, events);
    return nullptr;
  }
  objects_->events.Promise(events);
  return std::make_unique<EventPromise>(this, events);
}

EventPromise::~EventPromise() { device_->objects_->events.Redeem(left_); }

CUresult EventPromise::Make(CUevent* event) {
  const CUresult result = device_->Judge(device_->cuda().cuEventCreate(event, CU_EVENT_DEFAULT));
  if (result != CUDA_SUCCESS) return result;
  device_->objects_->events.Add();
  device_->objects_->events.Redeem(1);
  --left_;
  return CUDA_SUCCESS;
}

Device::Preparation Device::Missing() {
  Preparation missing;
  if (!objects_->streams.HasSpare(1, kStreamsForOwn + kStreamsForOthers)) {
    missing.streams = kStreamsAtATime;
  } else {
    objects_->streams.SetRefusal(CUDA_SUCCESS);  // of some that were missing before
  }
  if (!objects_->events.HasSpare(wanted_events_, kEventsForMarks + kEventsForOthers)) {
    missing.events = kEventsAtATime;
  }
  if (!short_greens_.empty()) {
    missing.green = short_greens_.front();
    missing.green_streams = &objects_->StreamsOf(missing.green);
  }
  return missing;
}

void Device::OnPrepared(const Preparation& made) {
  wanted_events_ = 1;
  std::erase(short_greens_, made.green);
}

void Device::CountGreenStream(CUgreenCtx green) { objects_->StreamsOf(green).Add(); }

// Non-blocking to CUDA, like all of the executor's streams.
CUresult Device::TakeGreenStream(CUgreenCtx green, int priority, CUstream* stream) {
  const CUresult result =
      Judge(cuda_.cuGreenCtxStreamCreate(stream, green, CU_STREAM_NON_BLOCKING, priority));
  if (result == CUDA_SUCCESS) objects_->StreamsOf(green).Add();
  return result;
}

void Device::DropStream(CUstream stream, CUgreenCtx green) {
  if (stream != nullptr) excess_.streams.push_back({stream, &objects_->StreamsOf(green)});
}

void Device::PrepareFirst() {
  (void)Prepare({kFirstStreams, kFirstEvents});
  objects_->streams.Begin();
}

size_t Device::grown_streams() const {
  size_t grown = objects_->streams.grown();
  for (const auto& [green, streams] : objects_->green_streams) grown += streams.grown();
  return grown;
}

// What is beyond the present number stays with the driver when it is destroyed. Only what it has made is counted: of what is
// counted and is not there, the next call would wait for the device.
CUresult Device::Prepare(const Preparation& missing) {
  Excess made;
  made.streams.reserve(missing.streams);
  made.events.reserve(missing.events);
  CUresult refusal = CUDA_SUCCESS;
  const auto make = [&refusal](size_t objects, ObjectCount* count, auto make_one) {
    if (objects == 0) return;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < objects && result == CUDA_SUCCESS; ++i) {
      result = make_one();
      if (result == CUDA_SUCCESS) count->Add();
    }
    count->SetRefusal(result);
    if (refusal == CUDA_SUCCESS) refusal = result;
  };
  const auto make_streams = [&](size_t streams, ObjectCount* count, auto make_one) {
    make(streams, count, [&] {
      CUstream stream = nullptr;
      const CUresult result = make_one(&stream);
      if (result == CUDA_SUCCESS) made.streams.push_back({stream, count});
      return result;
    });
  };
  make_streams(missing.streams, &objects_->streams, [this](CUstream* stream) {
    return cuda_.cuStreamCreateWithPriority(stream, CU_STREAM_NON_BLOCKING, 0);
  });
  make(missing.events, &objects_->events, [&] {
    CUevent event = nullptr;
    const CUresult result = cuda_.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS) made.events.push_back(event);
    return result;
  });
  if (missing.green != nullptr) {
    make_streams(kGreenStreamsAtATime, missing.green_streams, [&](CUstream* stream) {
      return cuda_.cuGreenCtxStreamCreate(stream, missing.green, CU_STREAM_NON_BLOCKING, 0);
    });
  }
  Destroy(made);
  return Judge(refusal);
}

CUresult Device::StreamRefusal(CUgreenCtx green) const {
  return objects_->StreamsOf(green).refusal();
}

// From the end of the lists, so that nothing moves.
Device::Excess Device::TakeExcess() {
  static constexpr size_t kPiece = 256;
  Excess piece;
  const auto take = [](auto* from, auto* to) {
    const auto begin = from->end() - static_cast<ptrdiff_t>(std::min(from->size(), kPiece));
    to->assign(begin, from->end());
    from->erase(begin, from->end());
  };
  take(&excess_.streams, &piece.streams);
  take(&excess_.events, &piece.events);
  return piece;
}

// Results are not looked at: what cannot be destroyed is lost to the process, and a sticky error
// shows itself elsewhere.
void Device::Destroy(const Excess& excess) {
  for (const Excess::Stream& dropped : excess.streams) {
    dropped.count->Remove();
    cuda_.cuStreamDestroy_v2(dropped.stream);
  }
  for (const CUevent event : excess.events) {
    objects_->events.Remove();
    cuda_.cuEventDestroy_v2(event);
  }
}

// cuKernelGetName is newer than the oldest driver that is supported.
const char* Device::NameOf(CUkernel kernel) const {
  const char* name = nullptr;
  if (kernel == nullptr || cuda_.cuKernelGetName == nullptr ||
      cuda_.cuKernelGetName(&name, kernel) != CUDA_SUCCESS) {
    return nullptr;
  }
  return name;
}

const char* Device::NameOf(CUresult result) const {
  const char* name = nullptr;
  if (cuda_.cuGetErrorName == nullptr || cuda_.cuGetErrorName(result, &name) != CUDA_SUCCESS ||
      name == nullptr) {
    return "an unknown CUDA error";
  }
  return name;
}

}  // namespace gpuloom::executor
