// SPDX-License-Identifier: Apache-2.0
// Which graphs are kept for launches: made after a look-up that found none, dropped when others
// need the room or when a library that they name is unloaded.
#include <algorithm>
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/graph/graph.h"
#include "agent/executor/launch/chain.h"
#include "agent/executor/launch/kernel_node.h"
#include "agent/executor/session/work_pool.h"
#include "proto/sync/cpu_pause.h"

namespace gpuloom::executor {
namespace {

// How many graphs one job makes, so that nothing else waits long for the driver's locks.
constexpr size_t kMadeAtATime = 8;
// A single that was not used for this many launches of all sessions may be replaced.
constexpr uint64_t kLongUnused = 50'000;
// When all places are taken, for how many launches no further graph is wanted.
constexpr uint64_t kFullFor = 10'000;
// Further requests are dropped: what is needed will be requested again.
constexpr size_t kMaxWanted = 64;

bool Names(const Chain& chain, const void* library) {
  return std::find(chain.libraries.begin(), chain.libraries.end(), library) !=
         chain.libraries.end();
}

bool Holds(const Chain& chain, CUkernel kernel) {
  return std::any_of(chain.nodes.begin(), chain.nodes.end(),
                     [&](const ChunkNode& node) { return node.kernel == kernel; });
}

}  // namespace

// Asks for a graph of `nodes` nodes, each at first the launch `node`: what a chain holds is set
// when it is used. The request holds the kernel's library, so that the worker names no unloaded
// kernel; TakeOut finds the graph from Adopt on.
void Chains::Want(const Chunk& chunk, const ChunkNode& node, const uint8_t* params, uint32_t nodes,
                  CUcontext context, CUstream stream) {
  if (wanted_.size() >= kMaxWanted || refused_.contains(node.kernel) || !MayWant(nodes)) return;
  const auto library = std::find_if(chunk.libraries.begin(), chunk.libraries.end(),
                                    [&](const auto& one) { return one.get() == node.library; });
  if (library == chunk.libraries.end()) return;
  wanted_.push_back({nodes,
                     node,
                     {params, params + Chunk::RoundUp(node.param_bytes)},
                     *library,
                     context,
                     stream,
                     {}});
}

// Making a graph holds the driver's locks for some 20–150 µs, so when all places are taken they are
// replaced only rarely.
bool Chains::MayWant(uint32_t nodes) {
  if (nodes == 1 ? singles_.size() < kMaxSingles : slots_.size() < kMaxChains) return true;
  if (launches_ < full_until_) return false;
  full_until_ = launches_ + kFullFor;
  return true;
}

// Makes as many graphs, of as many nodes, as there may be at all, and destroys them again: 42 MiB of device memory, and 63
// ms. Graphs of one node would leave no room for others' nodes, but as it seems there is room, the driver would be asked
// for graphs beside running work and wait for that with the context's lock. Where this fails, graphs beyond a fresh
// context's room are made in quiet moments.
void Chains::Reserve() {
  static constexpr char kImage[] =
      ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
  const Driver& cuda = device_->cuda();
  CUlibrary library = nullptr;
  Wanted wanted = {1, {}, {}, nullptr, device_->context(), nullptr, nullptr};
  wanted.node = {nullptr, nullptr, {1, 1, 1}, {1, 1, 1}, 0, 0};
  if (cuda.cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0) !=
      CUDA_SUCCESS) {
    return;
  }
  std::vector<ChainRef> made;
  if (cuda.cuLibraryGetKernel(&wanted.node.kernel, library, "nothing") == CUDA_SUCCESS) {
    while (made.size() < kMaxChains + kMaxSingles) {
      wanted.nodes = made.size() < kMaxChains ? kMaxChunkLaunches : 1;
      ChainRef chain = Make(wanted);
      if (chain == nullptr) break;
      made.push_back(std::move(chain));
    }
  }
  // The driver reuses the memory of destroyed graphs.
  room_->most_graphs += made.size();
  for (const ChainRef& chain : made) room_->most_nodes += chain->capacity();
  made.clear();
  cuda.cuLibraryUnload(library);
}

// On a worker, except in Reserve.
ChainRef Chains::Make(const Wanted& wanted) const {
  const Driver& cuda = device_->cuda();
  auto chain = std::make_shared<Chain>(&cuda);
  chain->context = wanted.context;
  const KernelNodeParams value(wanted.node.kernel, wanted.context, wanted.node,
                               {wanted.params.data(), wanted.node.param_bytes});
  CUresult result = cuda.cuGraphCreate(&chain->graph, 0);
  for (uint32_t i = 0; i < wanted.nodes && result == CUDA_SUCCESS; ++i) {
    CUgraphNode handle = nullptr;
    result = cuda.cuGraphAddKernelNode_v2(&handle, chain->graph,
                                          i == 0 ? nullptr : &chain->handles.back(), i == 0 ? 0 : 1,
                                          &value.value);
    chain->handles.push_back(handle);
  }
  if (result == CUDA_SUCCESS) {
    result = cuda.cuGraphInstantiateWithFlags(&chain->exec, chain->graph, 0);
  }
  if (device_->Judge(result) != CUDA_SUCCESS) return nullptr;
  chain->enabled = wanted.nodes;
  chain->libraries.push_back(wanted.node.library);
  return chain;
}

// As with tenants' graphs (running-graphs.md): while other work runs if the driver has room,
// otherwise when nothing runs.
void Chains::MakeWanted() {
  if (making_) return;
  struct Work {
    std::vector<Wanted> wanted;
    std::vector<ChainRef> dropped;
  };
  // Held only to look and to choose. The rest of this needs none: the room and the counts of jobs
  // are the ring thread's.
  Holding lock(mutex_);
  if (wanted_.empty()) return;
  making_ = true;
  auto work = std::make_shared<Work>();
  size_t chains = 0;
  uint64_t nodes = 0;
  while (!wanted_.empty() && work->wanted.size() < kMadeAtATime) {
    chains += wanted_.front().nodes != 1;
    nodes += wanted_.front().nodes;
    work->wanted.push_back(std::move(wanted_.front()));
    wanted_.pop_front();
  }
  const size_t singles = work->wanted.size() - chains;
  if (singles_.size() + singles > kMaxSingles) DropSingles(&work->dropped);
  if (slots_.size() + chains > kMaxChains) DropChains(chains, &work->dropped);
  lock.Unlock();
  TakeFromRoom(work->dropped);
  const bool fits = room_->Fits(work->wanted.size(), nodes);
  // Counted before they exist, so that tenants' graphs that are judged meanwhile see them.
  room_->graphs += work->wanted.size();
  room_->nodes += nodes;
  auto make = [this, work] {
    // Before new ones are made: the driver reuses the memory of destroyed graphs.
    work->dropped.clear();
    for (Wanted& wanted : work->wanted) wanted.made = Make(wanted);
  };
  ++releasing_;
  auto done = [this, work] {
    making_ = false;
    OnReleaseDone();
    Adopt(&work->wanted);
    room_->OnMade();
    MakeWanted();
  };
  if (fits) {
    pool_->Post(std::move(make), std::move(done));
  } else {
    quiet_->WhenIdle(std::move(make), std::move(done));
  }
}

// Puts the made graphs where launches look for them. One that failed takes its kernel out of
// grouping for good: whatever the reason, trying again with each launch would cost more than plain
// launches.
void Chains::Adopt(std::vector<Wanted>* made) {
  const Holding lock(mutex_);
  for (Wanted& wanted : *made) {
    const bool single = wanted.nodes == 1;
    const uint64_t key = single ? SingleKey(wanted.node, wanted.stream) : 0;
    // The places may have been taken meanwhile, with no graph in them that may be dropped. The
    // superfluous graph is destroyed with `made`.
    const bool full = single ? singles_.size() >= kMaxSingles || singles_.contains(key)
                             : slots_.size() >= kMaxChains;
    if (wanted.made == nullptr || full) {
      if (wanted.made == nullptr) AddRefused(wanted.node.kernel);
      --room_->graphs;
      room_->nodes -= wanted.nodes;
      continue;
    }
    if (!single) {
      // Its nodes all hold one launch, which is no chunk's content: it is found as a spare.
      slots_.push_back({0, 0, std::move(wanted.made)});
      continue;
    }
    wanted.made->nodes.push_back(wanted.node);
    wanted.made->params = std::move(wanted.params);
    wanted.made->used = ++launches_;
    singles_.emplace(key, std::move(wanted.made));
  }
}

void Chains::DropSingles(std::vector<ChainRef>* dropped) {
  std::erase_if(singles_, [&](auto& entry) GPULOOM_REQUIRES(mutex_) {
    if (entry.second->used + kLongUnused > launches_) return false;
    dropped->push_back(std::move(entry.second));
    return true;
  });
}

// Drops up to `count` chains, those first that were not used for longest. One that runs or is still
// kept for its sequence stays, and then fewer are dropped.
void Chains::DropChains(size_t count, std::vector<ChainRef>* dropped) {
  for (; count != 0; --count) {
    Slot* oldest = nullptr;
    for (Slot& slot : slots_) {
      const Chain& chain = *slot.chain;
      if (chain.in_flight != 0 || chain.kept_to > launches_) continue;
      if (oldest == nullptr || chain.used < oldest->chain->used) oldest = &slot;
    }
    if (oldest == nullptr) return;
    dropped->push_back(std::move(oldest->chain));
    *oldest = std::move(slots_.back());
    slots_.pop_back();
  }
}

void Chains::TakeFromRoom(const std::vector<ChainRef>& chains) {
  for (const ChainRef& chain : chains) {
    --room_->graphs;
    room_->nodes -= chain->capacity();
  }
}

// The holder's thread is in the driver for some microseconds, with our lock free (Launch). While
// this function has the lock, no thread becomes a holder.
void Chains::WaitForHolders() const {
  for (const Slot& slot : slots_) {
    while (slot.chain->held.load(std::memory_order_acquire)) CpuPause();
  }
}

// A chain whose node names the kernel loses what it remembers, so the next chunk sets all its nodes
// again; that takes the new attributes. A single is dropped, because its node is set only when its
// parameters differ.
void Chains::Forget(CUkernel kernel) {
  Holding lock(mutex_);
  WaitForHolders();
  for (Slot& slot : slots_) {
    if (!Holds(*slot.chain, kernel)) continue;
    slot.signature = slot.content = 0;
    slot.chain->nodes.clear();
  }
  lock.Unlock();
  std::vector<ChainRef> dropped;
  std::erase_if(singles_, [&](auto& entry) {
    if (!Holds(*entry.second, kernel)) return false;
    dropped.push_back(std::move(entry.second));
    return true;
  });
  if (!dropped.empty()) ReleaseChains(std::move(dropped));
}

void Chains::ReleaseChains(std::vector<ChainRef> chains) {
  TakeFromRoom(chains);
  ++releasing_;
  pool_->Post([chains = std::move(chains)]() mutable { chains.clear(); },
              [this] { OnReleaseDone(); });
}

void Chains::OnReleaseDone() {
  if (--releasing_ != 0) return;
  const auto actions = std::exchange(on_released_, {});
  for (const auto& action : actions) action();
}

void Chains::AfterRelease(std::function<void()> action) {
  if (releasing_ == 0) return action();
  on_released_.push_back(std::move(action));
}

// Called from the library's destructor: nothing that waits here names it any more. What still runs
// has ended when the library is unloaded, in a quiet moment.
std::vector<ChainRef> Chains::TakeOut(const void* library) {
  std::vector<ChainRef> out;
  Holding lock(mutex_);
  WaitForHolders();
  std::erase_if(slots_, [&](Slot& slot) {
    if (!Names(*slot.chain, library)) return false;
    out.push_back(std::move(slot.chain));
    return true;
  });
  lock.Unlock();
  std::erase_if(singles_, [&](auto& entry) {
    if (!Names(*entry.second, library)) return false;
    out.push_back(std::move(entry.second));
    return true;
  });
  TakeFromRoom(out);
  return out;
}

}  // namespace gpuloom::executor
