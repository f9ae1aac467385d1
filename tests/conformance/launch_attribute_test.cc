// SPDX-License-Identifier: Apache-2.0
// Launches that ask for more than a shape: all blocks at once, clusters, an early start, events; and
// the attributes of streams.
#include <string>

#include "tests/conformance/cluster_kernels.h"
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

class LaunchAttributes : public WithKernels {
 protected:
  void SetUp() override {
    if (IsDeviceBelow(90)) GTEST_SKIP() << "its kernels are made for sm_90";
    WithKernels::SetUp();
    ASSERT_EQ(Cu().cuModuleLoadData(&clusters_, kClusterKernels), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (clusters_ != nullptr) {
      EXPECT_EQ(Cu().cuModuleUnload(clusters_), CUDA_SUCCESS);
    }
    WithKernels::TearDown();
  }

  CUfunction ClusterFunction(const char* name) {
    CUfunction function = nullptr;
    EXPECT_EQ(Cu().cuModuleGetFunction(&function, clusters_, name), CUDA_SUCCESS) << name;
    return function;
  }

  template <typename... Ts>
  CUresult LaunchWith(const std::vector<CUlaunchAttribute>& attributes, CUfunction function,
                      unsigned grid, unsigned block, CUstream stream, Ts... values) {
    void* parameters[] = {&values..., nullptr};
    CUlaunchConfig config{};
    config.gridDimX = grid;
    config.blockDimX = block;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = const_cast<CUlaunchAttribute*>(attributes.data());
    config.numAttrs = static_cast<unsigned>(attributes.size());
    return Cu().cuLaunchKernelEx(&config, function, parameters, nullptr);
  }

  static CUlaunchAttribute Cluster(unsigned x, unsigned y = 1, unsigned z = 1) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {x, y, z};
    return attribute;
  }
  static CUlaunchAttribute Make(CUlaunchAttributeID id) {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    return attribute;
  }

  static std::vector<uint32_t> Exchanged(unsigned blocks, unsigned size) {
    std::vector<uint32_t> out;
    for (unsigned i = 0; i < blocks; ++i) out.push_back((i % size + 1) % size * 100 + size);
    return out;
  }

  CUmodule clusters_ = nullptr;
};

TEST_F(LaunchAttributes, CooperativeBlocksAreAllThere) {
  int processors = 0;
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_),
      CUDA_SUCCESS);
  CUfunction meet = ClusterFunction("meet");
  const auto blocks = static_cast<unsigned>(2 * processors);
  CUdeviceptr counter = Alloc(4), seen = Alloc(blocks * 4);
  ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
  void* parameters[] = {&counter, &seen};
  ASSERT_EQ(Cu().cuLaunchCooperativeKernel(meet, blocks, 1, 1, 32, 1, 1, 0, nullptr, parameters),
            CUDA_SUCCESS);
  // 32 threads of each block count.
  for (const uint32_t value : Download<uint32_t>(seen, blocks)) ASSERT_GE(value, blocks);

  ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  CUlaunchAttribute cooperative = Make(CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  cooperative.value.cooperative = 1;
  ASSERT_EQ(LaunchWith({cooperative}, meet, blocks, 32, Stream(), counter, seen), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(counter, 1)[0], blocks * 32);
}

TEST_F(LaunchAttributes, CooperativeLaunchesAreCaptured) {
  CUfunction meet = ClusterFunction("meet");
  constexpr unsigned kBlocks = 4;
  CUdeviceptr counter = Alloc(4), seen = Alloc(kBlocks * 4);
  void* parameters[] = {&counter, &seen};
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD32Async(counter, 0, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLaunchCooperativeKernel(meet, kBlocks, 1, 1, 32, 1, 1, 0, stream, parameters),
            CUDA_SUCCESS);
  CUgraph graph = nullptr;
  ASSERT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  for (int turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    for (const uint32_t value : Download<uint32_t>(seen, kBlocks)) EXPECT_GE(value, kBlocks);
    EXPECT_EQ(Download<uint32_t>(counter, 1)[0], kBlocks * 32);
  }
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(LaunchAttributes, CooperativeGridsMustFit) {
  CUfunction meet = ClusterFunction("meet");
  int processors = 0, resident = 0;
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device_),
      CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, meet, 1024, 0),
            CUDA_SUCCESS);
  CUdeviceptr counter = Alloc(4), seen = Alloc(4);
  void* parameters[] = {&counter, &seen};
  const auto blocks = static_cast<unsigned>(processors * resident + 1);
  EXPECT_EQ(Cu().cuLaunchCooperativeKernel(meet, blocks, 1, 1, 1024, 1, 1, 0, nullptr, parameters),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(LaunchAttributes, CooperativeOnEveryDeviceThereIs) {
  int has = 0;
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&has, CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH, device_),
      CUDA_SUCCESS);
  EXPECT_EQ(has, 1);
  constexpr unsigned kBlocks = 8;
  CUdeviceptr counter = Alloc(4), seen = Alloc(kBlocks * 4);
  void* parameters[] = {&counter, &seen};
  const CUstream stream = Stream();
  CUDA_LAUNCH_PARAMS good = {};
  good.function = ClusterFunction("meet");
  good.gridDimX = kBlocks;
  good.blockDimX = 32;
  good.gridDimY = good.gridDimZ = good.blockDimY = good.blockDimZ = 1;
  good.hStream = stream;
  good.kernelParams = parameters;
  const auto launch = [](std::vector<CUDA_LAUNCH_PARAMS> list, unsigned flags = 0) {
    return Cu().cuLaunchCooperativeKernelMultiDevice(list.data(),
                                                     static_cast<unsigned>(list.size()), flags);
  };
  for (unsigned flags = 0; flags < 4; ++flags) {
    ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(launch({good}, flags), CUDA_SUCCESS) << flags;
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    for (const uint32_t value : Download<uint32_t>(seen, kBlocks)) ASSERT_GE(value, kBlocks);
  }
  EXPECT_EQ(launch({good}, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch({}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuLaunchCooperativeKernelMultiDevice(nullptr, 1, 0), CUDA_ERROR_INVALID_VALUE);
  CUDA_LAUNCH_PARAMS other = good;
  other.hStream = Stream();
  EXPECT_EQ(launch({good, other}), CUDA_ERROR_INVALID_VALUE) << "two of one device";
  const auto with = [&](auto change) {
    CUDA_LAUNCH_PARAMS changed = good;
    change(&changed);
    return launch({changed});
  };
  for (const CUstream none : {CUstream{nullptr}, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD}) {
    EXPECT_EQ(with([&](CUDA_LAUNCH_PARAMS* p) { p->hStream = none; }), CUDA_ERROR_INVALID_HANDLE);
  }
  EXPECT_EQ(with([](CUDA_LAUNCH_PARAMS* p) { p->function = nullptr; }), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(with([](CUDA_LAUNCH_PARAMS* p) { p->gridDimX = 0; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](CUDA_LAUNCH_PARAMS* p) { p->blockDimX = 2048; }), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](CUDA_LAUNCH_PARAMS* p) { p->kernelParams = nullptr; }),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(with([](CUDA_LAUNCH_PARAMS* p) { p->gridDimX = 1 << 20; }),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);

  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(launch({good}), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(LaunchAttributes, ClustersShareTheirMemory) {
  const CUdeviceptr out = Alloc(64 * 4);
  CUfunction exchange = ClusterFunction("exchange");
  for (const unsigned size : {1u, 2u, 4u, 8u}) {
    ASSERT_EQ(LaunchWith({Cluster(size)}, exchange, 16, 1, nullptr, out), CUDA_SUCCESS) << size;
    EXPECT_EQ(Download<uint32_t>(out, 16), Exchanged(16, size)) << size;
  }
  // Without the attribute every block is alone.
  ASSERT_EQ(Launch(exchange, 3, 1, nullptr, out), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, 3), Exchanged(3, 1));
}

TEST_F(LaunchAttributes, LargeClustersMustBeAllowed) {
  const CUdeviceptr out = Alloc(16 * 4);
  CUfunction exchange = ClusterFunction("exchange");
  EXPECT_EQ(LaunchWith({Cluster(16)}, exchange, 16, 1, nullptr, out),
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
  ASSERT_EQ(
      Cu().cuFuncSetAttribute(exchange, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
      CUDA_SUCCESS);
  int allowed = 0;
  EXPECT_EQ(Cu().cuFuncGetAttribute(&allowed, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                                    exchange),
            CUDA_SUCCESS);
  EXPECT_EQ(allowed, 1);
  ASSERT_EQ(LaunchWith({Cluster(16)}, exchange, 16, 1, nullptr, out), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, 16), Exchanged(16, 16));
}

TEST_F(LaunchAttributes, AKernelMayBeMadeForClusters) {
  const CUdeviceptr out = Alloc(4 * 4);
  CUfunction pair = ClusterFunction("fixed_pair");
  int width = 0;
  ASSERT_EQ(Cu().cuFuncGetAttribute(&width, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, pair),
            CUDA_SUCCESS);
  EXPECT_EQ(width, 2);
  ASSERT_EQ(Launch(pair, 4, 1, nullptr, out), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, 4), (std::vector<uint32_t>{2, 102, 2, 102}));
  EXPECT_EQ(Cu().cuFuncSetAttribute(pair, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchAttributes, AKernelMayBeGivenClusters) {
  const CUdeviceptr out = Alloc(8 * 4);
  CUfunction exchange = ClusterFunction("exchange");
  for (const CUfunction_attribute attribute :
       {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
        CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH}) {
    ASSERT_EQ(
        Cu().cuFuncSetAttribute(exchange, attribute,
                                attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH ? 4 : 1),
        CUDA_SUCCESS);
  }
  ASSERT_EQ(Launch(exchange, 8, 1, nullptr, out), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, 8), Exchanged(8, 4));
}

TEST_F(LaunchAttributes, GraphsKeepTheClusters) {
  const CUdeviceptr out = Alloc(16 * 4);
  CUfunction exchange = ClusterFunction("exchange");
  CUstream stream = Stream();
  for (const bool given_to_kernel : {false, true}) {
    std::vector<CUlaunchAttribute> attributes;
    if (given_to_kernel) {
      for (const CUfunction_attribute attribute :
           {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
            CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH}) {
        ASSERT_EQ(
            Cu().cuFuncSetAttribute(exchange, attribute,
                                    attribute == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH ? 4 : 1),
            CUDA_SUCCESS);
      }
    } else {
      attributes.push_back(Cluster(2));
    }
    CUgraph graph = nullptr;
    ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
    EXPECT_EQ(LaunchWith(attributes, exchange, 16, 1, stream, out), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(out, 16), Exchanged(16, given_to_kernel ? 4 : 2));
    EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
  }
}

TEST_F(LaunchAttributes, ClustersThatFit) {
  CUfunction exchange = ClusterFunction("exchange");
  std::vector<CUlaunchAttribute> attributes = {Cluster(4)};
  CUlaunchConfig config{};
  config.gridDimX = 16;
  config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
  config.blockDimX = 128;
  config.attrs = attributes.data();
  config.numAttrs = 1;
  int clusters = 0, again = 0;
  ASSERT_EQ(Cu().cuOccupancyMaxActiveClusters(&clusters, exchange, &config), CUDA_SUCCESS);
  EXPECT_GT(clusters, 0);
  ASSERT_EQ(Cu().cuOccupancyMaxActiveClusters(&again, exchange, &config), CUDA_SUCCESS);
  EXPECT_EQ(again, clusters);
  int size = 0;
  config.numAttrs = 0;
  ASSERT_EQ(Cu().cuOccupancyMaxPotentialClusterSize(&size, exchange, &config), CUDA_SUCCESS);
  EXPECT_EQ(size, 8);
  EXPECT_EQ(Cu().cuOccupancyMaxActiveClusters(nullptr, exchange, &config),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuOccupancyMaxActiveClusters(&clusters, exchange, nullptr),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchAttributes, ProgrammaticSerializationKeepsTheResults) {
  constexpr unsigned kLaunches = 200;
  const CUdeviceptr journal = Alloc((kLaunches + 1) * 4);
  ASSERT_EQ(Cu().cuMemsetD32_v2(journal, 0, 1), CUDA_SUCCESS);
  CUlaunchAttribute early = Make(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  early.value.programmaticStreamSerializationAllowed = 1;
  CUfunction append = Function("append");
  for (unsigned i = 0; i < kLaunches; ++i) {
    ASSERT_EQ(LaunchWith({early}, append, 1, 1, nullptr, journal, i), CUDA_SUCCESS);
  }
  EXPECT_EQ(Download<uint32_t>(journal, 1)[0], kLaunches);
}

TEST_F(LaunchAttributes, HintsChangeNothing) {
  const CUdeviceptr counter = Alloc(4);
  ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
  int least = 0, greatest = 0;
  ASSERT_EQ(Cu().cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  std::vector<CUlaunchAttribute> all(1, Make(CU_LAUNCH_ATTRIBUTE_IGNORE));
  CUlaunchAttribute attribute = Make(CU_LAUNCH_ATTRIBUTE_PRIORITY);
  attribute.value.priority = greatest;
  all.push_back(attribute);
  attribute = Make(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN);
  attribute.value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  all.push_back(attribute);
  attribute = Make(CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP);
  attribute.value.memSyncDomainMap = {0, 1};
  all.push_back(attribute);
  attribute = Make(CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE);
  attribute.value.clusterSchedulingPolicyPreference = CU_CLUSTER_SCHEDULING_POLICY_SPREAD;
  all.push_back(attribute);
  attribute = Make(CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW);
  attribute.value.accessPolicyWindow = {reinterpret_cast<void*>(counter), 4, 1.0f,
                                        CU_ACCESS_PROPERTY_NORMAL, CU_ACCESS_PROPERTY_NORMAL};
  all.push_back(attribute);
  for (const CUlaunchAttribute& one : all) {
    ASSERT_EQ(LaunchWith({one}, Function("increment"), 1, 1, nullptr, counter), CUDA_SUCCESS)
        << one.id;
  }
  EXPECT_EQ(Download<uint32_t>(counter, 1)[0], all.size());
}

TEST_F(LaunchAttributes, ALaunchRecordsItsEvent) {
  CUstream stream = Stream();
  const CUdeviceptr counter = Alloc(4);
  ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  for (const CUlaunchAttributeID id :
       {CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT}) {
    CUevent event = Event(CU_EVENT_DISABLE_TIMING);
    CUlaunchAttribute attribute = Make(id);
    if (id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) {
      attribute.value.programmaticEvent.event = event;
    } else {
      attribute.value.launchCompletionEvent.event = event;
    }
    Block(stream);
    ASSERT_EQ(LaunchWith({attribute}, Function("increment"), 1, 1, stream, counter), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CUstream other = Stream();
    ASSERT_EQ(Cu().cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
    Open();
    ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuEventQuery(event), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  EXPECT_EQ(Download<uint32_t>(counter, 1)[0], 2u);
}

TEST_F(LaunchAttributes, WrongAttributes) {
  CUfunction increment = Function("increment");
  const CUdeviceptr counter = Alloc(4);
  const auto id = static_cast<CUlaunchAttributeID>(63);
  EXPECT_EQ(LaunchWith({Make(id)}, increment, 1, 1, nullptr, counter), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuLaunchKernelEx(nullptr, increment, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchAttributes, StreamsKeepTheirs) {
  CUstream stream = Stream(), second = Stream();
  CUstreamAttrValue value{};
  ASSERT_EQ(Cu().cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value),
            CUDA_SUCCESS);
  EXPECT_EQ(static_cast<int>(value.syncPolicy), -1);  // never set
  value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
  ASSERT_EQ(Cu().cuStreamSetAttribute(stream, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamCopyAttributes(second, stream), CUDA_SUCCESS);
  value = {};
  ASSERT_EQ(Cu().cuStreamGetAttribute(second, CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value),
            CUDA_SUCCESS);
  EXPECT_EQ(value.syncPolicy, CU_SYNC_POLICY_BLOCKING_SYNC);
  EXPECT_EQ(Cu().cuStreamGetAttribute(stream, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpuloom::conformance
