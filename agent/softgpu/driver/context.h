// SPDX-License-Identifier: Apache-2.0
// Contexts: the primary one of each device and those made by cuCtxCreate, and each thread's stack
// of them.
//
// A Context object is never freed, so a stale handle can always be told from a live one; `alive` says whether it may be
// used. Its streams, modules, events and allocations are destroyed with it. Contexts of one process share the address
// space and its faults, as on the real driver. Everything is safe from any thread; `mutex` guards the fields that stand
// below it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "agent/softgpu/driver/device.h"
#include "agent/softgpu/driver/heap.h"
#include "agent/softgpu/driver/stream.h"
#include "proto/cuda/cuda_all.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
struct ResourceDescription;
}

namespace gpuloom::softgpu {

struct Green;

struct Context {
  Context(Device& of, bool is_primary, std::unique_ptr<Green> as_green = nullptr);
  ~Context();

  Device& device;
  const bool primary;
  const uint64_t id;
  const std::unique_ptr<Green> green;  // null: an ordinary one
  std::atomic<bool> alive{false};

  // The context in which memory, modules and events are made: a green context has only streams.
  [[nodiscard]] Context& Owner() { return green == nullptr ? *this : *device.primary; }
  [[nodiscard]] CUcontext handle() { return reinterpret_cast<CUcontext>(this); }

  // As NVIDIA's driver does (measured on an H200): for more local memory a thread than before, of a launch or a raised
  // CU_LIMIT_STACK_SIZE, the caller waits for all that runs.
  void NeedThreadBytes(size_t bytes);

  // The same for one more event, in blocks of 2,044, with `alive` of them there. Meanwhile nobody else can enqueue.
  void NeedEvents(size_t alive);

  // As NVIDIA's driver does (measured on an H200): once code is loaded, nothing that comes later begins before what runs
  // now has ended, in whatever stream. The caller does not wait.
  void NoteLoadedCode();

  // Puts work into a stream of this context, in order with every other thread's, behind the barriers that CUDA sets:
  // the legacy default stream waits for all blocking streams, and they wait for it.
  Point Enqueue(Stream& stream, Work work);
  // The same barriers without work: what cuStreamSynchronize and cuStreamQuery look at.
  std::vector<Point> PointsOf(Stream& stream);
  // Everything enqueued so far in all streams.
  std::vector<Point> AllPoints();

  // All streams but the legacy one.
  std::vector<std::shared_ptr<Stream>> Streams();
  // All work that is enqueued later goes behind this point.
  void WaitBefore(Point point);
  // A stream of the driver's own, for what is recorded of the whole context.
  std::shared_ptr<Stream> RecordingStream();

  // The legacy default stream; for a green context its default stream, which is like any other of its streams.
  std::shared_ptr<Stream> LegacyStream();
  // The calling thread's own default stream.
  std::shared_ptr<Stream> ThreadStream();
  // As NVIDIA's driver does (measured on an H200): streams are made in blocks, which stay when streams are closed, and for
  // another block the caller waits for all that runs. Meanwhile nobody else can enqueue.
  std::shared_ptr<Stream> MakeStream(unsigned flags, int priority);
  // Its handle is invalid from here on; the work already in it still runs.
  void CloseStream(const std::shared_ptr<Stream>& stream);
  void CloseThreadStream(uint64_t thread_key);

  Mutex mutex;
  unsigned flags GPULOOM_GUARDED_BY(mutex) = 0;
  CUfunc_cache cache_config GPULOOM_GUARDED_BY(mutex) = CU_FUNC_CACHE_PREFER_NONE;
  CUsharedconfig shared_config GPULOOM_GUARDED_BY(mutex) = CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE;
  std::array<size_t, CU_LIMIT_MAX> limits GPULOOM_GUARDED_BY(mutex){};
  // Local memory that each thread of the device can have: the most that a limit or a launch has asked for.
  size_t thread_bytes GPULOOM_GUARDED_BY(mutex) = 0;
  size_t prepared_events GPULOOM_GUARDED_BY(mutex) = 0;
  Heap heap{*this};

  // Of a primary context: held while it begins and ends, so that whoever has retained it finds it
  // alive.
  Mutex life_mutex;
  unsigned retain_count GPULOOM_GUARDED_BY(life_mutex) = 0;

  // Ends a context: waits for its work, destroys what belongs to it. False when it is not alive:
  // of several threads that end it one does.
  [[nodiscard]] bool TearDown();
  // Fresh state for a context that begins its life (again).
  void Activate(unsigned with_flags);

 private:
  void CloseAll();
  std::vector<Point> BarriersLocked(const Stream& stream) GPULOOM_REQUIRES(streams_mutex_);
  std::vector<Point> AllPointsLocked() GPULOOM_REQUIRES(streams_mutex_);
  void DropFinishedLocked() GPULOOM_REQUIRES(streams_mutex_);

  static constexpr size_t kStreamsOfABlock = 43;

  Mutex streams_mutex_;  // held while enqueuing: gives all threads' work one order
  std::shared_ptr<Stream> legacy_ GPULOOM_GUARDED_BY(streams_mutex_);
  std::map<uint64_t, std::shared_ptr<Stream>> by_thread_ GPULOOM_GUARDED_BY(streams_mutex_);
  std::vector<std::shared_ptr<Stream>> streams_ GPULOOM_GUARDED_BY(
      streams_mutex_);  // all but the legacy one; closed ones until they are drained
  size_t prepared_streams_ GPULOOM_GUARDED_BY(streams_mutex_) = kStreamsOfABlock;
  std::shared_ptr<Stream> recording_ GPULOOM_GUARDED_BY(streams_mutex_);  // in streams_, too
  // The points of WaitBefore, until they are done.
  std::vector<Point> gates_ GPULOOM_GUARDED_BY(streams_mutex_);
  // What ran when code was loaded, until it has ended: what is for the device waits for it.
  std::vector<Point> before_code_ GPULOOM_GUARDED_BY(streams_mutex_);
};

Context* MakePrimaryContext(Device& device);
// Makes an ordinary context, alive, current on no thread.
Context* MakeContext(Device& device, unsigned flags);

// Makes a context for a part of the device, alive. The caller has retained the primary context.
Context* MakeGreenContext(Device& device, const ResourceDescription* description);

// The living context that a handle names, or nullptr.
Context* FindContext(CUcontext handle);
std::vector<Context*> AllContexts();

// The calling thread's stack. Its depth is limited by kMaxContextDepth, because thread-local storage with
// a destructor would be gone when the CUDA runtime calls at exit.
inline constexpr int kMaxContextDepth = 64;
Context* CurrentContext();
[[nodiscard]] CUresult PushContext(Context* context);
[[nodiscard]] CUresult PopContext(Context*& context);
// Replaces the top; nullptr removes it.
[[nodiscard]] CUresult SetContext(Context* context);

// The checks that most entry points begin with: initialised, no fault, a living current context. If that is a green
// one, its owner: only functions about streams and about contexts themselves use the current one.
[[nodiscard]] CUresult RequireContext(Context*& context);
[[nodiscard]] CUresult RequireCurrentContext(Context*& context);

// Waits for all work of the device: freeing memory does this, as in CUDA.
void SynchronizeDevice(const Device& device);
void WaitFor(const std::vector<Point>& points);

}  // namespace gpuloom::softgpu
