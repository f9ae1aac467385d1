// SPDX-License-Identifier: Apache-2.0
// How many CUDA streams and events the executor has. NVIDIA's driver makes them in blocks, and a call that needs another
// block waits for all that runs on the device (H200, 580.159.04: 43 streams, 2,044 events). It keeps the blocks of those
// that are destroyed. So as many as there have been at a time can be there again without waiting; more are prepared in a
// quiet moment (quiet.h), and until then the work that needs them waits in its stream.
//
// Owned by Device; ring thread only. Nothing fails.
#pragma once

#include <algorithm>
#include <cstddef>

namespace gpuloom::executor {

class DriverObjects {
 public:
  // One kind of object.
  class Count {
   public:
    // `most`: what a fresh context makes without waiting.
    explicit constexpr Count(size_t most) : most_(most) {}

    void Add() { most_ = std::max(most_, ++alive_); }
    void Remove(size_t objects) { alive_ -= std::min(objects, alive_); }
    void Prepare(size_t most) { most_ = std::max(most_, most); }
    // Whether another can be made without waiting, and `margin` more behind it.
    bool HasSpare(size_t margin) const { return alive_ + margin < most_; }
    size_t alive() const { return alive_; }

   private:
    size_t most_;
    size_t alive_ = 0;
  };

  Count streams{32};
  Count events{2000};
};

}  // namespace gpuloom::executor
