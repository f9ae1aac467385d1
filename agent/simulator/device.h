// SPDX-License-Identifier: Apache-2.0
// A coarse model of a device: kernels with a length and a width run side by side up to the device's capacity, and once
// begun, to their end.
//
// - A kernel begins when all of its width is free. Waiting ones begin in the order of their priority, then of their
//   arrival. None overtakes one that does not fit, because the blocks of real kernels are placed first come, first
//   served.
// - Kernels of one stream run one after the other.
// - Kernels of different contexts (trust domains) never run side by side. A waiting kernel of another context gets the
//   device when it is first in order and what runs has ended. Real devices instead alternate slices of about 2 ms; with
//   turns the two differ only in what overlaps at the end of a turn.
//
// Not modelled: kernels that slow each other down (memory, caches), kernels that begin with a part of their blocks, and
// copies. Times are nanoseconds of the simulated clock, which is an argument and never goes back. Owned by Gpu; one
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

namespace gpuloom::simulator {

struct Kernel {
  uint32_t tenant = 0;
  uint32_t stream = 0;  // of the device: no two tenants share one
  uint32_t context = 0;
  uint32_t priority = 0;  // 0 goes first
  uint32_t width = 1;     // 1 … capacity
  uint64_t asked_ns = 0;  // its length before it varied: what tells launches of a tenant apart
  uint64_t length_ns = 0;
  uint64_t predicted_ns = 0;
  uint64_t queued_ns = 0;  // when its tenant launched it
  uint64_t request = 0;
  bool last_of_request = false;
};

struct Execution {
  Kernel kernel;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
};

class Device {
 public:
  static constexpr uint32_t kPriorities = 3;

  explicit Device(uint32_t capacity) : capacity_(capacity) {}

  // `begun` is called for each kernel that begins, in the order of time.
  using Begun = std::function<void(const Execution&)>;
  void OnBegun(Begun begun) { begun_ = std::move(begun); }

  void Submit(const Kernel& kernel, uint64_t now_ns);
  // When the next running kernel ends; UINT64_MAX: nothing runs.
  uint64_t next_end_ns() const;
  // Removes the earliest kernel that has ended by `now_ns`. Kernels that it made room for begin at the moment of its
  // end.
  std::optional<Execution> TakeEnded(uint64_t now_ns);

  bool idle() const { return running_.empty(); }
  uint64_t busy_ns(uint64_t now_ns) const {
    return busy_ns_ + (running_.empty() ? 0 : now_ns - busy_since_ns_);
  }

 private:
  struct LaterEnd {
    bool operator()(const Execution& a, const Execution& b) const {
      return a.end_ns != b.end_ns ? a.end_ns > b.end_ns : a.begin_ns > b.begin_ns;
    }
  };
  struct Waiting {
    Kernel kernel;
    uint64_t order;
  };
  struct LaterOrder {
    bool operator()(const Waiting& a, const Waiting& b) const { return a.order > b.order; }
  };
  struct Stream {
    bool busy = false;  // its first kernel waits for room or runs
    std::deque<Waiting> behind;
  };

  void BeginWhatFits(uint64_t now_ns);

  const uint32_t capacity_;
  Begun begun_;
  uint32_t used_ = 0;
  uint32_t context_ = 0;  // the context of what runs
  uint64_t orders_ = 0;
  uint64_t busy_ns_ = 0;
  uint64_t busy_since_ns_ = 0;
  std::priority_queue<Execution, std::vector<Execution>, LaterEnd> running_;
  // The first of each stream, by priority.
  std::array<std::priority_queue<Waiting, std::vector<Waiting>, LaterOrder>, kPriorities> waiting_;
  std::vector<Stream> streams_;
};

}  // namespace gpuloom::simulator
