// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/stream.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/green_context.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

uint64_t NextStreamId() {
  // 0, 1 and 2 stand for the special handles.
  static std::atomic<uint64_t> next{3};
  return next.fetch_add(1);
}

}  // namespace

bool Point::Done() const { return stream == nullptr || stream->IsDone(number); }

void Point::Wait() const {
  if (stream != nullptr) stream->WaitFor(number);
}

Stream::Stream(Context& of, Kind what, unsigned with_flags, int with_priority)
    : context(of), kind(what), flags(with_flags), priority(with_priority), id(NextStreamId()) {}

// Starts a thread with the first work, and again if a closed stream is given more: a thread that
// found the stream before another destroyed it must not hang.
Point Stream::Push(Work work) {
  std::deque<Work> dropped;  // goes after the lock
  const MutexLock lock(mutex_);
  ++pushed_;
  if (work.on_device) {
    const bool waits = completed_.load() + 1 != pushed_ ||
                       !std::all_of(work.after.begin(), work.after.end(),
                                    [](const Point& point) { return point.Done(); });
    HardwareQueues& queues = context.device.queues;
    work.places.push_back(last_place_ = queues.Enter(last_place_, waits));
    if (waits && work.heads != nullptr) {
      for (HardwareQueues::Place& head : *work.heads) {
        work.places.push_back(head = queues.Enter(head, waits));
      }
    }
  }
  if (work.has_time) work.time = context.device.times.EnterAt(id, completed_.load() + 1 != pushed_);
  queue_.push_back(std::move(work));
  if (!thread_runs_ && !StartThreadLocked()) {
    RecordFault(CUDA_ERROR_OPERATING_SYSTEM,
                "no thread for a stream; are the process's threads limited (ulimit -u, pids.max)?");
    // Passed over, as all work after a fault; nobody waits for it.
    dropped.swap(queue_);
    completed_.store(pushed_);
    for (const Work& one : dropped) {
      for (const HardwareQueues::Place& place : one.places) context.device.queues.Leave(place);
      if (one.has_time) context.device.times.Leave(one.time);
    }
    work_done_.NotifyAll();
  }
  work_arrived_.NotifyOne();
  return {shared_from_this(), pushed_};
}

Point Stream::Tail() {
  const MutexLock lock(mutex_);
  return {shared_from_this(), pushed_};
}

Point Stream::Running() {
  const MutexLock lock(mutex_);
  return at_device_ ? Point{shared_from_this(), completed_.load() + 1} : Point();
}

void Stream::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  work_arrived_.NotifyOne();
}

bool Stream::Finished() {
  const MutexLock lock(mutex_);
  return closed_ && completed_.load() == pushed_;
}

// The first look needs no lock. The second is under it, because completed_ changes under it before
// the notification.
void Stream::WaitFor(uint64_t number) {
  if (IsDone(number)) return;
  MutexLock lock(mutex_);
  work_done_.Wait(mutex_, [&]() GPULOOM_REQUIRES(mutex_) { return completed_.load() >= number; });
}

CUstreamAttrValue Stream::GetAttribute(CUstreamAttrID attribute) {
  const MutexLock lock(mutex_);
  return attributes_[attribute];
}

void Stream::SetAttribute(CUstreamAttrID attribute, const CUstreamAttrValue& value) {
  const MutexLock lock(mutex_);
  attributes_[attribute] = value;
}

bool Stream::StartThreadLocked() {
  // The application's signal handlers belong on the application's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([self = shared_from_this()] {
      pthread_setname_np(pthread_self(), "softgpu-stream");
      self->RunQueue();
    }).detach();  // the process may exit while a kernel runs; nobody is left then to join
    thread_runs_ = true;
  } catch (const std::system_error&) {
    // No more threads for this process.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread_runs_;
}

// Points are waited for without the lock, in any order: all must be done before the work may run.
void Stream::RunQueue() {
  MutexLock lock(mutex_);
  while (true) {
    work_arrived_.Wait(mutex_,
                       [&]() GPULOOM_REQUIRES(mutex_) { return closed_ || !queue_.empty(); });
    if (queue_.empty()) break;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.Unlock();
    for (const Point& point : work.after) point.Wait();
    for (const HardwareQueues::Place& place : work.places) context.device.queues.Begin(place);
    if (work.has_time) context.device.times.Begin(work.time);
    if (work.on_device) {
      lock.Lock();
      at_device_ = true;
      lock.Unlock();
    }
    // After a fault work is skipped but still counts, so that nobody waits forever.
    if (work.run != nullptr && (work.even_after_fault || Fault() == CUDA_SUCCESS)) work.run();
    work = Work();  // what it held is released before it counts as done
    lock.Lock();
    at_device_ = false;
    completed_.fetch_add(1);
    work_done_.NotifyAll();
  }
  thread_runs_ = false;
}

// `current` is what the caller's functions belong to (a green context's owner); the default streams
// are those of the context that is current on this thread.
std::shared_ptr<Stream> FindStream(Context& current, CUstream handle, DefaultStream null_means) {
  if (handle == nullptr) {
    handle = null_means == DefaultStream::kPerThread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  }
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    Context* green = CurrentContext();
    if (green == nullptr || green->green == nullptr) {
      return handle == CU_STREAM_LEGACY ? current.LegacyStream() : current.ThreadStream();
    }
    // CUDA has no stream of a thread's own in a green context.
    return handle == CU_STREAM_LEGACY ? green->LegacyStream() : nullptr;
  }
  auto stream = Registry<Stream>::Instance().Find(handle);
  // Its context may have been destroyed while the stream's handle was still known.
  return stream == nullptr || !stream->context.alive ? nullptr : stream;
}

CUresult NoStream(CUstream handle) {
  return Registry<Stream>::Instance().Find(handle) != nullptr ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                                                              : CUDA_ERROR_INVALID_HANDLE;
}

}  // namespace gpuloom::softgpu
