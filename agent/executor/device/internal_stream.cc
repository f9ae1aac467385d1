// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/internal_stream.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "agent/executor/copy/staging.h"
#include "agent/executor/device/device.h"
#include "agent/executor/stream/stream_command.h"

namespace gpuloom::executor {

namespace {

// Several times the memory of any device: reserving addresses costs the same for any size, and
// having enough saves several calls for each grant.
constexpr uint64_t kHiddenBytes = uint64_t{1} << 40;

}  // namespace

// Without hidden addresses each grant reserves some of its own (grant.cc).
bool InternalStream::Start(std::function<void(CUstream)> on_stream, std::string* error) {
  on_stream_ = std::move(on_stream);
  const CUresult result = MakeStream(device_->priority_greatest(), &words_);
  if (result != CUDA_SUCCESS) {
    *error = std::string("cuda: cuStreamCreateWithPriority: ") + device_->NameOf(result);
    return false;
  }
  CUdeviceptr begin = 0;
  if (device_->cuda().cuMemAddressReserve(&begin, kHiddenBytes, kGranuleBytes, 0, 0) ==
      CUDA_SUCCESS) {
    hidden_ = FreeAddresses(begin, kHiddenBytes);
  }
  return true;
}

CUresult InternalStream::MakeStream(int priority, Line* line) {
  const CUresult result = device_->TakeStream(priority, &line->stream);
  if (result == CUDA_SUCCESS) on_stream_(line->stream);
  return result;
}

InternalStream::Line* InternalStream::LineOf(int priority) {
  const auto [it, is_new] = clears_.try_emplace(priority);
  if (!is_new || MakeStream(priority, &it->second) == CUDA_SUCCESS) return &it->second;
  clears_.erase(it);
  return &words_;
}

bool InternalStream::HasRoom() const {
  return words_.waiting.size() < kWordsAtOnce &&
         device_->HasSpareEvent(/*timing=*/false, Device::EventUse::kOwn);
}

bool InternalStream::HasRoomToClear(int priority, uint32_t mine) const {
  const auto line = clears_.find(priority);
  const size_t there = line == clears_.end() ? 0 : line->second.waiting.size();
  return there < (mine == 0 ? 4 * kClearsAtOnce : kClearsAtOnce) &&
         device_->HasSpareEvent(/*timing=*/false, Device::EventUse::kOwn);
}

CUresult InternalStream::ForArrays(CUstream* stream) {
  if (arrays_.stream == nullptr) {
    const CUresult result = MakeStream(/*priority=*/0, &arrays_);
    if (result != CUDA_SUCCESS) return result;
  }
  *stream = arrays_.stream;
  return CUDA_SUCCESS;
}

// In words: grants are whole granules.
void InternalStream::Clear(uint64_t address, uint64_t size_bytes, int priority,
                           std::function<void(CUresult)> done) {
  const Driver& cuda = device_->cuda();
  Line* const line = LineOf(priority);
  CUevent event = nullptr;
  CUresult result = device_->TakeEvent(false, &event);
  if (result == CUDA_SUCCESS) {
    result = device_->Judge(cuda.cuMemsetD32Async(address, 0, size_bytes / 4, line->stream));
  }
  Queue(line, event, result, [done = std::move(done)](CUresult cleared) {
    done(cleared);
    return true;
  });
}

void InternalStream::Read(uint64_t address, uint32_t size_bytes, Staging* staging, OnWord done) {
  static_assert(kWordsAtOnce <= Staging::kWords);
  CUevent event = nullptr;
  CUresult result = device_->TakeEvent(false, &event);
  uint8_t* pinned = staging->TakeWord();
  // Without pinned memory the copy goes to pageable memory, and CUDA returns when it is done.
  auto pageable = std::make_shared<uint64_t>(0);
  void* to = pinned != nullptr ? static_cast<void*>(pinned) : pageable.get();
  if (result == CUDA_SUCCESS) {
    result = device_->Judge(
        device_->cuda().cuMemcpyDtoHAsync_v2(to, address, size_bytes, words_.stream));
  }
  Queue(&words_, event, result, [=, done = std::move(done)](CUresult read) {
    uint64_t word = *pageable;
    if (pinned != nullptr) {
      std::memcpy(&word, pinned, size_bytes);
      staging->GiveWord(pinned);
    }
    return done(read, word);
  });
}

void InternalStream::Write(const wire::StreamWriteValue::Request& write,
                           std::function<void(CUresult)> done) {
  CUevent event = nullptr;
  CUresult result = device_->TakeEvent(false, &event);
  if (result == CUDA_SUCCESS) {
    result = device_->Judge(SubmitWriteValue(device_->cuda(), write, words_.stream));
  }
  Queue(&words_, event, result, [done = std::move(done)](CUresult written) {
    done(written);
    return true;
  });
}

// A failure is queued as well, so that `done` runs in Poll, in order, and never within the call.
void InternalStream::Queue(Line* line, CUevent event, CUresult result,
                           std::function<bool(CUresult)> done) {
  if (result == CUDA_SUCCESS) {
    result = device_->Judge(device_->cuda().cuEventRecord(event, line->stream));
  }
  if (result != CUDA_SUCCESS && event != nullptr) {
    device_->GiveEvent(false, event);
    event = nullptr;
  }
  line->waiting.push_back({event, result, std::move(done)});
}

// The callbacks may add lines, which moves none.
bool InternalStream::Poll() {
  bool any = Poll(&words_);
  for (auto& [priority, line] : clears_) any |= Poll(&line);
  return any;
}

// A stream is in order: behind an event that is not reached none is.
bool InternalStream::Poll(Line* line) {
  bool any = false;
  while (!line->waiting.empty()) {
    CUresult result = line->waiting.front().result;
    if (line->waiting.front().event != nullptr) {
      result = device_->Judge(device_->cuda().cuEventQuery(line->waiting.front().event));
      if (result == CUDA_ERROR_NOT_READY) break;
      device_->GiveEvent(false, line->waiting.front().event);
    }
    // Taken out first: it may queue more.
    const auto done = std::move(line->waiting.front().done);
    line->waiting.pop_front();
    any |= done(result);
  }
  return any;
}

bool InternalStream::Idle() const {
  return words_.waiting.empty() &&
         std::all_of(clears_.begin(), clears_.end(),
                     [](const auto& entry) { return entry.second.waiting.empty(); });
}

}  // namespace gpuloom::executor
