// SPDX-License-Identifier: Apache-2.0
// Launches and occupancy.
#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

struct Kernels {
  CUmodule module = nullptr;
  CUfunction increment = nullptr;  // one pointer
  CUfunction reverse = nullptr;    // dynamic shared memory
  CUdeviceptr counter = 0;
  bool Load(Calls& c) {
    const Driver& cu = Cu();
    return c.Has("cuModuleLoadData", cu.cuModuleLoadData(&module, kKernels)) &&
           c.Has("cuModuleGetFunction", cu.cuModuleGetFunction(&increment, module, "increment")) &&
           c.Has("cuModuleGetFunction", cu.cuModuleGetFunction(&reverse, module, "reverse")) &&
           c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&counter, 4096));
  }
};

struct Dimensions {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
};

CUlaunchConfig Config(const Dimensions& d, CUlaunchAttribute* attributes, unsigned count) {
  CUlaunchConfig config{};
  config.gridDimX = d.grid[0];
  config.gridDimY = d.grid[1];
  config.gridDimZ = d.grid[2];
  config.blockDimX = d.block[0];
  config.blockDimY = d.block[1];
  config.blockDimZ = d.block[2];
  config.sharedMemBytes = d.shared_bytes;
  config.attrs = attributes;
  config.numAttrs = count;
  return config;
}

}  // namespace

void WrongLaunches(Calls& c, const Place&) {
  const Driver& cu = Cu();
  Kernels k;
  c("cuLaunchKernel of none",
    [&] { return cu.cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); });
  c("cuLaunchHostFunc of none", [&] { return cu.cuLaunchHostFunc(nullptr, nullptr, nullptr); });
  c("cuLaunchKernelEx without a configuration",
    [&] { return cu.cuLaunchKernelEx(nullptr, nullptr, nullptr, nullptr); });
  if (!k.Load(c)) return;
  void* values[] = {&k.counter};
  const auto launch = [&](const Dimensions& d) {
    return cu.cuLaunchKernel(k.increment, d.grid[0], d.grid[1], d.grid[2], d.block[0], d.block[1],
                             d.block[2], d.shared_bytes, nullptr, values, nullptr);
  };
  c("cuLaunchKernel of a grid of width 0", [&] { return launch({.grid = {0, 1, 1}}); });
  c("cuLaunchKernel of a grid of height 0", [&] { return launch({.grid = {1, 0, 1}}); });
  c("cuLaunchKernel of a grid of depth 0", [&] { return launch({.grid = {1, 1, 0}}); });
  c("cuLaunchKernel of a block of width 0", [&] { return launch({.block = {0, 1, 1}}); });
  c("cuLaunchKernel of a block of height 0", [&] { return launch({.block = {1, 0, 1}}); });
  c("cuLaunchKernel of a block of depth 0", [&] { return launch({.block = {1, 1, 0}}); });
  c("cuLaunchKernel of a grid of width 2^31", [&] { return launch({.grid = {1u << 31, 1, 1}}); });
  c("cuLaunchKernel of a grid of height 65536", [&] { return launch({.grid = {1, 65536, 1}}); });
  c("cuLaunchKernel of a grid of depth 65536", [&] { return launch({.grid = {1, 1, 65536}}); });
  c("cuLaunchKernel of 1025 threads", [&] { return launch({.block = {1025, 1, 1}}); });
  c("cuLaunchKernel of 32 x 64 threads", [&] { return launch({.block = {32, 64, 1}}); });
  c("cuLaunchKernel of a block of depth 65", [&] { return launch({.block = {1, 1, 65}}); });
  c("cuLaunchKernel of 64 KiB of shared memory unasked",
    [&] { return launch({.shared_bytes = 64 << 10}); });
  c("cuLaunchKernel of 1 MiB of shared memory", [&] { return launch({.shared_bytes = 1 << 20}); });
  c("cuLaunchKernel of 4 GiB of shared memory", [&] { return launch({.shared_bytes = ~0u}); });
  size_t size_bytes = sizeof(k.counter);
  c("cuLaunchKernel with both kinds of parameters", [&] {
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &k.counter, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &size_bytes, CU_LAUNCH_PARAM_END};
    return cu.cuLaunchKernel(k.increment, 1, 1, 1, 1, 1, 1, 0, nullptr, values, extra);
  });
  const auto launch_with = [&](CUlaunchAttribute* attributes, unsigned count,
                               const Dimensions& d = {}) {
    const CUlaunchConfig config = Config(d, attributes, count);
    return cu.cuLaunchKernelEx(&config, k.increment, values, nullptr);
  };
  c("cuLaunchKernelEx of no function", [&] {
    const CUlaunchConfig config = Config({}, nullptr, 0);
    return cu.cuLaunchKernelEx(&config, nullptr, values, nullptr);
  });
  c("cuLaunchKernelEx without its attributes", [&] { return launch_with(nullptr, 1); });
  c("cuLaunchKernelEx of a grid of width 0", [&] {
    return launch_with(nullptr, 0, {.grid = {0, 1, 1}});
  });
  CUlaunchAttribute attribute{};
  c("cuLaunchKernelEx with an unknown attribute", [&] {
    attribute = {};
    attribute.id = static_cast<CUlaunchAttributeID>(999);
    return launch_with(&attribute, 1);
  });
  c("cuLaunchKernelEx of a cluster of 3 in a grid of 4", [&] {
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {3, 1, 1};
    return launch_with(&attribute, 1, {.grid = {4, 1, 1}});
  });
  c("cuLaunchKernelEx of a cluster of 32", [&] {
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {32, 1, 1};
    return launch_with(&attribute, 1, {.grid = {32, 1, 1}});
  });
  c("cuLaunchKernelEx of a cluster of 16 unasked", [&] {
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {16, 1, 1};
    return launch_with(&attribute, 1, {.grid = {16, 1, 1}});
  });
  c("cuLaunchKernelEx of a cluster with a 0", [&] {
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {2, 0, 1};
    return launch_with(&attribute, 1, {.grid = {4, 1, 1}});
  });
  c("cuLaunchKernelEx with an unknown cluster policy", [&] {
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
    attribute.value.clusterSchedulingPolicyPreference = static_cast<CUclusterSchedulingPolicy>(99);
    return launch_with(&attribute, 1);
  });
  c("cuLaunchKernelEx of a priority of -1000", [&] {
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    attribute.value.priority = -1000;
    return launch_with(&attribute, 1);
  });
  c("cuLaunchKernelEx of a cooperative grid too large", [&] {
    attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    return launch_with(&attribute, 1, {.grid = {1 << 20, 1, 1}, .block = {1024, 1, 1}});
  });
  c("cuLaunchCooperativeKernel of none",
    [&] { return cu.cuLaunchCooperativeKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, values); });
  c("cuLaunchCooperativeKernel of a grid of width 0", [&] {
    return cu.cuLaunchCooperativeKernel(k.increment, 0, 1, 1, 1, 1, 1, 0, nullptr, values);
  });
  c("cuLaunchCooperativeKernel of 2048 threads", [&] {
    return cu.cuLaunchCooperativeKernel(k.increment, 1, 1, 1, 2048, 1, 1, 0, nullptr, values);
  });
  c("cuLaunchCooperativeKernel of a grid too large", [&] {
    return cu.cuLaunchCooperativeKernel(k.increment, 1 << 20, 1, 1, 1024, 1, 1, 0, nullptr, values);
  });
  c("cuFuncSetBlockShape of width 0", [&] { return cu.cuFuncSetBlockShape(k.increment, 0, 1, 1); });
  c("cuFuncSetBlockShape of 2048 threads",
    [&] { return cu.cuFuncSetBlockShape(k.increment, 2048, 1, 1); });
  c("cuLaunchGrid of width 0", [&] { return cu.cuLaunchGrid(k.increment, 0, 1); });
  c("cuLaunchGrid of none", [&] { return cu.cuLaunchGrid(nullptr, 1, 1); });
  c("cuParamSetSize of 1 MiB", [&] { return cu.cuParamSetSize(k.increment, 1 << 20); });
  c("cuFuncSetBlockShape of none", [&] { return cu.cuFuncSetBlockShape(nullptr, 1, 1, 1); });
  c("cuFuncSetBlockShape of a negative depth",
    [&] { return cu.cuFuncSetBlockShape(k.increment, 1, 1, -1); });
  c("cuFuncSetSharedSize of none", [&] { return cu.cuFuncSetSharedSize(nullptr, 0); });
  c("cuFuncSetSharedSize of 1 MiB", [&] { return cu.cuFuncSetSharedSize(k.reverse, 1 << 20); });
  c("cuParamSetSize of none", [&] { return cu.cuParamSetSize(nullptr, 8); });
  c("cuParamSetSize of 4097", [&] { return cu.cuParamSetSize(k.increment, 4097); });
  c("cuParamSetSize of 32764", [&] { return cu.cuParamSetSize(k.increment, 32764); });
  c("cuParamSetSize of 32768", [&] { return cu.cuParamSetSize(k.increment, 32768); });
  c("cuParamSeti of none", [&] { return cu.cuParamSeti(nullptr, 0, 1); });
  c("cuParamSeti at -1", [&] { return cu.cuParamSeti(k.increment, -1, 1); });
  c("cuParamSeti at 2", [&] { return cu.cuParamSeti(k.increment, 2, 1); });
  c("cuParamSeti at 1 MiB", [&] { return cu.cuParamSeti(k.increment, 1 << 20, 1); });
  c("cuParamSetf at 1 MiB", [&] { return cu.cuParamSetf(k.increment, 1 << 20, 1.0f); });
  c("cuParamSetv without a value", [&] { return cu.cuParamSetv(k.increment, 0, nullptr, 8); });
  c("cuParamSetv of nothing", [&] { return cu.cuParamSetv(k.increment, 0, &k.counter, 0); });
  c("cuLaunch of none", [&] { return cu.cuLaunch(nullptr); });
  c("cuLaunchGridAsync of a negative height",
    [&] { return cu.cuLaunchGridAsync(k.increment, 1, -1, nullptr); });
  c("cuCtxSynchronize after all of them", [&] { return cu.cuCtxSynchronize(); });
}

void WrongLaunchesApart(Calls& c, const Place&) {
  const Driver& cu = Cu();
  Kernels k;
  if (!k.Load(c)) return;
  c("cuLaunchKernel without its parameters",
    [&] { return cu.cuLaunchKernel(k.increment, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); });
  c("cuLaunchKernel with a NULL parameter", [&] {
    void* values[] = {nullptr};
    return cu.cuLaunchKernel(k.increment, 1, 1, 1, 1, 1, 1, 0, nullptr, values, nullptr);
  });
  c("cuLaunchKernel with an unknown extra option", [&] {
    void* extra[] = {reinterpret_cast<void*>(99), &k.counter, CU_LAUNCH_PARAM_END};
    return cu.cuLaunchKernel(k.increment, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra);
  });
  c("cuLaunchKernel with a buffer without its size", [&] {
    void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &k.counter, CU_LAUNCH_PARAM_END};
    return cu.cuLaunchKernel(k.increment, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra);
  });
  // Neither touches what it should not: what is not set is one thread and zeros.
  c("cuLaunch without a block", [&] {
    (void)cu.cuParamSetv(k.increment, 0, &k.counter, 8);
    (void)cu.cuParamSetSize(k.increment, 8);
    return cu.cuLaunch(k.increment);
  });
  c("cuLaunch without all of its parameters", [&] {
    CUfunction fill = nullptr;
    CUresult result = cu.cuModuleGetFunction(&fill, k.module, "fill");
    if (result != CUDA_SUCCESS) return result;
    (void)cu.cuParamSetv(fill, 0, &k.counter, 8);
    (void)cu.cuParamSetSize(fill, 8);
    return cu.cuLaunch(fill);
  });
  c("cuLaunch with more parameters than there are", [&] {
    (void)cu.cuParamSetSize(k.increment, 32);
    return cu.cuLaunch(k.increment);
  });
  c("cuLaunchKernel after its module was unloaded", [&] {
    void* values[] = {&k.counter};
    (void)cu.cuModuleUnload(k.module);
    return cu.cuLaunchKernel(k.increment, 1, 1, 1, 1, 1, 1, 0, nullptr, values, nullptr);
  });
}

void WrongOccupancy(Calls& c, const Place&) {
  const Driver& cu = Cu();
  Kernels k;
  int blocks = 0, other = 0;
  size_t size_bytes = 0;
  c("cuOccupancyMaxActiveBlocksPerMultiprocessor of none",
    [&] { return cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 32, 0); });
  if (!k.Load(c)) return;
  const auto blocks_of = [&](int threads, size_t shared_bytes, unsigned flags = 0) {
    return cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, k.reverse, threads,
                                                                   shared_bytes, flags);
  };
  c("cuOccupancyMaxActiveBlocksPerMultiprocessor without output",
    [&] { return cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, k.reverse, 32, 0); });
  c("cuOccupancyMaxActiveBlocksPerMultiprocessor of 0 threads", [&] { return blocks_of(0, 0); });
  c("cuOccupancyMaxActiveBlocksPerMultiprocessor of -1 threads", [&] { return blocks_of(-1, 0); });
  c("cuOccupancyMaxActiveBlocksPerMultiprocessor of 2048 threads",
    [&] { return blocks_of(2048, 0); });
  c("cuOccupancyMaxActiveBlocksPerMultiprocessor of 1 MiB of shared memory",
    [&] { return blocks_of(32, 1 << 20); });
  c("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags of unknown flags",
    [&] { return blocks_of(32, 0, 0x80); });
  c("cuOccupancyMaxPotentialBlockSize without outputs", [&] {
    return cu.cuOccupancyMaxPotentialBlockSize(nullptr, nullptr, k.reverse, nullptr, 0, 0);
  });
  c("cuOccupancyMaxPotentialBlockSize of none",
    [&] { return cu.cuOccupancyMaxPotentialBlockSize(&blocks, &other, nullptr, nullptr, 0, 0); });
  c("cuOccupancyMaxPotentialBlockSize of a limit of -1", [&] {
    return cu.cuOccupancyMaxPotentialBlockSize(&blocks, &other, k.reverse, nullptr, 0, -1);
  });
  c("cuOccupancyMaxPotentialBlockSize of 1 MiB of shared memory", [&] {
    return cu.cuOccupancyMaxPotentialBlockSize(&blocks, &other, k.reverse, nullptr, 1 << 20, 0);
  });
  c("cuOccupancyAvailableDynamicSMemPerBlock without output",
    [&] { return cu.cuOccupancyAvailableDynamicSMemPerBlock(nullptr, k.reverse, 1, 32); });
  c("cuOccupancyAvailableDynamicSMemPerBlock of 0 blocks",
    [&] { return cu.cuOccupancyAvailableDynamicSMemPerBlock(&size_bytes, k.reverse, 0, 32); });
  c("cuOccupancyAvailableDynamicSMemPerBlock of 1000 blocks",
    [&] { return cu.cuOccupancyAvailableDynamicSMemPerBlock(&size_bytes, k.reverse, 1000, 32); });
  c("cuOccupancyAvailableDynamicSMemPerBlock of 0 threads",
    [&] { return cu.cuOccupancyAvailableDynamicSMemPerBlock(&size_bytes, k.reverse, 1, 0); });
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {32, 1, 1};
  CUlaunchConfig config = Config({.grid = {32, 1, 1}, .block = {32, 1, 1}}, &attribute, 1);
  c("cuOccupancyMaxActiveClusters without output",
    [&] { return cu.cuOccupancyMaxActiveClusters(nullptr, k.reverse, &config); });
  c("cuOccupancyMaxActiveClusters without a configuration",
    [&] { return cu.cuOccupancyMaxActiveClusters(&blocks, k.reverse, nullptr); });
  c("cuOccupancyMaxActiveClusters of a cluster of 32",
    [&] { return cu.cuOccupancyMaxActiveClusters(&blocks, k.reverse, &config); });
  c("cuOccupancyMaxActiveClusters without a cluster", [&] {
    config.numAttrs = 0;
    return cu.cuOccupancyMaxActiveClusters(&blocks, k.reverse, &config);
  });
  c("cuOccupancyMaxPotentialClusterSize without output",
    [&] { return cu.cuOccupancyMaxPotentialClusterSize(nullptr, k.reverse, &config); });
}

}  // namespace gpuloom::conformance
