// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/launch/chain.h"

#include <algorithm>
#include <cstring>

#include "agent/executor/device/device.h"
#include "agent/executor/launch/kernel_node.h"
#include "agent/executor/stream/stream_set.h"
#include "proto/sync/cpu_pause.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

// After this many launches, a chain that was wanted only once may be taken for another chunk.
constexpr uint64_t kShortKeep = 4;
// How many chains stay free for sequences that do not repeat.
constexpr size_t kScratchChains = 4;

// Chains come in few lengths, so that a chunk finds one that fits; the nodes beyond it are
// disabled.
uint32_t CapacityFor(uint32_t launches) {
  return (launches + kChainStep - 1) / kChainStep * kChainStep;
}

// Once a library is listed it stays: the nodes behind the present chunk, and the graph that the
// executable one was made from, may still name it. Consecutive launches are mostly of one library,
// so the last entry is tried first.
void AddLibrary(Chain* chain, const void* library) {
  std::vector<const void*>& known = chain->libraries;
  if (!known.empty() && known.back() == library) return;
  if (std::find(known.begin(), known.end(), library) == known.end()) known.push_back(library);
}

// Where kernels have no parameters the pointers may be null, which memcmp does not take.
bool SameBytes(const uint8_t* left, const uint8_t* right, size_t bytes) {
  return bytes == 0 || std::memcmp(left, right, bytes) == 0;
}

}  // namespace

// Usually on a worker (Chains::ReleaseChains), because destroying takes the driver's locks.
Chain::~Chain() {
  if (exec != nullptr) cuda->cuGraphExecDestroy(exec);
  if (graph != nullptr) cuda->cuGraphDestroy(graph);
}

// Spins, because sleeping and being woken would cost more than the lock is ever held.
Chains::Holding::Holding(Mutex& mutex) : mutex_(mutex) {
  while (!mutex_.TryLock()) CpuPause();
}

// ---- chunks

// One pass over the compact slots for chains with the chunk's functions and shapes: the first with
// the same bytes is the answer, else the least recently used of them is the one whose parameters
// are set. A second pass finds the least recently used chain of the right length that may be
// rewritten. Hashes only select; what is taken has been compared.
Chains::Found Chains::Find(const Chunk& chunk, const Target& target) {
  // Nodes cannot change their context, and a chain that runs in another stream would make this one
  // wait.
  const auto free = [&](const Chain& chain) {
    return chain.context == target.context &&
           (chain.in_flight == 0 || chain.stream == target.stream);
  };
  Found found;
  for (Slot& slot : slots_) {
    if (slot.signature != chunk.signature) continue;
    const Chain& chain = *slot.chain;
    if (!free(chain) || chain.nodes != chunk.nodes) continue;
    if (slot.content == chunk.content && chain.params == chunk.params) {
      found.exact = &slot;
      return found;
    }
    if (found.alike == nullptr || chain.used < found.alike->chain->used) found.alike = &slot;
  }
  const uint32_t capacity = CapacityFor(chunk.size());
  for (Slot& slot : slots_) {
    const Chain& chain = *slot.chain;
    if (chain.capacity() != capacity || chain.kept_to > launches_ || !free(chain)) continue;
    if (&slot == found.alike) continue;
    if (found.spare == nullptr || chain.used < found.spare->chain->used) found.spare = &slot;
  }
  return found;
}

// Whether this content came up before, unless another has taken its place in the table since. A
// wrong answer costs a chain that is made in vain, or made later.
bool Chains::SeenBefore(uint64_t content) {
  uint64_t& place = seen_[content % seen_.size()];
  const bool seen = place == content;
  place = content;
  return seen;
}

// Chooses a chain to rewrite for a chunk that none holds.
Chains::Slot* Chains::Choose(const Chunk& chunk, const Target& target, const Found& found,
                             bool again) {
  // A chunk that repeats unchanged gets a chain of its own while there are any.
  if (again && found.spare != nullptr) return found.spare;
  // Workers will make it; this chunk goes another way.
  if (again || (found.alike == nullptr && found.spare == nullptr)) {
    Want(chunk, chunk.nodes.front(), chunk.params.data(), CapacityFor(chunk.size()), target.context,
         nullptr);
  }
  if (found.alike != nullptr) return found.alike;
  // While we write a chain, the GPU must have something to do.
  return target.idle ? nullptr : found.spare;
}

// Between Take and Offer the chain is this thread's alone: its slot's hashes are 0, so no look-up
// finds it, `held` keeps the ring thread from taking it out, and `in_flight` from dropping it.
ChainRef Chains::Take(const Chunk& chunk, const Target& target, bool* exact, bool* is_new) {
  const Holding lock(mutex_);
  const Found found = Find(chunk, target);
  *exact = found.exact != nullptr;
  Slot* slot = found.exact;
  bool again = *exact;
  if (!*exact) {
    again = SeenBefore(chunk.content);
    *is_new = !again && found.alike == nullptr;
    slot = Choose(chunk, target, found, again);
    if (slot == nullptr) return nullptr;
    // Nobody may find it while it changes.
    slot->signature = slot->content = 0;
  }
  ++(*exact ? counts_.replayed : slot == found.alike ? counts_.updated : counts_.rewritten);
  Chain& chain = *slot->chain;
  chain.used = ++launches_;
  // A sequence longer than the cache would otherwise drive its own chains out, each just before it
  // is needed again.
  const uint64_t keep =
      again && slots_.size() > kScratchChains ? 4 * uint64_t{slots_.size()} : kShortKeep;
  chain.kept_to = launches_ + keep;
  chain.stream = target.stream;
  ++chain.in_flight;
  chain.held.store(true, std::memory_order_relaxed);
  return slot->chain;
}

// The driver's calls are made without the lock, so that other threads can launch their chains
// meanwhile.
ChainRef Chains::Launch(const Chunk& chunk, const Target& target, bool* is_new) {
  *is_new = false;
  if (chunk.size() < kMinChainLaunches) return nullptr;
  bool exact = false;
  ChainRef chain = Take(chunk, target, &exact, is_new);
  if (chain == nullptr) return nullptr;
  CUkernel refused = nullptr;
  CUresult result = exact ? CUDA_SUCCESS : Set(chain.get(), chunk, &refused);
  if (result == CUDA_SUCCESS) {
    result = device_->Judge(device_->cuda().cuGraphLaunch(chain->exec, target.cuda));
  }
  // Some of its nodes may be new and some old: it is as good as empty.
  if (result != CUDA_SUCCESS) chain->nodes.clear();
  chain->held.store(false, std::memory_order_release);
  // Takes the lock only now: a thread that has it may wait for holders.
  if (result != CUDA_SUCCESS) {
    if (refused != nullptr) Refuse(refused);
    Done(*chain);
    return nullptr;
  }
  if (!exact) Offer(chain, chunk);
  return chain;
}

void Chains::Offer(const ChainRef& chain, const Chunk& chunk) {
  const Holding lock(mutex_);
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [&](const Slot& one) { return one.chain == chain; });
  // Dropped or forgotten meanwhile.
  if (slot == slots_.end() || chain->nodes.empty()) return;
  slot->signature = chunk.signature;
  slot->content = chunk.content;
}

CUresult Chains::SetNode(const Chain& chain, uint32_t index, const ChunkNode& node,
                         const uint8_t* params) {
  const KernelNodeParams value(node.kernel, chain.context, node, {params, node.param_bytes});
  return device_->Judge(device_->cuda().cuGraphExecKernelNodeSetParams_v2(
      chain.exec, chain.handles[index], &value.value));
}

void Chains::Refuse(CUkernel kernel) {
  const Holding lock(mutex_);
  AddRefused(kernel);
}

// The count is read by each launch without the lock, and tells it when to look into the set again.
void Chains::AddRefused(CUkernel kernel) {
  if (refused_.insert(kernel).second) ++refused_count_;
}

bool Chains::Refuses(CUkernel kernel) const {
  if (refused() == 0) return false;
  const Holding lock(mutex_);
  return refused_.contains(kernel);
}

// Makes the chain hold the chunk: sets the nodes that differ, and enables as many as the chunk is
// long. `nodes` and `params` change only when all of it has worked; until then they say what to
// compare with.
CUresult Chains::Set(Chain* chain, const Chunk& chunk, CUkernel* refused) {
  const Driver& cuda = device_->cuda();
  CUresult result = CUDA_SUCCESS;
  size_t at = 0;
  size_t old_at = 0;
  for (uint32_t i = 0; i < chunk.size() && result == CUDA_SUCCESS; ++i) {
    const ChunkNode& node = chunk.nodes[i];
    const uint8_t* params = chunk.params.data() + at;
    at += Chunk::RoundUp(node.param_bytes);
    if (i < chain->nodes.size()) {
      const ChunkNode& old = chain->nodes[i];
      const uint8_t* old_params = chain->params.data() + old_at;
      old_at += Chunk::RoundUp(old.param_bytes);
      if (old == node && SameBytes(params, old_params, node.param_bytes)) continue;
    }
    AddLibrary(chain, node.library);
    result = SetNode(*chain, i, node, params);
    if (result != CUDA_SUCCESS) *refused = node.kernel;
  }
  // One node after the other at the end, so that `enabled` is right wherever this stops.
  while (chain->enabled != chunk.size() && result == CUDA_SUCCESS) {
    const bool more = chain->enabled < chunk.size();
    const uint32_t changed = more ? chain->enabled : chain->enabled - 1;
    result = cuda.cuGraphNodeSetEnabled(chain->exec, chain->handles[changed], more);
    if (result == CUDA_SUCCESS) chain->enabled += more ? 1 : -1;
  }
  if (device_->Judge(result) != CUDA_SUCCESS) return result;
  chain->nodes = chunk.nodes;
  chain->params = chunk.params;
  return CUDA_SUCCESS;
}

// ---- single launches

// Ring thread only, like `singles_`: the lock is taken for the counts and for what Launch on other
// threads shares.
bool Chains::LaunchOne(const Chunk& chunk, const ChunkNode& node, const uint8_t* params,
                       const Target& target) {
  const uint64_t key = SingleKey(node, target.cuda);
  const auto found = singles_.find(key);
  // A stream's handle may have been another context's before.
  if (found == singles_.end() || found->second->nodes.front() != node ||
      found->second->context != target.context) {
    const Holding lock(mutex_);
    ++counts_.plain;
    if (found == singles_.end() && SeenBefore(key))
      Want(chunk, node, params, 1, target.context, target.cuda);
    return false;
  }
  Chain& single = *found->second;
  CUresult result = CUDA_SUCCESS;
  if (!SameBytes(single.params.data(), params, node.param_bytes)) {
    result = SetNode(single, 0, node, params);
    if (result != CUDA_SUCCESS) Refuse(node.kernel);
    // Also after a failure: the single is then dropped below.
    std::memcpy(single.params.data(), params, node.param_bytes);
  }
  if (result == CUDA_SUCCESS) {
    result = device_->Judge(device_->cuda().cuGraphLaunch(single.exec, target.cuda));
  }
  if (result != CUDA_SUCCESS) {
    std::vector<ChainRef> dropped = {std::move(found->second)};
    singles_.erase(found);
    ReleaseChains(std::move(dropped));
    return false;
  }
  const Holding lock(mutex_);
  single.used = ++launches_;
  ++counts_.single;
  return true;
}

std::string Chains::Counts::Text() const {
  return "chunks " + std::to_string(replayed) + " replayed, " + std::to_string(updated) +
         " updated, " + std::to_string(rewritten) + " rewritten; " + std::to_string(single) +
         " by singles, " + std::to_string(plain) + " plain";
}

Chains::Counts Chains::counts() const {
  const Holding lock(mutex_);
  return counts_;
}

size_t Chains::size() const {
  const Holding lock(mutex_);
  return slots_.size();
}

}  // namespace gpuloom::executor
