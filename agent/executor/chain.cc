#include "agent/executor/chain.h"

#include <algorithm>

#include "agent/executor/stream_set.h"

namespace gpuloom::executor {
namespace {

// A chain that nobody has asked for twice is another chunk's after so many launches.
constexpr uint64_t kShortKeep = 4;
// These stay free for sequences that do not come again.
constexpr size_t kScratchChains = 4;

// A kernel node's parameters as the driver wants them. Points into itself.
struct NodeParams {
  NodeParams(const ChunkNode& node, const uint8_t* params) : bytes(node.param_bytes) {
    extra[1] = const_cast<uint8_t*>(params);
    value.func = node.function;
    value.gridDimX = node.grid[0];
    value.gridDimY = node.grid[1];
    value.gridDimZ = node.grid[2];
    value.blockDimX = node.block[0];
    value.blockDimY = node.block[1];
    value.blockDimZ = node.block[2];
    value.sharedMemBytes = node.dynamic_shared_bytes;
    if (bytes != 0) value.extra = extra;
  }
  NodeParams(const NodeParams&) = delete;
  NodeParams& operator=(const NodeParams&) = delete;

  size_t bytes;
  void* extra[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, nullptr, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                    CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS_v2 value = {};
};

}  // namespace

Chain::~Chain() {
  if (exec != nullptr) cuda->cuGraphExecDestroy(exec);
  if (graph != nullptr) cuda->cuGraphDestroy(graph);
}

Chains::Found Chains::Find(const Chunk& chunk, const Stream& stream) const {
  Found found;
  for (const ChainRef& ref : chains_) {
    Chain* chain = ref.get();
    if (chain->in_flight != 0 && chain->stream != &stream) continue;
    if (chain->signature == chunk.signature && chain->nodes == chunk.nodes) {
      if (chain->content == chunk.content && chain->params == chunk.params) {
        found.exact = chain;
        return found;
      }
      if (found.alike == nullptr || chain->used < found.alike->used) found.alike = chain;
    } else if (chain->kept_to <= launches_ &&
               (found.spare == nullptr || chain->used < found.spare->used)) {
      found.spare = chain;
    }
  }
  return found;
}

bool Chains::SawBefore(uint64_t content) {
  uint64_t& place = seen_[content % seen_.size()];
  const bool seen = place == content;
  place = content;
  return seen;
}

ChainRef Chains::Launch(const Chunk& chunk, const Stream& stream) {
  if (chunk.size() < kMinChainLaunches) return nullptr;
  const Found found = Find(chunk, stream);
  Chain* chain = found.exact;
  bool again = chain != nullptr;
  if (chain == nullptr) {
    again = SawBefore(chunk.content);
    // What comes again as it was gets a chain of its own while there are any; what only looks alike
    // takes turns in one.
    chain =
        found.alike != nullptr && !(again && found.spare != nullptr) ? found.alike : found.spare;
    if (chain == nullptr || (again && found.spare == nullptr)) MakeMore(chunk);
    // With nothing to do the GPU would wait until a whole chain is written; a launch begins at once.
    if (chain == found.spare && !again && stream.in_flight == 0) chain = nullptr;
    if (chain == nullptr) {
      ++counts_.plain;
      return nullptr;
    }
    const bool rewrite = chain == found.spare;
    if (Set(chain, chunk) != CUDA_SUCCESS) {
      ++counts_.plain;
      return nullptr;
    }
    ++(rewrite ? counts_.rewritten : counts_.updated);
  } else {
    ++counts_.replayed;
  }
  if (device_->Judge(device_->cuda().cuGraphLaunch(chain->exec, stream.cuda)) != CUDA_SUCCESS) {
    chain->signature = chain->content = 0;
    chain->nodes.clear();
    return nullptr;
  }
  chain->used = ++launches_;
  const uint64_t keep =
      again && chains_.size() > kScratchChains ? 4 * uint64_t{chains_.size()} : kShortKeep;
  chain->kept_to = launches_ + keep;
  chain->stream = &stream;
  ++chain->in_flight;
  for (const ChainRef& ref : chains_) {
    if (ref.get() == chain) return ref;
  }
  return nullptr;
}

CUresult Chains::SetNode(const Chain& chain, uint32_t index, const ChunkNode& node,
                         const uint8_t* params) const {
  const NodeParams value(node, params);
  return device_->cuda().cuGraphExecKernelNodeSetParams_v2(chain.exec, chain.handles[index],
                                                           &value.value);
}

CUresult Chains::Set(Chain* chain, const Chunk& chunk) {
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
    result = SetNode(*chain, i, node, params);
    if (result != CUDA_SUCCESS) refused_.insert(node.function);
  }
  for (; chain->enabled < chunk.size() && result == CUDA_SUCCESS; ++chain->enabled) {
    result = cuda.cuGraphNodeSetEnabled(chain->exec, chain->handles[chain->enabled], 1);
  }
  for (; chain->enabled > chunk.size() && result == CUDA_SUCCESS; --chain->enabled) {
    result = cuda.cuGraphNodeSetEnabled(chain->exec, chain->handles[chain->enabled - 1], 0);
  }
  if (device_->Judge(result) != CUDA_SUCCESS) {
    chain->signature = chain->content = 0;
    chain->nodes.clear();
    return result;
  }
  for (const auto& library : chunk.libraries) {
    if (std::find(chain->libraries.begin(), chain->libraries.end(), library.get()) ==
        chain->libraries.end()) {
      chain->libraries.push_back(library.get());
    }
  }
  chain->signature = chunk.signature;
  chain->content = chunk.content;
  chain->nodes = chunk.nodes;
  chain->params = chunk.params;
  return CUDA_SUCCESS;
}

void Chains::Forget(CUfunction function) {
  for (const ChainRef& chain : chains_) {
    const bool holds =
        std::any_of(chain->nodes.begin(), chain->nodes.end(),
                    [&](const ChunkNode& node) { return node.function == function; });
    if (!holds) continue;
    chain->signature = chain->content = 0;
    chain->nodes.clear();
  }
}

std::vector<ChainRef> Chains::TakeOut(const void* library) {
  std::vector<ChainRef> out;
  std::erase_if(chains_, [&](ChainRef& chain) {
    if (std::find(chain->libraries.begin(), chain->libraries.end(), library) ==
        chain->libraries.end()) {
      return false;
    }
    out.push_back(std::move(chain));
    return true;
  });
  room_->graphs -= out.size();
  room_->nodes -= out.size() * kMaxChunkLaunches;
  return out;
}

ChainRef Chains::Make(const ChunkNode& node, std::vector<uint8_t>* params) const {
  const Driver& cuda = device_->cuda();
  auto chain = std::make_shared<Chain>(&cuda);
  const NodeParams value(node, params->data());
  CUresult result = cuda.cuGraphCreate(&chain->graph, 0);
  for (uint32_t i = 0; i < kMaxChunkLaunches && result == CUDA_SUCCESS; ++i) {
    CUgraphNode handle = nullptr;
    result = cuda.cuGraphAddKernelNode_v2(&handle, chain->graph,
                                          i == 0 ? nullptr : &chain->handles.back(), i == 0 ? 0 : 1,
                                          &value.value);
    chain->handles.push_back(handle);
  }
  if (result == CUDA_SUCCESS) {
    result = cuda.cuGraphInstantiateWithFlags(&chain->exec, chain->graph, 0);
  }
  chain->enabled = kMaxChunkLaunches;
  return result == CUDA_SUCCESS ? chain : nullptr;
}

// Like tenants' graphs (running-graphs.md): beside what runs as long as the driver has room, else
// when nothing runs.
void Chains::MakeMore(const Chunk& chunk) {
  if (making_ || gave_up_ || chains_.size() + kChainsAtATime > kMaxChains) return;
  making_ = true;
  struct Made {
    ChunkNode node;
    std::vector<uint8_t> params;
    std::shared_ptr<const void> library;  // keeps the function loaded until TakeOut can find it
    std::vector<ChainRef> chains;
  };
  auto made = std::make_shared<Made>();
  made->node = chunk.nodes.front();
  made->params.assign(chunk.params.begin(), chunk.params.begin() + made->node.param_bytes);
  made->library = chunk.libraries.front();
  const bool fits = room_->graphs + kChainsAtATime <= room_->most_graphs &&
                    room_->Fits(kChainsAtATime * kMaxChunkLaunches);
  room_->graphs += kChainsAtATime;
  room_->nodes += kChainsAtATime * kMaxChunkLaunches;
  auto work = [this, made] {
    for (uint32_t i = 0; i < kChainsAtATime; ++i) {
      made->chains.push_back(Make(made->node, &made->params));
      if (made->chains.back() == nullptr) break;
    }
  };
  auto done = [this, made] {
    making_ = false;
    gave_up_ = made->chains.back() == nullptr;
    if (gave_up_) made->chains.pop_back();
    const size_t missing = kChainsAtATime - made->chains.size();
    room_->graphs -= missing;
    room_->nodes -= missing * kMaxChunkLaunches;
    room_->OnMade();
    for (ChainRef& chain : made->chains) {
      chain->libraries.push_back(made->library.get());
      chains_.push_back(std::move(chain));
    }
  };
  if (fits) {
    pool_->Post(std::move(work), std::move(done));
  } else {
    quiet_->Bury(std::move(work), std::move(done));
  }
}

}  // namespace gpuloom::executor
