// SPDX-License-Identifier: Apache-2.0
// One stream: a queue of work and the thread that does it in order. Streams run truly side by side.
//
// Work may wait for points of other streams; a point means "everything up to the n-th piece of work
// of that stream". A point is always older than the work that waits for it, so streams never wait
// in a circle. The thread starts with the first work and ends when the stream is closed and its
// queue is empty; it shares ownership of the stream. After a fault the remaining work is skipped,
// so that nobody waits forever. Everything is safe from any thread. Use Context::Enqueue, which
// adds the default stream's barriers, instead of Push.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "agent/softgpu/driver/hardware_queues.h"
#include "proto/libcuda/default_stream.h"
#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

struct Context;
class Stream;

// "Everything up to the n-th piece of work of this stream". An empty point is done.
struct Point {
  std::shared_ptr<Stream> stream;
  uint64_t number = 0;

  [[nodiscard]] bool Done() const;
  void Wait() const;
};

struct Work {
  std::function<void()> run;
  std::vector<Point> after;
  bool even_after_fault = false;  // bookkeeping such as event times, which must happen in any case
  // A kernel, a graph, a copy, a written value: it goes through a hardware queue.
  bool on_device = false;
  // Of a graph several of whose nodes can begin at once: where the others waited last, which all of its launches share. Null
  // for other work.
  std::shared_ptr<std::vector<HardwareQueues::Place>> heads;
  std::vector<HardwareQueues::Place> places;  // the stream's, there
  bool has_time = false;                      // an event with timing
  HardwareQueues::Place time;                 // the stream's, where such events wait
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  enum class Kind { kLegacy, kPerThread, kCreated };

  Stream(Context& context, Kind kind, unsigned flags, int priority);

  Point Push(Work work);
  // The point after everything pushed so far.
  Point Tail();
  // Ends the thread once the queue is empty. Nothing may be pushed afterwards.
  void Close();
  // True when the stream is closed and its queue is empty.
  bool Finished();

  [[nodiscard]] bool IsDone(uint64_t number) const {
    return completed_.load(std::memory_order_acquire) >= number;
  }
  // What of it is at the device now; an empty point if nothing is.
  Point Running();
  void WaitFor(uint64_t number);

  // Attributes that are stored and have no effect; zero until set.
  CUstreamAttrValue GetAttribute(CUstreamAttrID attribute);
  void SetAttribute(CUstreamAttrID attribute, const CUstreamAttrValue& value);

  // Whether the stream takes part in the legacy default stream's barriers.
  [[nodiscard]] bool blocking() const { return (flags & CU_STREAM_NON_BLOCKING) == 0; }

  Context& context;
  const Kind kind;
  const unsigned flags;
  const int priority;
  const uint64_t id;

 private:
  // False when the process can have no more threads.
  [[nodiscard]] bool StartThreadLocked() GPULOOM_REQUIRES(mutex_);
  void RunQueue();

  Mutex mutex_;
  CondVar work_arrived_;
  CondVar work_done_;
  std::deque<Work> queue_ GPULOOM_GUARDED_BY(mutex_);
  std::map<CUstreamAttrID, CUstreamAttrValue> attributes_ GPULOOM_GUARDED_BY(mutex_);
  uint64_t pushed_ GPULOOM_GUARDED_BY(mutex_) = 0;
  HardwareQueues::Place last_place_ GPULOOM_GUARDED_BY(mutex_);
  std::atomic<uint64_t> completed_{0};
  bool at_device_ GPULOOM_GUARDED_BY(mutex_) = false;
  bool thread_runs_ GPULOOM_GUARDED_BY(mutex_) = false;
  bool closed_ GPULOOM_GUARDED_BY(mutex_) = false;
};

// The stream that a handle means in the current context, including NULL and the two special
// handles. Empty when the handle names no living stream.
[[nodiscard]] std::shared_ptr<Stream> FindStream(Context& current, CUstream handle,
                                                 DefaultStream null_means);
// The error for a handle without a stream: the streams of a green context end with it.
[[nodiscard]] CUresult NoStream(CUstream handle);

// The priorities offered; as in CUDA the smaller number is the more urgent one. They are accepted
// and reported, but the operating system schedules the threads.
inline constexpr int kLeastPriority = 0;
inline constexpr int kGreatestPriority = -5;

}  // namespace gpuloom::softgpu
