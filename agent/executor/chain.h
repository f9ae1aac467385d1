// Executable graphs that launch chunks: chains of kernel nodes, each behind the one before, which
// take on any sequence of launches. A chain remembers what its nodes hold, so that a sequence that
// comes again is one driver call, and one with other parameters needs only those that differ.
// docs/design/batching.md says why, and what it costs.
//
// All sessions share one Chains; it outlives them and their libraries. Ring thread only; new chains
// are made on workers. Failures are never told: what a chain cannot launch goes plainly, and CUDA's
// answer to that is the tenant's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "agent/executor/chunk.h"
#include "agent/executor/device.h"
#include "agent/executor/graph.h"
#include "agent/executor/quiet.h"
#include "agent/executor/work_pool.h"

namespace gpuloom::executor {

struct Stream;

// In all; a node costs 2.3 KiB of device memory.
inline constexpr uint32_t kMaxChains = 64;
// Made at a time, when none is left.
inline constexpr uint32_t kChainsAtATime = 8;
// Shorter chunks go plainly.
inline constexpr uint32_t kMinChainLaunches = 8;

struct Chain {
  explicit Chain(const Driver* driver) : cuda(driver) {}
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;
  ~Chain();

  const Driver* const cuda;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  std::vector<CUgraphNode> handles;  // kMaxChunkLaunches of them
  uint32_t enabled = 0;              // so many nodes, the first ones
  // What the first nodes hold; of the others nothing is known.
  uint64_t signature = 0;
  uint64_t content = 0;
  std::vector<ChunkNode> nodes;
  std::vector<uint8_t> params;
  // That its nodes may name, the graph behind it included. Compared only.
  std::vector<const void*> libraries;
  // One stream at a time: launches of one executable graph wait for one another.
  const Stream* stream = nullptr;
  uint32_t in_flight = 0;
  uint64_t used = 0;     // at this launch of Chains' count
  uint64_t kept_to = 0;  // not given to other chunks before that
};
using ChainRef = std::shared_ptr<Chain>;

class Chains {
 public:
  Chains(Device* device, WorkPool* pool, Quiet* quiet, GraphRoom* room)
      : device_(device), pool_(pool), quiet_(quiet), room_(room) {}

  // Launches the chunk in the stream; null: it has to go plainly. The answer is to be given to
  // Done when the launch is done.
  ChainRef Launch(const Chunk& chunk, const Stream& stream);
  static void Done(Chain& chain) { --chain.in_flight; }

  // A chain refused this function.
  bool Refuses(CUfunction function) const { return refused_.contains(function); }
  bool any_refused() const { return !refused_.empty(); }

  // The function's attributes change: what nodes hold of it is not what it says any more.
  void Forget(CUfunction function);

  // Chains that name the library, which is about to be unloaded: to be let go before that, on a
  // worker.
  std::vector<ChainRef> TakeOut(const void* library);

  struct Counts {
    uint64_t replayed = 0;   // chunks: launched as the chain was
    uint64_t updated = 0;    // parameters set
    uint64_t rewritten = 0;  // another sequence before
    uint64_t plain = 0;      // not launched here
  };
  const Counts& counts() const { return counts_; }
  size_t size() const { return chains_.size(); }

 private:
  struct Found {
    Chain* exact = nullptr;
    Chain* alike = nullptr;  // other parameters
    Chain* spare = nullptr;  // other sequences, used longest ago
  };
  Found Find(const Chunk& chunk, const Stream& stream) const;
  bool SawBefore(uint64_t content);
  CUresult Set(Chain* chain, const Chunk& chunk);
  CUresult SetNode(const Chain& chain, uint32_t index, const ChunkNode& node,
                   const uint8_t* params) const;
  void MakeMore(const Chunk& chunk);
  ChainRef Make(const ChunkNode& node, std::vector<uint8_t>* params) const;

  Device* const device_;
  WorkPool* const pool_;
  Quiet* const quiet_;
  GraphRoom* const room_;
  std::vector<ChainRef> chains_;
  std::unordered_set<CUfunction> refused_;
  std::array<uint64_t, 4096> seen_{};
  uint64_t launches_ = 0;
  bool making_ = false;
  bool gave_up_ = false;  // none could be made
  Counts counts_;
};

}  // namespace gpuloom::executor
