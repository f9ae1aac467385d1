// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

constexpr int kChain = 16;

// An instantiated graph of one empty node, or of a chain of kernels. Null with the error kept.
CUgraphExec MakeGraph(Gpu& gpu, int kernels) {
  const Driver& cu = gpu.cu();
  CUgraph graph = nullptr;
  CUgraphNode last = nullptr;
  CUgraphExec ready = nullptr;
  if (!gpu.Ok(cu.cuGraphCreate(&graph, 0), "cuGraphCreate")) return nullptr;
  if (kernels == 0) {
    gpu.Ok(cu.cuGraphAddEmptyNode(&last, graph, nullptr, 0), "cuGraphAddEmptyNode");
  }
  for (int i = 0; i < kernels && !gpu.failed(); ++i) {
    uint64_t a = 0, b = 0;
    uint32_t c = static_cast<uint32_t>(i), d = 0;
    void* parameters[] = {&a, &b, &c, &d};
    CUDA_KERNEL_NODE_PARAMS node = {};
    node.func = gpu.nothing();
    node.gridDimX = node.gridDimY = node.gridDimZ = 1;
    node.blockDimX = node.blockDimY = node.blockDimZ = 1;
    node.kernelParams = parameters;
    const CUgraphNode before = last;
    gpu.Ok(cu.cuGraphAddKernelNode_v2(&last, graph, &before, i == 0 ? 0 : 1, &node),
           "cuGraphAddKernelNode");
  }
  if (!gpu.failed()) {
    gpu.Ok(cu.cuGraphInstantiateWithFlags(&ready, graph, 0), "cuGraphInstantiate");
  }
  return ready;
}

}  // namespace

bool MeasureGraphs(Gpu& gpu, const Plan& plan) {
  const Driver& cu = gpu.cu();
  bool good = RunLine(gpu, plan, "graph_launch_empty", "ns", [&](std::vector<double>& samples) {
    const CUgraphExec graph = MakeGraph(gpu, 0);
    const int bursts = plan.Times(200, 2);
    const int length = plan.Times(64, 8);
    for (int burst = 0; burst < bursts && !gpu.failed(); ++burst) {
      CUresult worst = CUDA_SUCCESS;
      const uint64_t start_ns = NowNs();
      for (int i = 0; i < length; ++i) {
        const CUresult result = cu.cuGraphLaunch(graph, gpu.stream());
        if (result != CUDA_SUCCESS) worst = result;
      }
      samples.push_back(static_cast<double>(NowNs() - start_ns) / length);
      gpu.Ok(worst, "cuGraphLaunch");
      gpu.Synchronize();
    }
  });
  good &= RunLine(gpu, plan, "graph_launch_16_sync", "ns", [&](std::vector<double>& samples) {
    const CUgraphExec graph = MakeGraph(gpu, kChain);
    const int times = plan.Times(1000, 3);
    for (int i = 0; i < times && !gpu.failed(); ++i) {
      const uint64_t start_ns = NowNs();
      const CUresult result = cu.cuGraphLaunch(graph, gpu.stream());
      gpu.Synchronize();
      samples.push_back(static_cast<double>(NowNs() - start_ns));
      gpu.Ok(result, "cuGraphLaunch");
    }
  });
  return good;
}

}  // namespace gpuloom::bench
