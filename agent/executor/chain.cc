#include "agent/executor/chain.h"

#include <algorithm>

#include "agent/executor/kernel_node.h"
#include "agent/executor/spin.h"
#include "agent/executor/stream_set.h"

namespace gpuloom::executor {
namespace {

// A chain that nobody has asked for twice is another chunk's after so many launches.
constexpr uint64_t kShortKeep = 4;
// So many stay free for sequences that do not come again.
constexpr size_t kScratchChains = 4;
// Graphs made by one piece of work; nothing else must wait long for the driver's locks.
constexpr size_t kMadeAtATime = 8;
// A single that was not used for so many launches gives its place to another.
constexpr uint64_t kLongUnused = 50'000;
constexpr uint64_t kFullFor = 10'000;
// More wishes are forgotten: what is needed is wished again.
constexpr size_t kMaxWanted = 64;

uint32_t CapacityFor(uint32_t launches) {
  return (launches + kChainStep - 1) / kChainStep * kChainStep;
}

void AddLibrary(Chain* chain, const void* library) {
  std::vector<const void*>& known = chain->libraries;
  if (!known.empty() && known.back() == library) return;
  if (std::find(known.begin(), known.end(), library) == known.end()) known.push_back(library);
}

bool Names(const Chain& chain, const void* library) {
  return std::find(chain.libraries.begin(), chain.libraries.end(), library) !=
         chain.libraries.end();
}

bool Holds(const Chain& chain, CUfunction function) {
  return std::any_of(chain.nodes.begin(), chain.nodes.end(),
                     [&](const ChunkNode& node) { return node.function == function; });
}

}  // namespace

Chain::~Chain() {
  if (exec != nullptr) cuda->cuGraphExecDestroy(exec);
  if (graph != nullptr) cuda->cuGraphDestroy(graph);
}

std::unique_lock<std::mutex> Chains::Lock() const {
  std::unique_lock lock(mutex_, std::try_to_lock);
  while (!lock.owns_lock()) {
    Pause();
    (void)lock.try_lock();
  }
  return lock;
}

// ---- chunks

Chains::Found Chains::Find(const Chunk& chunk, const Target& target) {
  const auto free = [&](const Chain& chain) {
    return chain.in_flight == 0 || chain.stream == target.stream;
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

bool Chains::SawBefore(uint64_t content) {
  uint64_t& place = seen_[content % seen_.size()];
  const bool seen = place == content;
  place = content;
  return seen;
}

// For a chunk that no chain holds.
Chains::Slot* Chains::Choose(const Chunk& chunk, const Target& target, const Found& found,
                             bool again) {
  // What comes again as it was gets a chain of its own while there are any.
  if (again && found.spare != nullptr) return found.spare;
  if (again || (found.alike == nullptr && found.spare == nullptr)) {
    Want(chunk, chunk.nodes.front(), chunk.params.data(), CapacityFor(chunk.size()), nullptr);
  }
  if (found.alike != nullptr) return found.alike;
  // While a chain is written the GPU must have something to do.
  return target.idle ? nullptr : found.spare;
}

ChainRef Chains::Take(const Chunk& chunk, const Target& target, bool* exact) {
  const auto lock = Lock();
  const Found found = Find(chunk, target);
  *exact = found.exact != nullptr;
  Slot* slot = found.exact;
  bool again = *exact;
  if (!*exact) {
    again = SawBefore(chunk.content);
    slot = Choose(chunk, target, found, again);
    if (slot == nullptr) return nullptr;
    // Nobody is to find what is about to change.
    slot->signature = slot->content = 0;
  }
  ++(*exact ? counts_.replayed : slot == found.alike ? counts_.updated : counts_.rewritten);
  Chain& chain = *slot->chain;
  chain.used = ++launches_;
  const uint64_t keep =
      again && slots_.size() > kScratchChains ? 4 * uint64_t{slots_.size()} : kShortKeep;
  chain.kept_to = launches_ + keep;
  chain.stream = target.stream;
  ++chain.in_flight;
  chain.held.store(true, std::memory_order_relaxed);
  return slot->chain;
}

ChainRef Chains::Launch(const Chunk& chunk, const Target& target) {
  if (chunk.size() < kMinChainLaunches) return nullptr;
  bool exact = false;
  ChainRef chain = Take(chunk, target, &exact);
  if (chain == nullptr) return nullptr;
  CUfunction refused = nullptr;
  CUresult result = exact ? CUDA_SUCCESS : Set(chain.get(), chunk, &refused);
  if (result == CUDA_SUCCESS) {
    result = device_->Judge(device_->cuda().cuGraphLaunch(chain->exec, target.cuda));
  }
  if (result != CUDA_SUCCESS) chain->nodes.clear();
  chain->held.store(false, std::memory_order_release);
  // The lock not before: who has it may wait for holders.
  if (result != CUDA_SUCCESS) {
    if (refused != nullptr) Refuse(refused);
    Done(*chain);
    return nullptr;
  }
  if (!exact) Offer(chain, chunk);
  return chain;
}

void Chains::Offer(const ChainRef& chain, const Chunk& chunk) {
  const auto lock = Lock();
  const auto slot = std::find_if(slots_.begin(), slots_.end(),
                                 [&](const Slot& one) { return one.chain == chain; });
  // Dropped or forgotten meanwhile.
  if (slot == slots_.end() || chain->nodes.empty()) return;
  slot->signature = chunk.signature;
  slot->content = chunk.content;
}

CUresult Chains::SetNode(const Chain& chain, uint32_t index, const ChunkNode& node,
                         const uint8_t* params) {
  const KernelNodeParams value(node.function, node, {params, node.param_bytes});
  return device_->Judge(device_->cuda().cuGraphExecKernelNodeSetParams_v2(
      chain.exec, chain.handles[index], &value.value));
}

void Chains::Refuse(CUfunction function) {
  const auto lock = Lock();
  AddRefused(function);
}

void Chains::AddRefused(CUfunction function) {
  if (refused_.insert(function).second) ++refused_count_;
}

bool Chains::Refuses(CUfunction function) const {
  if (refused() == 0) return false;
  const auto lock = Lock();
  return refused_.contains(function);
}

CUresult Chains::Set(Chain* chain, const Chunk& chunk, CUfunction* refused) {
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
      if (old == node && std::memcmp(params, old_params, node.param_bytes) == 0) continue;
    }
    AddLibrary(chain, node.library);
    result = SetNode(*chain, i, node, params);
    if (result != CUDA_SUCCESS) *refused = node.function;
  }
  for (; chain->enabled < chunk.size() && result == CUDA_SUCCESS; ++chain->enabled) {
    result = cuda.cuGraphNodeSetEnabled(chain->exec, chain->handles[chain->enabled], 1);
  }
  for (; chain->enabled > chunk.size() && result == CUDA_SUCCESS; --chain->enabled) {
    result = cuda.cuGraphNodeSetEnabled(chain->exec, chain->handles[chain->enabled - 1], 0);
  }
  if (device_->Judge(result) != CUDA_SUCCESS) return result;
  chain->nodes = chunk.nodes;
  chain->params = chunk.params;
  return CUDA_SUCCESS;
}

// ---- one by one

bool Chains::LaunchOne(const Chunk& chunk, const ChunkNode& node, const uint8_t* params,
                       CUstream stream) {
  const uint64_t key = SingleKey(node, stream);
  const auto found = singles_.find(key);
  if (found == singles_.end() || found->second->nodes.front() != node) {
    const auto lock = Lock();
    ++counts_.plain;
    if (found == singles_.end() && SawBefore(key)) Want(chunk, node, params, 1, stream);
    return false;
  }
  Chain& single = *found->second;
  CUresult result = CUDA_SUCCESS;
  if (std::memcmp(single.params.data(), params, node.param_bytes) != 0) {
    result = SetNode(single, 0, node, params);
    if (result != CUDA_SUCCESS) Refuse(node.function);
    std::memcpy(single.params.data(), params, node.param_bytes);
  }
  if (result == CUDA_SUCCESS) {
    result = device_->Judge(device_->cuda().cuGraphLaunch(single.exec, stream));
  }
  if (result != CUDA_SUCCESS) {
    std::vector<ChainRef> dropped = {std::move(found->second)};
    singles_.erase(found);
    TakeFromRoom(dropped);
    pool_->Post([dropped = std::move(dropped)]() mutable { dropped.clear(); }, [] {});
    return false;
  }
  const auto lock = Lock();
  single.used = ++launches_;
  ++counts_.single;
  return true;
}

Chains::Counts Chains::counts() const {
  const auto lock = Lock();
  return counts_;
}

size_t Chains::size() const {
  const auto lock = Lock();
  return slots_.size();
}

// ---- making and dropping

// With the lock.
void Chains::Want(const Chunk& chunk, const ChunkNode& node, const uint8_t* params, uint32_t nodes,
                  CUstream stream) {
  if (wanted_.size() >= kMaxWanted || refused_.contains(node.function) || !MayWant(nodes)) return;
  const auto library = std::find_if(chunk.libraries.begin(), chunk.libraries.end(),
                                    [&](const auto& one) { return one.get() == node.library; });
  if (library == chunk.libraries.end()) return;
  wanted_.push_back(
      {nodes, node, {params, params + Chunk::RoundUp(node.param_bytes)}, *library, stream, {}});
}

// Making a graph holds the driver's locks for some 20–150 µs, so where all places are taken they change
// hands seldom.
bool Chains::MayWant(uint32_t nodes) {
  if (nodes == 1 ? singles_.size() < kMaxSingles : slots_.size() < kMaxChains) return true;
  if (launches_ < full_until_) return false;
  full_until_ = launches_ + kFullFor;
  return true;
}

void Chains::Reserve() {
  static constexpr char kImage[] =
      ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";
  const Driver& cuda = device_->cuda();
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  Wanted wanted = {1, {}, {}, nullptr, nullptr, nullptr};
  wanted.node = {nullptr, nullptr, {1, 1, 1}, {1, 1, 1}, 0, 0};
  if (cuda.cuLibraryLoadData(&library, kImage, nullptr, nullptr, 0, nullptr, nullptr, 0) !=
      CUDA_SUCCESS) {
    return;
  }
  std::vector<ChainRef> made;
  if (cuda.cuLibraryGetKernel(&kernel, library, "nothing") == CUDA_SUCCESS &&
      cuda.cuKernelGetFunction(&wanted.node.function, kernel) == CUDA_SUCCESS) {
    while (made.size() < kMaxChains + kMaxSingles) {
      ChainRef chain = Make(wanted);
      if (chain == nullptr) break;
      made.push_back(std::move(chain));
    }
  }
  // What destroyed graphs leave is used again.
  room_->most_graphs += made.size();
  room_->most_nodes += made.size() * kMaxChunkLaunches;
  made.clear();
  cuda.cuLibraryUnload(library);
}

ChainRef Chains::Make(const Wanted& wanted) const {
  const Driver& cuda = device_->cuda();
  auto chain = std::make_shared<Chain>(&cuda);
  const KernelNodeParams value(wanted.node.function, wanted.node,
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

// Like tenants' graphs (running-graphs.md): beside what runs as long as the driver has room, else
// when nothing runs.
void Chains::MakeWanted() {
  if (making_) return;
  struct Work {
    std::vector<Wanted> wanted;
    std::vector<ChainRef> dropped;
  };
  auto lock = Lock();
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
  lock.unlock();
  TakeFromRoom(work->dropped);
  const bool fits = room_->graphs + work->wanted.size() <= room_->most_graphs && room_->Fits(nodes);
  room_->graphs += work->wanted.size();
  room_->nodes += nodes;
  auto make = [this, work] {
    work->dropped.clear();
    for (Wanted& wanted : work->wanted) wanted.made = Make(wanted);
  };
  auto done = [this, work] {
    making_ = false;
    Adopt(&work->wanted);
    room_->OnMade();
    MakeWanted();
  };
  if (fits) {
    pool_->Post(std::move(make), std::move(done));
  } else {
    quiet_->Bury(std::move(make), std::move(done));
  }
}

void Chains::Adopt(std::vector<Wanted>* made) {
  const auto lock = Lock();
  for (Wanted& wanted : *made) {
    const bool single = wanted.nodes == 1;
    const uint64_t key = single ? SingleKey(wanted.node, wanted.stream) : 0;
    const bool full = single ? singles_.size() >= kMaxSingles || singles_.contains(key)
                             : slots_.size() >= kMaxChains;
    if (wanted.made == nullptr || full) {
      if (wanted.made == nullptr) AddRefused(wanted.node.function);
      --room_->graphs;
      room_->nodes -= wanted.nodes;
      continue;
    }
    if (!single) {
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
  std::erase_if(singles_, [&](auto& entry) {
    if (entry.second->used + kLongUnused > launches_) return false;
    dropped->push_back(std::move(entry.second));
    return true;
  });
}

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

void Chains::WaitForHolders() const {
  for (const Slot& slot : slots_) {
    while (slot.chain->held.load(std::memory_order_acquire)) Pause();
  }
}

void Chains::Forget(CUfunction function) {
  auto lock = Lock();
  WaitForHolders();
  for (Slot& slot : slots_) {
    if (!Holds(*slot.chain, function)) continue;
    slot.signature = slot.content = 0;
    slot.chain->nodes.clear();
  }
  lock.unlock();
  std::vector<ChainRef> dropped;
  std::erase_if(singles_, [&](auto& entry) {
    if (!Holds(*entry.second, function)) return false;
    dropped.push_back(std::move(entry.second));
    return true;
  });
  if (dropped.empty()) return;
  TakeFromRoom(dropped);
  pool_->Post([dropped = std::move(dropped)]() mutable { dropped.clear(); }, [] {});
}

std::vector<ChainRef> Chains::TakeOut(const void* library) {
  std::vector<ChainRef> out;
  auto lock = Lock();
  WaitForHolders();
  std::erase_if(slots_, [&](Slot& slot) {
    if (!Names(*slot.chain, library)) return false;
    out.push_back(std::move(slot.chain));
    return true;
  });
  lock.unlock();
  std::erase_if(singles_, [&](auto& entry) {
    if (!Names(*entry.second, library)) return false;
    out.push_back(std::move(entry.second));
    return true;
  });
  TakeFromRoom(out);
  return out;
}

}  // namespace gpuloom::executor
