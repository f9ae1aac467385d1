// SPDX-License-Identifier: Apache-2.0
// Graphs: captured, made by hand, nested, conditional; instantiated, launched, updated, destroyed
// while they run.
#include <algorithm>

#include "tests/sequences/kernels.h"
#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

constexpr size_t kMostExecs = 8;

void Note(ExecObject* exec, const std::shared_ptr<Work>& work) {
  exec->works.push_back(work);
  if (auto* journal = ThisJournal()) {
    journal->Note("%s of %u at %u", work->name.c_str(), work->buffers[0]->number, work->first);
  }
  for (const BufferRef& buffer : work->buffers) {
    if (std::find(exec->buffers.begin(), exec->buffers.end(), buffer) == exec->buffers.end()) {
      exec->buffers.push_back(buffer);
    }
  }
  if (work->module != nullptr &&
      std::find(exec->modules.begin(), exec->modules.end(), work->module) == exec->modules.end()) {
    exec->modules.push_back(work->module);
  }
}

std::vector<std::shared_ptr<Work>> MakeWorks(World& world, uint32_t most) {
  std::vector<std::shared_ptr<Work>> works;
  const uint32_t count = world.random().Between(1, most);
  for (uint32_t i = 0; i < count; ++i) {
    if (auto work = world.MakeWork(/*for_graph=*/true)) works.push_back(work);
  }
  return works;
}

// `works`: what the graph does. Said before it is tried.
ExecRef Instantiate(World& world, CUgraph graph,
                    const std::vector<std::shared_ptr<Work>>& works = {}) {
  auto exec = std::make_shared<ExecObject>();
  exec->number = world.NextNumber();
  for (const auto& work : works) Note(exec.get(), work);
  if (world.random().Chance(50)) {
    DO(cuGraphInstantiateWithFlags, &exec->handle, graph, 0);
  } else {
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
    DO(cuGraphInstantiateWithParams, &exec->handle, graph, &params);
  }
  return exec;
}

bool Shares(const Work& a, const Work& b) {
  for (const BufferRef& one : a.buffers) {
    for (const BufferRef& other : b.buffers) {
      if (one == other) return true;
    }
  }
  return false;
}

bool Capture(World& world) {
  if (world.execs.size() >= kMostExecs) return false;
  const auto works = MakeWorks(world, 12);
  if (works.empty()) return false;
  Random& random = world.random();
  CUstream first = nullptr, second = nullptr;
  DO(cuStreamCreate, &first, CU_STREAM_NON_BLOCKING);
  DO(cuStreamCreate, &second, CU_STREAM_NON_BLOCKING);
  const EventRef fork = world.MakeEvent(CU_EVENT_DISABLE_TIMING),
                 join = world.MakeEvent(CU_EVENT_DISABLE_TIMING);
  const bool forks = random.Chance(50);
  CUgraph graph = nullptr;
  {
    // Nobody may wait for all of the context meanwhile.
    std::shared_lock<std::shared_mutex> lock(world.shared().captures);
    const CUstreamCaptureMode mode =
        random.Chance(50) ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL : CU_STREAM_CAPTURE_MODE_RELAXED;
    DO(cuStreamBeginCapture_v2, first, mode);
    if (forks) {
      DO(cuEventRecord, fork->handle, first);
      DO(cuStreamWaitEvent, second, fork->handle, 0);
    }
    std::vector<const Work*> beside;  // in the second stream
    for (const auto& work : works) {
      bool depends = false;
      for (const Work* other : beside) depends |= Shares(*work, *other);
      bool with_first = false;
      for (const auto& other : works) {
        if (other == work) break;
        const bool in_second = std::find(beside.begin(), beside.end(), other.get()) != beside.end();
        with_first |= !in_second && Shares(*work, *other);
      }
      // What depends on both sides ends the fork's use.
      if (forks && !with_first && (depends || random.Chance(50))) {
        world.Enqueue(second, *work, /*capturing=*/true);
        beside.push_back(work.get());
        continue;
      }
      if (depends) {
        DO(cuEventRecord, join->handle, second);
        DO(cuStreamWaitEvent, first, join->handle, 0);
      }
      world.Enqueue(first, *work, /*capturing=*/true);
    }
    if (forks) {
      DO(cuEventRecord, join->handle, second);
      DO(cuStreamWaitEvent, first, join->handle, 0);
    }
    DO(cuStreamEndCapture, first, &graph);
  }
  DO(cuStreamDestroy_v2, first);
  DO(cuStreamDestroy_v2, second);
  const ExecRef exec = Instantiate(world, graph, works);
  DO(cuGraphDestroy, graph);
  world.execs.push_back(exec);
  world.journal().Note("exec %u of %zu", exec->number, works.size());
  return true;
}

// A graph whose nodes depend on what they share with those before, and sometimes on more.
CUgraph MakeGraph(World& world, const std::vector<std::shared_ptr<Work>>& works,
                  std::vector<CUgraphNode>* nodes) {
  CUgraph graph = nullptr;
  DO(cuGraphCreate, &graph, 0);
  for (size_t i = 0; i < works.size(); ++i) {
    std::vector<CUgraphNode> after;
    for (size_t k = 0; k < i; ++k) {
      if (Shares(*works[i], *works[k]) || world.random().Chance(10)) after.push_back((*nodes)[k]);
    }
    nodes->push_back(world.AddNode(graph, *works[i], after));
  }
  return graph;
}

bool ByHand(World& world) {
  if (world.execs.size() >= kMostExecs) return false;
  const auto works = MakeWorks(world, 10);
  if (works.empty()) return false;
  std::vector<CUgraphNode> nodes;
  CUgraph graph = MakeGraph(world, works, &nodes);
  if (world.random().Chance(20)) {
    CUgraph clone = nullptr;
    DO(cuGraphClone, &clone, graph);
    for (CUgraphNode& node : nodes) DO(cuGraphNodeFindInClone, &node, node, clone);
    DO(cuGraphDestroy, graph);
    graph = clone;
  }
  const ExecRef exec = Instantiate(world, graph, works);
  exec->graph = graph;
  exec->nodes = nodes;
  world.execs.push_back(exec);
  world.journal().Note("exec %u of %zu", exec->number, works.size());
  return true;
}

bool Nested(World& world) {
  if (world.execs.size() >= kMostExecs) return false;
  const auto inner = MakeWorks(world, 4), outer = MakeWorks(world, 4);
  if (inner.empty() || outer.empty()) return false;
  std::vector<CUgraphNode> nodes;
  CUgraph child = MakeGraph(world, inner, &nodes);
  nodes.clear();
  CUgraph graph = MakeGraph(world, outer, &nodes);
  CUgraphNode last = nullptr;
  DO(cuGraphAddChildGraphNode, &last, graph, nodes.data(), nodes.size(), child);
  DO(cuGraphDestroy, child);
  auto works = outer;
  works.insert(works.end(), inner.begin(), inner.end());
  const ExecRef exec = Instantiate(world, graph, works);
  DO(cuGraphDestroy, graph);
  world.execs.push_back(exec);
  world.journal().Note("exec %u of %zu and %zu", exec->number, outer.size(), inner.size());
  return true;
}

bool Launch(World& world) {
  std::vector<ExecRef> ready;
  for (const ExecRef& exec : world.execs) {
    if (exec->MayRun()) ready.push_back(exec);
  }
  if (ready.empty()) return false;
  const ExecRef exec = world.random().Of(ready);
  const StreamRef stream = world.AnyStream();
  const uint32_t times = world.random().Chance(80) ? 1 : world.random().Between(2, 6);
  world.journal().Note("exec %u in stream %u, %u times", exec->number, stream->number, times);
  for (const BufferRef& buffer : exec->buffers) world.Join(stream, &buffer->uses);
  for (const ModuleRef& module : exec->modules) {
    if (!module->shared) World::AddUse(stream, &module->uses);
  }
  if (world.random().Chance(10)) DO(cuGraphUpload, exec->handle, stream->handle);
  for (uint32_t i = 0; i < times; ++i) {
    DO(cuGraphLaunch, exec->handle, stream->handle);
    for (const auto& work : exec->works) work->apply();
  }
  if (world.random().Chance(15)) world.DestroyExec(exec);  // while it runs
  return true;
}

// New parameters for a kernel of it, while earlier launches may run.
bool Change(World& world) {
  std::vector<ExecRef> ready;
  for (const ExecRef& exec : world.execs) {
    if (exec->MayRun() && !exec->nodes.empty()) ready.push_back(exec);
  }
  if (ready.empty()) return false;
  const ExecRef exec = world.random().Of(ready);
  const uint32_t i = world.random().Below(static_cast<uint32_t>(exec->works.size()));
  const std::shared_ptr<Work> old = exec->works[i];
  if (old->kind != Work::Kind::kKernel) return false;
  world.journal().Note("exec %u, node %u", exec->number, i);
  // The same kernel over fewer words.
  if (old->name != "add" && old->name != "mix") return false;
  auto work = std::make_shared<Work>(*old);
  const BufferRef buffer = old->buffers[0];
  const auto first = static_cast<uint32_t>((old->values[0] - buffer->device) / 4);
  const uint32_t count = world.random().Between(1, static_cast<uint32_t>(old->values[1]));
  const auto value = static_cast<uint32_t>(world.random().Next());
  work->values[1] = count;
  work->values[2] = value;
  const bool mixes = old->name == "mix";
  work->apply = [=] {
    for (uint32_t k = 0; k < count; ++k) {
      uint32_t& word = buffer->words[first + k];
      word = mixes ? word * 1664525 + value + k : word + value;
    }
  };
  void* pointers[5];
  work->Parameters(pointers);
  CUDA_KERNEL_NODE_PARAMS_v2 params = {};
  params.func = work->function;
  params.gridDimX = work->grid;
  params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
  params.blockDimX = work->block;
  params.kernelParams = pointers;
  if (world.random().Chance(50)) {
    DO(cuGraphExecKernelNodeSetParams_v2, exec->handle, exec->nodes[i], &params);
  } else {
    DO(cuGraphKernelNodeSetParams_v2, exec->nodes[i], &params);
    // The whole graph: what was set in the executable one alone before is set back.
    for (size_t k = 0; k < exec->works.size(); ++k) {
      if (k == i || exec->works[k]->kind != Work::Kind::kKernel) continue;
      void* others[5];
      exec->works[k]->Parameters(others);
      CUDA_KERNEL_NODE_PARAMS_v2 same = {};
      same.func = exec->works[k]->function;
      same.gridDimX = exec->works[k]->grid;
      same.gridDimY = same.gridDimZ = same.blockDimY = same.blockDimZ = 1;
      same.blockDimX = exec->works[k]->block;
      same.sharedMemBytes = exec->works[k]->shared_bytes;
      same.kernelParams = others;
      DO(cuGraphKernelNodeSetParams_v2, exec->nodes[k], &same);
    }
    CUgraphExecUpdateResultInfo info = {};
    DO(cuGraphExecUpdate_v2, exec->handle, exec->graph, &info);
  }
  exec->works[i] = work;
  return true;
}

bool Destroy(World& world) {
  if (world.execs.empty()) return false;
  const ExecRef exec = world.random().Of(world.execs);
  world.journal().Note("exec %u", exec->number);
  world.DestroyExec(exec);
  return true;
}

// Made, launched and destroyed at once: a body that runs so many times.
bool Conditional(World& world) {
  if (Cu().cuGraphConditionalHandleCreate == nullptr || Cu().cuGraphAddNode_v2 == nullptr) {
    return false;
  }
  const BufferRef buffer = world.AnyBuffer([](const Buffer& b) {
    return b.OnDevice() && b.place != Place::kVariable && b.size() >= 64;
  });
  if (buffer == nullptr) return false;
  Random& random = world.random();
  world.journal().Note("buffer %u", buffer->number);
  CUmodule module = nullptr;
  DO(cuModuleLoadData, &module, kConditionKernels);
  CUfunction count_down = nullptr;
  DO(cuModuleGetFunction, &count_down, module, "count_down");
  const ModuleRef adder = world.AnyModule();
  const uint32_t rounds = random.Between(1, 5), value = static_cast<uint32_t>(random.Next());
  CUgraph graph = nullptr;
  DO(cuGraphCreate, &graph, 0);
  CUgraphConditionalHandle handle = 0;
  DO(cuGraphConditionalHandleCreate, &handle, graph, world.shared().primary, 1,
     CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handle;
  params.conditional.type = CU_GRAPH_COND_TYPE_WHILE;
  params.conditional.size = 1;
  params.conditional.ctx = world.shared().primary;
  CUgraphNode node = nullptr;
  DO(cuGraphAddNode_v2, &node, graph, nullptr, nullptr, 0, &params);
  CUgraph body = params.conditional.phGraph_out[0];
  uint64_t address = buffer->device;
  // Its first word counts; the others are added to.
  uint64_t rest = buffer->device + 4;
  uint32_t n = 63, v = value;
  void* adds[] = {&rest, &n, &v, nullptr};
  CUDA_KERNEL_NODE_PARAMS_v2 kernel = {};
  kernel.func = adder->Function("add");
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.blockDimX = 64;
  kernel.kernelParams = adds;
  CUgraphNode added = nullptr, counted = nullptr;
  DO(cuGraphAddKernelNode_v2, &added, body, nullptr, 0, &kernel);
  void* counts[] = {&handle, &address, nullptr};
  kernel.func = count_down;
  kernel.blockDimX = 1;
  kernel.kernelParams = counts;
  DO(cuGraphAddKernelNode_v2, &counted, body, &added, 1, &kernel);
  const ExecRef exec = Instantiate(world, graph);
  const StreamRef stream = world.AnyStream();
  world.Join(stream, &buffer->uses);
  if (!adder->shared) World::AddUse(stream, &adder->uses);
  DO(cuMemsetD32Async, buffer->device, rounds, 1, stream->handle);
  DO(cuGraphLaunch, exec->handle, stream->handle);
  buffer->words[0] = 0;
  for (uint32_t i = 1; i < 64; ++i) buffer->words[i] += value * rounds;
  if (random.Chance(50)) world.Verify(buffer);
  DO(cuGraphExecDestroy, exec->handle);
  DO(cuGraphDestroy, graph);
  DO(cuStreamSynchronize, stream->handle);
  DO(cuModuleUnload, module);
  return true;
}

// Memory that a graph takes and gives back.
bool OwnMemory(World& world) {
  const BufferRef buffer = world.AnyBuffer([](const Buffer& b) { return b.OnDevice(); });
  if (buffer == nullptr) return false;
  world.journal().Note("buffer %u", buffer->number);
  const uint32_t count = std::min(buffer->size(), 1024u);
  CUgraph graph = nullptr;
  DO(cuGraphCreate, &graph, 0);
  CUDA_MEM_ALLOC_NODE_PARAMS alloc = {};
  alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  alloc.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  alloc.poolProps.location.id = world.shared().device;
  alloc.bytesize = size_t{count} * 4;
  CUgraphNode taken = nullptr, filled = nullptr, copied = nullptr, given = nullptr;
  DO(cuGraphAddMemAllocNode, &taken, graph, nullptr, 0, &alloc);
  const auto value = static_cast<uint32_t>(world.random().Next());
  CUDA_MEMSET_NODE_PARAMS fill = {};
  fill.dst = alloc.dptr;
  fill.value = value;
  fill.elementSize = 4;
  fill.width = count;
  fill.height = 1;
  DO(cuGraphAddMemsetNode, &filled, graph, &taken, 1, &fill, world.shared().primary);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = alloc.dptr;
  copy.dstDevice = buffer->device;
  copy.WidthInBytes = size_t{count} * 4;
  copy.Height = copy.Depth = 1;
  DO(cuGraphAddMemcpyNode, &copied, graph, &filled, 1, &copy, world.shared().primary);
  DO(cuGraphAddMemFreeNode, &given, graph, &copied, 1, alloc.dptr);
  const ExecRef exec = Instantiate(world, graph);
  const StreamRef stream = world.AnyStream();
  world.Join(stream, &buffer->uses);
  const uint32_t times = world.random().Between(1, 3);
  for (uint32_t i = 0; i < times; ++i) DO(cuGraphLaunch, exec->handle, stream->handle);
  std::fill(buffer->words.begin(), buffer->words.begin() + count, value);
  if (world.random().Chance(50)) DO(cuStreamSynchronize, stream->handle);
  DO(cuGraphExecDestroy, exec->handle);
  DO(cuGraphDestroy, graph);
  return true;
}

// Events that a graph records, and what waits for them.
bool WithEvents(World& world) {
  const BufferRef buffer =
      world.AnyBuffer([](const Buffer& b) { return b.OnDevice() && b.size() >= 8; });
  if (buffer == nullptr) return false;
  world.journal().Note("buffer %u", buffer->number);
  const EventRef begin = world.MakeEvent(CU_EVENT_DEFAULT), end = world.MakeEvent(CU_EVENT_DEFAULT);
  CUgraph graph = nullptr;
  DO(cuGraphCreate, &graph, 0);
  const auto value = static_cast<uint32_t>(world.random().Next());
  CUDA_MEMSET_NODE_PARAMS fill = {};
  fill.dst = buffer->device;
  fill.value = value;
  fill.elementSize = 4;
  fill.width = 8;
  fill.height = 1;
  CUgraphNode begun = nullptr, filled = nullptr, ended = nullptr;
  DO(cuGraphAddEventRecordNode, &begun, graph, nullptr, 0, begin->handle);
  DO(cuGraphAddMemsetNode, &filled, graph, &begun, 1, &fill, world.shared().primary);
  DO(cuGraphAddEventRecordNode, &ended, graph, &filled, 1, end->handle);
  const ExecRef exec = Instantiate(world, graph);
  const StreamRef stream = world.AnyStream();
  world.Join(stream, &buffer->uses);
  DO(cuGraphLaunch, exec->handle, stream->handle);
  std::fill(buffer->words.begin(), buffer->words.begin() + 8, value);
  if (world.random().Chance(70)) {
    DO(cuStreamSynchronize, stream->handle);
    float ms = -1;
    DO(cuEventElapsedTime, &ms, begin->handle, end->handle);
    if (ms < 0) Fail("a graph's event is before an earlier one");
  } else {
    buffer->uses.clear();
    buffer->uses.push_back({nullptr, end});
  }
  DO(cuGraphExecDestroy, exec->handle);
  DO(cuGraphDestroy, graph);
  return true;
}

}  // namespace

std::vector<Step> GraphSteps() {
  return {{"graph.capture", 4, Capture},         {"graph.by_hand", 4, ByHand},
          {"graph.nested", 2, Nested},           {"graph.launch", 14, Launch},
          {"graph.change", 5, Change},           {"graph.destroy", 3, Destroy},
          {"graph.conditional", 2, Conditional}, {"graph.memory", 2, OwnMemory},
          {"graph.events", 3, WithEvents}};
}

}  // namespace gpuloom::sequences
