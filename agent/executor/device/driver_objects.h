// SPDX-License-Identifier: Apache-2.0
// How many CUDA streams and events the executor has. NVIDIA's driver makes them in blocks, and a call that needs another
// block waits for all that runs on the device (H200, 580.159.04: 43 streams, 2,044 events), holding the context's lock. It
// keeps the blocks of those that are destroyed. Each green context has its own blocks of streams, of which it brings one
// along. So as many as there have been at a time can be there again without
// waiting; more are prepared in a quiet moment (quiet.h), and until then whatever needs them waits.
//
// Owned by Device. Workers make and destroy them, too, so everything is safe from any thread; but only the ring thread
// asks for spare ones, and a worker makes only what was promised to it there, or is in a quiet moment. Nothing fails.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

// One kind of object.
class ObjectCount {
 public:
  // `most`: what a fresh context makes without waiting.
  explicit ObjectCount(size_t most) : fresh_(most), most_(most) {}

  // Call behind the driver's call that has made one: the driver has had so many.
  void Add() {
    const size_t alive = ++alive_;
    size_t seen = most_;
    while (seen < alive && !most_.compare_exchange_weak(seen, alive)) {
    }
  }
  // Call before the driver's call that destroys one, so that no more are counted than have been there. While that call
  // runs one too many seems to be spare: the margins are larger than the number of threads that destroy.
  void Remove() { --alive_; }

  // What the driver said when it was last asked to make some ahead.
  void SetRefusal(CUresult result) { refusal_ = result; }
  CUresult refusal() const { return refusal_; }

  // Before there are tenants: what there has been is counted as a fresh context's.
  void Begin() { fresh_ = most_; }
  // How many more than a fresh context's there have been at a time.
  size_t grown() const { return most_ - fresh_; }

  // Ring thread. A worker will make so many: nobody else gets them.
  void Promise(size_t objects) { promised_ += objects; }
  // Call behind Add, or instead of it.
  void Redeem(size_t objects) { promised_ -= objects; }

  // Whether `objects` more can be made without waiting, and `margin` more behind them.
  bool HasSpare(size_t objects, size_t margin) const { return Spare() >= objects + margin; }
  // How many can be made without waiting.
  size_t Spare() const {
    // In this order: one that is made meanwhile is counted twice, rather than not at all.
    const size_t promised = promised_;
    const size_t taken = alive_ + promised;
    const size_t most = most_;
    return most - std::min(most, taken);
  }
  size_t alive() const { return alive_; }

 private:
  size_t fresh_;
  std::atomic<size_t> most_;
  std::atomic<size_t> alive_{0};
  std::atomic<size_t> promised_{0};
  std::atomic<CUresult> refusal_{CUDA_SUCCESS};
};

struct DriverObjects {
  ObjectCount streams{32};  // of the primary context
  ObjectCount events{2000};
  // By green context; the ring thread adds them. 40 streams did not wait, beside the default one (H200, 580.159.04).
  std::map<CUgreenCtx, ObjectCount> green_streams;
  static constexpr size_t kFirstGreenStreams = 38;

  // Of the primary context if `green` is null. Valid for as long as this.
  ObjectCount& StreamsOf(CUgreenCtx green) {
    return green == nullptr ? streams
                            : green_streams.try_emplace(green, kFirstGreenStreams).first->second;
  }
};

}  // namespace gpuloom::executor
