// SPDX-License-Identifier: Apache-2.0
// Executable graphs that carry out tenants' launches, because launching them costs a fraction of plain launches;
// docs/design/batching.md explains why, and what it costs. Chains are kernel nodes in a row and can take any chunk of
// launches of their context; singles are one node, for one kernel with one shape in one stream. Both remember the
// contents of their nodes, so that a repeated chunk is one driver call and only parameters that differ are set.
//
// All sessions share one Chains, owned by the loop; it outlives them and their libraries. Any thread may launch chunks;
// everything else belongs to the ring thread; new graphs are made on workers. Failures are never reported: what cannot
// be launched here is launched plainly, and the tenant gets CUDA's result of that.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "agent/executor/launch/chunk.h"
#include "proto/cuda/driver.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class Device;
class Quiet;
class WorkPool;
struct GraphRoom;
struct Stream;

// Limits on how many exist at a time. A graph of up to 64 nodes takes 112 KiB of device memory.
inline constexpr uint32_t kMaxChains = 128;
inline constexpr uint32_t kMaxSingles = 96;
// A chain's length is a multiple of this: a disabled node costs the GPU 0.3 µs.
inline constexpr uint32_t kChainStep = 8;
// Looking for a chain does not pay off for shorter chunks.
inline constexpr uint32_t kMinChainLaunches = 4;

// The driver's objects. They may be destroyed while they run.
struct Chain {
  explicit Chain(const Driver* driver) : cuda(driver) {}
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;
  ~Chain();

  uint32_t capacity() const { return static_cast<uint32_t>(handles.size()); }

  const Driver* const cuda;
  CUcontext context = nullptr;  // of its nodes; the same for its whole life, as CUDA requires
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<CUgraphNode> handles;
  uint32_t enabled = 0;  // number of enabled nodes, the first ones
  // Contents of the first nodes; the others' are unknown.
  std::vector<ChunkNode> nodes;
  std::vector<uint8_t> params;
  // Libraries whose kernels its nodes may name, in `exec` or in `graph`. Identities; never dereferenced.
  std::vector<const void*> libraries;
  // One stream at a time: CUDA serialises launches of one executable graph. Identity; never dereferenced.
  const Stream* stream = nullptr;
  std::atomic<uint32_t> in_flight{0};
  // The thread that launches it owns it exclusively, including the contents of its nodes.
  std::atomic<bool> held{false};
  uint64_t used = 0;     // value of Chains' launch count when last used
  uint64_t kept_to = 0;  // not given to other chunks before this launch
};
using ChainRef = std::shared_ptr<Chain>;

class Chains {
 public:
  Chains(Device* device, WorkPool* pool, Quiet* quiet, GraphRoom* room)
      : device_(device), pool_(pool), quiet_(quiet), room_(room) {}

  // Makes the driver allocate device memory for all of them while nothing runs: later it would have
  // to wait for such a moment. Call once, before there are sessions.
  void Reserve();

  // Where a chunk is launched.
  struct Target {
    const Stream* stream;  // identity
    CUstream cuda;
    CUcontext context;  // the stream's
    bool idle;  // the GPU has no work of this stream, and is to begin with this chunk at once
  };
  // Launches the chunk; returns null if it must be launched one by one. Pass the result to Done when the launch is done.
  // `is_new` is set if no chain holds such a sequence and it has not come up lately. Any thread, one at a time for each
  // stream.
  ChainRef Launch(const Chunk& chunk, const Target& target, bool* is_new);
  static void Done(Chain& chain) { --chain.in_flight; }

  // Starts making the graphs that Launch and LaunchOne looked for and did not find.
  void MakeWanted();

  // Launches one of the chunk's launches; returns false if it must be launched plainly.
  bool LaunchOne(const Chunk& chunk, const ChunkNode& node, const uint8_t* params,
                 const Target& target);

  // Returns true if a graph has refused this kernel.
  bool Refuses(CUkernel kernel) const;
  // How many kernels graphs have refused; only grows.
  uint32_t refused() const { return refused_count_.load(std::memory_order_relaxed); }

  // Call when the kernel's attributes change: nodes that name it are out of date.
  void Forget(CUkernel kernel);

  // Takes out graphs that name the library, which is about to be unloaded; release them before
  // that, on a worker.
  std::vector<ChainRef> TakeOut(const void* library);

  // Runs `action` when the graphs now being released by workers are gone; immediately if there are none.
  void AfterRelease(std::function<void()> action);

  struct Counts {
    uint64_t replayed = 0;   // chunks launched with the chain unchanged
    uint64_t updated = 0;    // chunks launched with other parameters
    uint64_t rewritten = 0;  // chunks launched with a chain that held another sequence
    uint64_t single = 0;     // launches by singles
    uint64_t plain = 0;      // plain launches

    uint64_t all() const { return replayed + updated + rewritten + single + plain; }
    // For the log.
    std::string Text() const;
  };
  Counts counts() const;
  size_t size() const;
  size_t singles() const { return singles_.size(); }

 private:
  // The data for finding a chain, kept compact.
  struct Slot {
    uint64_t content = 0;    // of the chunk it holds; 0: unknown
    uint64_t signature = 0;  // the same
    ChainRef chain;
  };
  struct Found {
    Slot* exact = nullptr;
    Slot* alike = nullptr;  // differs in parameters only
    Slot* spare = nullptr;  // holds another sequence, least recently used
  };
  struct Wanted {
    uint32_t nodes;
    ChunkNode node;
    std::vector<uint8_t> params;
    std::shared_ptr<const void> library;  // keeps the kernel loaded until TakeOut can find it
    CUcontext context;
    CUstream stream;  // of a single
    ChainRef made;
  };

  static uint64_t SingleKey(const ChunkNode& node, CUstream stream) {
    return ChunkNode::Mix(node.Hash(), reinterpret_cast<uintptr_t>(stream));
  }
  // Held for less than a microsecond, by threads that must not sleep.
  class GPULOOM_SCOPED_CAPABILITY Holding {
   public:
    explicit Holding(Mutex& mutex) GPULOOM_ACQUIRE(mutex);
    ~Holding() GPULOOM_RELEASE() {
      if (held_) mutex_.Unlock();
    }
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;
    void Unlock() GPULOOM_RELEASE() {
      held_ = false;
      mutex_.Unlock();
    }

   private:
    Mutex& mutex_;
    bool held_ = true;
  };
  // Picks a chain, which the caller then holds; `exact`: it holds the chunk already. `is_new` as in Launch.
  ChainRef Take(const Chunk& chunk, const Target& target, bool* exact, bool* is_new);
  // The chain now holds `chunk`: other chunks may find it.
  void Offer(const ChainRef& chain, const Chunk& chunk);
  Found Find(const Chunk& chunk, const Target& target) GPULOOM_REQUIRES(mutex_);
  Slot* Choose(const Chunk& chunk, const Target& target, const Found& found, bool again)
      GPULOOM_REQUIRES(mutex_);
  bool SeenBefore(uint64_t content) GPULOOM_REQUIRES(mutex_);
  // `refused` stays unchanged if the failure is not due to one kernel.
  CUresult Set(Chain* chain, const Chunk& chunk, CUkernel* refused);
  CUresult SetNode(const Chain& chain, uint32_t index, const ChunkNode& node,
                   const uint8_t* params);
  void Refuse(CUkernel kernel);
  void AddRefused(CUkernel kernel) GPULOOM_REQUIRES(mutex_);
  void Want(const Chunk& chunk, const ChunkNode& node, const uint8_t* params, uint32_t nodes,
            CUcontext context, CUstream stream) GPULOOM_REQUIRES(mutex_);
  ChainRef Make(const Wanted& wanted) const;
  void Adopt(std::vector<Wanted>* made);
  bool MayWant(uint32_t nodes) GPULOOM_REQUIRES(mutex_);
  // Makes room by dropping what has been unused for long.
  void DropSingles(std::vector<ChainRef>* dropped) GPULOOM_REQUIRES(mutex_);
  void DropChains(size_t count, std::vector<ChainRef>* dropped) GPULOOM_REQUIRES(mutex_);
  void TakeFromRoom(const std::vector<ChainRef>& chains);
  // On a worker.
  void ReleaseChains(std::vector<ChainRef> chains);
  void OnReleaseDone();
  // Waits until no chain is held; none can be taken while the caller has the lock.
  void WaitForHolders() const GPULOOM_REQUIRES(mutex_);

  Device* const device_;
  WorkPool* const pool_;
  Quiet* const quiet_;
  GraphRoom* const room_;
  // Ring thread only.
  std::unordered_map<uint64_t, ChainRef> singles_;  // by SingleKey
  bool making_ = false;
  uint32_t releasing_ = 0;  // jobs that release graphs
  std::vector<std::function<void()>> on_released_;

  mutable Mutex mutex_;
  std::vector<Slot> slots_ GPULOOM_GUARDED_BY(mutex_);
  std::unordered_set<CUkernel> refused_ GPULOOM_GUARDED_BY(mutex_);
  std::atomic<uint32_t> refused_count_{0};  // read without the lock
  std::array<uint64_t, 16384> seen_
      GPULOOM_GUARDED_BY(mutex_){};  // contents and keys, by their low bits
  uint64_t launches_ GPULOOM_GUARDED_BY(mutex_) = 0;
  uint64_t full_until_ GPULOOM_GUARDED_BY(mutex_) =
      0;  // nothing is dropped for others before this launch
  std::deque<Wanted> wanted_ GPULOOM_GUARDED_BY(mutex_);
  Counts counts_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::executor
