// SPDX-License-Identifier: Apache-2.0
// The GPU of this process: the driver, the one primary context, and pools of streams and events
// that are reused rather than destroyed (destroying blocks, and costs a driver call each).
//
// Owned by Serve (process/service.h), outlives everything that uses it. Start is called once. Judge, lost, MakeCurrent
// and the linker are safe from any thread; the pools belong to the ring thread. CUDA failures are
// CUresults; after a sticky one the device is lost for good, as lost() reports. Streams and events must not be made where
// there is no spare one: the driver would wait for all that runs (driver_objects.h). PromiseEvents is for workers, which
// may not ask.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/cuda/driver.h"

namespace gpuloom::executor {

class Device;
class Linker;
class ObjectCount;
struct DriverObjects;

// Returns true for errors after which the context, and with it the process, is unusable.
bool IsSticky(CUresult result);

// Events with timing that a worker can make without waiting, whatever runs. Those that it does not make go to others when
// this ends. One thread at a time; the device outlives it.
class EventPromise {
 public:
  EventPromise(Device* device, size_t events) : device_(device), left_(events) {}
  EventPromise(const EventPromise&) = delete;
  EventPromise& operator=(const EventPromise&) = delete;
  ~EventPromise();

  // At most as many as were promised. It goes back with Device::GiveEvent.
  [[nodiscard]] CUresult Make(CUevent* event);

 private:
  Device* const device_;
  size_t left_;
};

class Device {
 public:
  explicit Device(const Driver& driver);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Retains the primary context of the device with this UUID ("GPU-…", as nvidia-smi prints it) and
  // makes it current on this thread. An error comes with a message; CUDA_ERROR_NO_DEVICE where the driver has no such
  // device.
  [[nodiscard]] CUresult Start(const std::string& uuid, std::string* error);

  // Call on every other thread that makes CUDA calls.
  void MakeCurrent() const;

  const Driver& cuda() const { return cuda_; }
  CUdevice device() const { return device_; }
  CUcontext context() const { return context_; }
  // In ptxas' notation: 90 for compute capability 9.0.
  uint32_t Capability() const;
  // Most threads resident on the device at a time; 0 if the driver does not report it.
  uint64_t ResidentThreads() const;
  int priority_least() const { return priority_least_; }
  int priority_greatest() const { return priority_greatest_; }

  // Returns `result` unchanged; remembers the first sticky one.
  CUresult Judge(CUresult result);
  // The same for calls that compile, link or load a tenant's code. The compiler returns UNKNOWN for
  // code that it cannot link: no tenant's code may take down its neighbours. If the context really
  // is lost, the next call of another kind reports it again.
  CUresult JudgeImage(CUresult result) {
    return result == CUDA_ERROR_UNKNOWN ? result : Judge(result);
  }
  Linker& linker() { return *linker_; }
  // Whether the driver loads a cubin that was taken out of a fatbin: NVIDIA's does, the software one takes only PTX.
  // Workers read it, and set it after their first attempt.
  enum class Cubins : uint8_t { kUnknown, kTaken, kRefused };
  Cubins cubins() const { return cubins_.load(std::memory_order_relaxed); }
  // The first answer counts.
  void set_cubins(Cubins cubins) {
    Cubins unknown = Cubins::kUnknown;
    cubins_.compare_exchange_strong(unknown, cubins, std::memory_order_relaxed);
  }
  // CUDA_SUCCESS while the context lives.
  CUresult lost() const { return lost_.load(std::memory_order_acquire); }

  // Non-blocking streams, by priority. Streams given back must be idle; null is ignored.
  [[nodiscard]] CUresult TakeStream(int priority, CUstream* stream);
  void GiveStream(int priority, CUstream stream);
  // The same in a green context, which is never destroyed. Its streams are not reused.
  [[nodiscard]] CUresult TakeGreenStream(CUgreenCtx green, int priority, CUstream* stream);
  // For streams that must not be reused. `green`: where it was taken, or null.
  void DropStream(CUstream stream, CUgreenCtx green);

  // Events. An event given back may still be pending: CUDA allows recording it again, and destroying it.
  [[nodiscard]] CUresult TakeEvent(bool timing, CUevent* event);
  void GiveEvent(bool timing, CUevent event);

  // Whether a stream of this priority, or an event, can be had without waiting for the device. The last streams are for
  // the executor's own. A program's event may be kept for ever; the last ones are for marks, which come back, and the very
  // last for the executor's own. Of what programs get, the last ones are for tenants that have few (tenant.h), so that none
  // keeps others from the device.
  enum class EventUse : uint8_t { kKept, kFew, kMark, kOwn };
  bool HasSpareStream(int priority, bool has_few) const;
  // Another will be prepared if there is none: ask again later.
  bool HasSpareGreenStream(CUgreenCtx green);
  bool HasSpareEvent(bool timing, EventUse use) const;
  // Kept events for a worker; null if they are not there. They will be prepared then: ask again later.
  [[nodiscard]] std::unique_ptr<EventPromise> PromiseEvents(size_t events);
  // What there is no spare of: `Prepare` has the driver make it, in a quiet moment, on a worker, and then call OnPrepared.
  // Returns why the driver did not make all of it: what it did make is there.
  struct Preparation {
    size_t streams = 0;
    size_t events = 0;
    CUgreenCtx green = nullptr;  // a green context that needs streams
    ObjectCount* green_streams = nullptr;
    bool empty() const { return streams == 0 && events == 0 && green == nullptr; }
  };
  Preparation Missing();
  CUresult Prepare(const Preparation& missing);
  void OnPrepared(const Preparation& made);
  // Why the driver made no more streams when it was last asked for some ahead; CUDA_SUCCESS: it did. Programs that need one then
  // get this error. Events are waited for: without its mark, nobody would see that work is done.
  CUresult StreamRefusal(CUgreenCtx green) const;
  // For how many streams the driver has memory, beyond a fresh context's and those of PrepareFirst.
  size_t grown_streams() const;
  // Before there are tenants: prepares for as many streams and events as a domain seldom has more of.
  void PrepareFirst();
  // For one that was made elsewhere.
  void CountGreenStream(CUgreenCtx green);

  // Most idle streams (of all priorities) and events (of each kind) kept for reuse. A stream takes
  // about 0.5 MiB of device memory, and even a program with many streams seldom has more than this.
  static constexpr size_t kMaxIdleStreams = 32;
  static constexpr size_t kMaxIdleEvents = 1024;
  // Objects given back beyond that, destroyed on a worker: each takes up to 40 µs there.
  struct Excess {
    struct Stream {
      CUstream stream;
      ObjectCount* count;
    };
    std::vector<Stream> streams;
    std::vector<CUevent> events;
    bool empty() const { return streams.empty() && events.empty(); }
  };
  // Returns part of the excess, for Destroy; empty if there is none.
  [[nodiscard]] Excess TakeExcess();
  // Worker.
  void Destroy(const Excess& excess);

  // Name of an error for the log, never null.
  const char* NameOf(CUresult result) const;
  // The function's name, valid as long as its library is loaded; nullptr if the driver does not report it.
  const char* NameOf(CUkernel kernel) const;

 private:
  friend class EventPromise;
  size_t EventsToKeep(bool timing) const;
  CUresult Find(const std::string& uuid, std::string* error);

  Driver cuda_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  int priority_least_ = 0;
  int priority_greatest_ = 0;
  const std::unique_ptr<Linker> linker_;
  std::atomic<Cubins> cubins_{Cubins::kUnknown};
  std::atomic<CUresult> lost_{CUDA_SUCCESS};
  const std::unique_ptr<DriverObjects> objects_;
  std::vector<CUgreenCtx> short_greens_;  // somebody waits for their streams
  size_t wanted_events_ = 1;              // the most that somebody waits for
  std::map<int, std::vector<CUstream>> idle_streams_;
  size_t idle_stream_count_ = 0;
  std::vector<CUevent> idle_events_[2];
  Excess excess_;
};

}  // namespace gpuloom::executor
