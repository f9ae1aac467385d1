// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/completion_words.h"

#include <atomic>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/session/lane.h"
#include "proto/wire/regions.h"

namespace gpuloom::executor {
namespace {

uint8_t* WordsOf(const SharedRegion& region) {
  return region.data() + offsetof(wire::CompletionRegion, completed);
}
constexpr size_t kWordsBytes = sizeof(wire::CompletionRegion::completed);
// Only these pages are registered; the region's others, with replies and faults, are not mapped
// for the GPU.
static_assert(offsetof(wire::CompletionRegion, completed) % wire::kPageBytes == 0 &&
              kWordsBytes % wire::kPageBytes == 0);

}  // namespace

bool CompletionWords::Write(CUstream stream, wire::StreamId id, wire::Ticket ticket) {
  // A wait that comes before the words are registered is answered by the event alone.
  if (state_ != State::kReachable) return false;
  const CUdeviceptr word = words_ + static_cast<uint32_t>(id) * sizeof(uint64_t);
  return device_->Judge(device_->cuda().cuStreamWriteValue64_v2(
             stream, word, static_cast<uint64_t>(ticket), CU_STREAM_WRITE_VALUE_DEFAULT)) ==
         CUDA_SUCCESS;
}

// Relaxed, because nothing is read on the strength of it: the event that is then queried orders
// everything else.
bool CompletionWords::Reached(wire::StreamId id, wire::Ticket ticket) const {
  auto& word = reinterpret_cast<uint64_t*>(WordsOf(*region_))[static_cast<uint32_t>(id)];
  return std::atomic_ref<uint64_t>(word).load(std::memory_order_relaxed) >=
         static_cast<uint64_t>(ticket);
}

void CompletionWords::Begin(Lane* lane) {
  const Driver& cuda = device_->cuda();
  if (cuda.cuStreamWriteValue64_v2 == nullptr || cuda.cuMemHostRegister_v2 == nullptr ||
      cuda.cuMemHostGetDevicePointer_v2 == nullptr) {
    state_ = State::kUnreachable;
    return;
  }
  state_ = State::kComing;
  struct Outcome {
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr words = 0;
    bool is_registered = false;
  };
  auto outcome = std::make_shared<Outcome>();
  lane->Post(
      [outcome, region = region_, &cuda] {
        void* words = WordsOf(*region);
        outcome->result = cuda.cuMemHostRegister_v2(
            words, kWordsBytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
        outcome->is_registered = outcome->result == CUDA_SUCCESS;
        if (!outcome->is_registered) return;
        outcome->result = cuda.cuMemHostGetDevicePointer_v2(&outcome->words, words, 0);
        if (outcome->result != CUDA_SUCCESS) outcome->words = 0;
      },
      [this, outcome] {
        words_ = outcome->words;
        state_ = device_->Judge(outcome->result) == CUDA_SUCCESS ? State::kReachable
                                                                 : State::kUnreachable;
        if (outcome->is_registered && state_ == State::kUnreachable) Unregister();
      });
}

void CompletionWords::End() {
  if (state_ != State::kReachable) return;
  state_ = State::kUnreachable;
  Unregister();
}

// It waits for the device.
void CompletionWords::Unregister() {
  quiet_->Retire(
      [region = region_, &cuda = device_->cuda()] { cuda.cuMemHostUnregister(WordsOf(*region)); },
      nullptr);
}

}  // namespace gpuloom::executor
