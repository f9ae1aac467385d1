// SPDX-License-Identifier: Apache-2.0
// Executable graphs that launch what tenants launch, because that costs a fraction of a plain launch:
// docs/design/batching.md says why, and what it costs. Chains are kernel nodes in a row and take on
// any chunk of launches; singles are one node, for one function with one shape in one stream. Both
// remember what their nodes hold, so that what comes again is one driver call, and only parameters that
// differ are set.
//
// All sessions share one Chains; it outlives them and their libraries. Chunks are launched by any
// thread, everything else belongs to the ring thread; new graphs are made on workers. Failures are never
// told: what cannot be launched here goes plainly, and CUDA's answer to that is the tenant's.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/launch/chunk.h"
#include "agent/executor/session/work_pool.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

struct Stream;

// Bounds of what there is at a time. A graph of up to 64 nodes costs 112 KiB of device memory.
inline constexpr uint32_t kMaxChains = 128;
inline constexpr uint32_t kMaxSingles = 96;
// Chains have a multiple of so many nodes: a node that is passed over costs the GPU 0.3 µs.
inline constexpr uint32_t kChainStep = 8;
// Shorter chunks are not worth looking for.
inline constexpr uint32_t kMinChainLaunches = 4;

// The driver's objects. They may be destroyed while they run.
struct Chain {
  explicit Chain(const Driver* driver) : cuda(driver) {}
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;
  ~Chain();

  uint32_t capacity() const { return static_cast<uint32_t>(handles.size()); }

  const Driver* const cuda;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<CUgraphNode> handles;
  uint32_t enabled = 0;  // so many nodes, the first ones
  // What the first nodes hold; of the others nothing is known.
  std::vector<ChunkNode> nodes;
  std::vector<uint8_t> params;
  // Whose functions its nodes may name, in the graph behind it as well. Identities; never dereferenced.
  std::vector<const void*> libraries;
  // One stream at a time: launches of one executable graph wait for one another. Identity; never dereferenced.
  const Stream* stream = nullptr;
  std::atomic<uint32_t> in_flight{0};
  // The thread that launches it has it for itself, what its nodes hold included.
  std::atomic<bool> held{false};
  uint64_t used = 0;     // at this launch of Chains' count
  uint64_t kept_to = 0;  // not given to other chunks before that
};
using ChainRef = std::shared_ptr<Chain>;

class Chains {
 public:
  Chains(Device* device, WorkPool* pool, Quiet* quiet, GraphRoom* room)
      : device_(device), pool_(pool), quiet_(quiet), room_(room) {}

  // Has the driver take device memory for all of them, while nothing runs: later it would wait for
  // such a moment. To be called once, before there are sessions.
  void Reserve();

  // Where a chunk goes.
  struct Target {
    const Stream* stream;  // a name
    CUstream cuda;
    bool idle;  // the GPU has nothing of this stream to do
  };
  // Launches the chunk; null: it has to go one by one. The answer is to be given to Done when the launch
  // is done. Any thread, one at a time for each stream.
  ChainRef Launch(const Chunk& chunk, const Target& target);
  static void Done(Chain& chain) { --chain.in_flight; }

  // Starts making the graphs that Launch and LaunchOne looked for and did not find.
  void MakeWanted();

  // Launches one of the chunk's; false: it has to go plainly.
  bool LaunchOne(const Chunk& chunk, const ChunkNode& node, const uint8_t* params, CUstream stream);

  // A graph refused this function.
  bool Refuses(CUfunction function) const;
  // How many; it only grows.
  uint32_t refused() const { return refused_count_.load(std::memory_order_relaxed); }

  // The function's attributes change: what nodes hold of it is not what it says any more.
  void Forget(CUfunction function);

  // Graphs that name the library, which is about to be unloaded: to be let go before that, on a
  // worker.
  std::vector<ChainRef> TakeOut(const void* library);

  // `action` runs when the graphs that workers let go at the moment have gone; now, when there are none.
  void WhenLetGo(std::function<void()> action);

  struct Counts {
    uint64_t replayed = 0;   // chunks launched as the chain was
    uint64_t updated = 0;    // with other parameters
    uint64_t rewritten = 0;  // with another sequence before
    uint64_t single = 0;     // launches
    uint64_t plain = 0;      // launches
  };
  Counts counts() const;
  size_t size() const;
  size_t singles() const { return singles_.size(); }

 private:
  // What is looked at to find a chain, close together.
  struct Slot {
    uint64_t content = 0;    // of the chunk that it holds; 0: unknown
    uint64_t signature = 0;  // the same
    ChainRef chain;
  };
  struct Found {
    Slot* exact = nullptr;
    Slot* alike = nullptr;  // other parameters
    Slot* spare = nullptr;  // other sequences, used longest ago
  };
  struct Wanted {
    uint32_t nodes;
    ChunkNode node;
    std::vector<uint8_t> params;
    std::shared_ptr<const void> library;  // keeps the function loaded until TakeOut can find it
    CUstream stream;                      // of a single
    ChainRef made;
  };

  static uint64_t SingleKey(const ChunkNode& node, CUstream stream) {
    return ChunkNode::Mix(node.Hash(), reinterpret_cast<uintptr_t>(stream));
  }
  // Held for less than a microsecond, among threads that must not sleep.
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
  // Chooses a chain, which the caller then holds, and whether it is as the chunk wants it.
  ChainRef Take(const Chunk& chunk, const Target& target, bool* exact);
  // The chain is as `chunk` wanted it: others may find it so.
  void Offer(const ChainRef& chain, const Chunk& chunk);
  Found Find(const Chunk& chunk, const Target& target) GPULOOM_REQUIRES(mutex_);
  Slot* Choose(const Chunk& chunk, const Target& target, const Found& found, bool again)
      GPULOOM_REQUIRES(mutex_);
  bool SawBefore(uint64_t content) GPULOOM_REQUIRES(mutex_);
  // What failed is not one function's fault where `refused` stays as it is.
  CUresult Set(Chain* chain, const Chunk& chunk, CUfunction* refused);
  CUresult SetNode(const Chain& chain, uint32_t index, const ChunkNode& node,
                   const uint8_t* params);
  void Refuse(CUfunction function);
  void AddRefused(CUfunction function) GPULOOM_REQUIRES(mutex_);
  void Want(const Chunk& chunk, const ChunkNode& node, const uint8_t* params, uint32_t nodes,
            CUstream stream) GPULOOM_REQUIRES(mutex_);
  ChainRef Make(const Wanted& wanted) const;
  void Adopt(std::vector<Wanted>* made);
  bool MayWant(uint32_t nodes) GPULOOM_REQUIRES(mutex_);
  // Makes room by dropping what has not been used for long.
  void DropSingles(std::vector<ChainRef>* dropped) GPULOOM_REQUIRES(mutex_);
  void DropChains(size_t count, std::vector<ChainRef>* dropped) GPULOOM_REQUIRES(mutex_);
  void TakeFromRoom(const std::vector<ChainRef>& chains);
  // On a worker.
  void LetGo(std::vector<ChainRef> chains);
  void HaveGone();
  // Until nobody holds a chain; nobody begins to while the caller has the lock.
  void WaitForHolders() const GPULOOM_REQUIRES(mutex_);

  Device* const device_;
  WorkPool* const pool_;
  Quiet* const quiet_;
  GraphRoom* const room_;
  // The ring thread's.
  std::unordered_map<uint64_t, ChainRef> singles_;  // by SingleKey
  bool making_ = false;
  uint32_t letting_go_ = 0;  // pieces of work that do
  std::vector<std::function<void()>> when_let_go_;

  mutable Mutex mutex_;
  std::vector<Slot> slots_ GPULOOM_GUARDED_BY(mutex_);
  std::unordered_set<CUfunction> refused_ GPULOOM_GUARDED_BY(mutex_);
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
