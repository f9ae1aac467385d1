// SPDX-License-Identifier: Apache-2.0
// What a graph shows of itself: lists, and parameters that a program keeps, changes and passes back.
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

class GraphQueries : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    memory_ = Alloc(64);
    ASSERT_EQ(Cu().cuMemsetD32_v2(memory_, 0, 16), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    stream_ = Stream();
    ASSERT_EQ(Cu().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(Cu().cuGraphDestroy(graph_), CUDA_SUCCESS);
    WithKernels::TearDown();
  }

  static CUDA_KERNEL_NODE_PARAMS Kernel(CUfunction function, void** parameters) {
    CUDA_KERNEL_NODE_PARAMS params = {};
    params.func = function;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = parameters;
    return params;
  }
  // The first word becomes `value`.
  CUgraphNode AddStore(uint32_t value) {
    CUdeviceptr address = memory_;
    void* parameters[] = {&address, &value};
    const CUDA_KERNEL_NODE_PARAMS params = Kernel(Function("store"), parameters);
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cu().cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params), CUDA_SUCCESS);
    return node;
  }
  void SetStore(CUgraphNode node, uint32_t value) {
    CUdeviceptr address = memory_;
    void* parameters[] = {&address, &value};
    const CUDA_KERNEL_NODE_PARAMS params = Kernel(Function("store"), parameters);
    ASSERT_EQ(Cu().cuGraphKernelNodeSetParams_v2(node, &params), CUDA_SUCCESS);
  }
  static CUDA_KERNEL_NODE_PARAMS Shown(CUgraphNode node) {
    CUDA_KERNEL_NODE_PARAMS shown = {};
    EXPECT_EQ(Cu().cuGraphKernelNodeGetParams_v2(node, &shown), CUDA_SUCCESS);
    return shown;
  }
  static uint32_t& ValueOf(const CUDA_KERNEL_NODE_PARAMS& shown) {
    return *static_cast<uint32_t*>(shown.kernelParams[1]);
  }
  uint32_t Launched(CUgraphExec exec) {
    EXPECT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    return Download<uint32_t>(memory_, 1)[0];
  }
  uint32_t Run(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    const uint32_t word = Launched(exec);
    EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
    return word;
  }

  CUdeviceptr memory_ = 0;
  CUgraph graph_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(GraphQueries, AnArrayHasRoomForSomething) {
  if (IsDriverBelow(12030)) GTEST_SKIP() << "CUDA 12.3 has it first";
  CUgraphNode a = nullptr, b = nullptr;
  const auto refused = [](CUresult result) { EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE); };
  for (int nodes = 0; nodes < 2; ++nodes) {
    size_t none = 0;
    CUgraphNode x = nullptr, y = nullptr;
    CUgraphEdgeData data = {};
    refused(Cu().cuGraphGetNodes(graph_, &x, &none));
    refused(Cu().cuGraphGetRootNodes(graph_, &x, &none));
    refused(Cu().cuGraphGetEdges(graph_, &x, &y, &none));
    refused(Cu().cuGraphGetEdges_v2(graph_, &x, &y, &data, &none));
    size_t one = 1;
    refused(Cu().cuGraphGetEdges_v2(graph_, &x, nullptr, nullptr, &one));
    refused(Cu().cuGraphGetEdges_v2(graph_, nullptr, nullptr, &data, &one));
    if (nodes == 0) {
      ASSERT_EQ(Cu().cuGraphAddEmptyNode(&a, graph_, nullptr, 0), CUDA_SUCCESS);
      ASSERT_EQ(Cu().cuGraphAddEmptyNode(&b, graph_, &a, 1), CUDA_SUCCESS);
    }
    for (CUgraphNode node : {a, b}) {
      refused(Cu().cuGraphNodeGetDependencies(node, &x, &none));
      refused(Cu().cuGraphNodeGetDependencies_v2(node, &x, &data, &none));
      refused(Cu().cuGraphNodeGetDependentNodes(node, &x, &none));
      refused(Cu().cuGraphNodeGetDependentNodes_v2(node, &x, &data, &none));
      refused(Cu().cuGraphNodeGetDependencies_v2(node, nullptr, &data, &one));
    }
    EXPECT_EQ(x, nullptr);
    EXPECT_EQ(none, 0u);
  }
  size_t two = 2;
  CUgraphNode nodes[2] = {b, b};
  EXPECT_EQ(Cu().cuGraphNodeGetDependencies_v2(a, nodes, nullptr, &two), CUDA_SUCCESS);
  EXPECT_EQ(two, 0u);
  EXPECT_EQ(nodes[1], nullptr);
}

TEST_F(GraphQueries, ANodesParametersStayWhereTheyWere) {
  const CUgraphNode node = AddStore(1);
  const CUDA_KERNEL_NODE_PARAMS first = Shown(node);
  EXPECT_EQ(first.extra, nullptr);
  for (uint32_t value = 2; value < 40; ++value) {
    SetStore(node, value);
    EXPECT_EQ(Shown(node).kernelParams, first.kernelParams);
    EXPECT_EQ(ValueOf(first), value);
  }
  // So what is passed back is what the node has become.
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph_, 0), CUDA_SUCCESS);
  SetStore(node, 50);
  EXPECT_EQ(Launched(exec), 39u);
  ASSERT_EQ(Cu().cuGraphExecKernelNodeSetParams_v2(exec, node, &first), CUDA_SUCCESS);
  EXPECT_EQ(Launched(exec), 50u);
  ASSERT_EQ(Cu().cuGraphKernelNodeSetParams_v2(node, &first), CUDA_SUCCESS);
  EXPECT_EQ(ValueOf(first), 50u);
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

TEST_F(GraphQueries, ANodesParametersAreWrittenInPlace) {
  const CUgraphNode node = AddStore(1);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph_, 0), CUDA_SUCCESS);
  ValueOf(Shown(node)) = 7;
  EXPECT_EQ(Run(graph_), 7u);
  CUgraph clone = nullptr;
  ASSERT_EQ(Cu().cuGraphClone(&clone, graph_), CUDA_SUCCESS);
  EXPECT_EQ(Run(clone), 7u);
  EXPECT_EQ(Launched(exec), 1u);
  CUgraphExecUpdateResultInfo info = {};
  ASSERT_EQ(Cu().cuGraphExecUpdate_v2(exec, graph_, &info), CUDA_SUCCESS);
  EXPECT_EQ(Launched(exec), 7u);
  // Another place for the value, which counts when the graph is instantiated.
  uint32_t value = 8;
  const CUDA_KERNEL_NODE_PARAMS shown = Shown(node);
  shown.kernelParams[1] = &value;
  EXPECT_EQ(ValueOf(Shown(node)), 8u);
  EXPECT_EQ(Run(graph_), 8u);
  // Set with what was shown and changed, the node has the value itself.
  ASSERT_EQ(Cu().cuGraphKernelNodeSetParams_v2(node, &shown), CUDA_SUCCESS);
  value = 9;
  EXPECT_NE(&ValueOf(Shown(node)), &value);
  EXPECT_EQ(Run(graph_), 8u);
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(clone), CUDA_SUCCESS);
}

TEST_F(GraphQueries, ANodeShowsAListWhenItWasGivenOne) {
  struct {
    CUdeviceptr address;
    uint32_t value;
  } packed = {memory_, 3};
  size_t size = 12;
  void* list[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                  CU_LAUNCH_PARAM_END};
  CUDA_KERNEL_NODE_PARAMS params = Kernel(Function("store"), nullptr);
  params.extra = list;
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cu().cuGraphAddKernelNode_v2(&node, graph_, nullptr, 0, &params), CUDA_SUCCESS);
  const CUDA_KERNEL_NODE_PARAMS shown = Shown(node);
  EXPECT_EQ(shown.kernelParams, nullptr);
  ASSERT_NE(shown.extra, nullptr);
  EXPECT_NE(shown.extra, list);
  ASSERT_EQ(Cu().cuGraphKernelNodeSetParams_v2(node, &shown), CUDA_SUCCESS);
  EXPECT_EQ(Run(graph_), 3u);
  SetStore(node, 4);
  EXPECT_NE(Shown(node).kernelParams, nullptr);
  EXPECT_EQ(Shown(node).extra, nullptr);
  EXPECT_EQ(Run(graph_), 4u);
}

TEST_F(GraphQueries, MemoryOperationsStayWhereTheyWere) {
  CUstreamBatchMemOpParams operations[2] = {};
  for (uint32_t i = 0; i < 2; ++i) {
    operations[i].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operations[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operations[i].writeValue.address = memory_ + 8 * i;
    operations[i].writeValue.value = 5 + i;
  }
  CUDA_BATCH_MEM_OP_NODE_PARAMS params = {context_, 2, operations, 0}, first = {}, shown = {};
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cu().cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, &params), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphBatchMemOpNodeGetParams(node, &first), CUDA_SUCCESS);
  EXPECT_NE(first.paramArray, operations);
  operations[0].writeValue.value = 50;
  ASSERT_EQ(Cu().cuGraphBatchMemOpNodeSetParams(node, &params), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphBatchMemOpNodeGetParams(node, &shown), CUDA_SUCCESS);
  EXPECT_EQ(shown.paramArray, first.paramArray);
  EXPECT_EQ(first.paramArray[0].writeValue.value, 50u);
  EXPECT_EQ(Run(graph_), 50u);
}

// Functions are listed as far as there is room, which may be none.
TEST_F(GraphQueries, OfAModulesFunctions) {
  if (IsDriverBelow(12040)) GTEST_SKIP() << "CUDA 12.4 has it first";
  unsigned count = 0;
  ASSERT_EQ(Cu().cuModuleGetFunctionCount(&count, module_), CUDA_SUCCESS);
  ASSERT_GT(count, 1u);
  CUfunction functions[2] = {};
  EXPECT_EQ(Cu().cuModuleEnumerateFunctions(functions, 0, module_), CUDA_SUCCESS);
  EXPECT_EQ(functions[0], nullptr);
  EXPECT_EQ(Cu().cuModuleEnumerateFunctions(functions, 1, module_), CUDA_SUCCESS);
  EXPECT_NE(functions[0], nullptr);
  EXPECT_EQ(functions[1], nullptr);
  EXPECT_EQ(Cu().cuModuleEnumerateFunctions(nullptr, 0, module_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuModuleGetFunctionCount(nullptr, module_), CUDA_ERROR_INVALID_VALUE);
  constexpr char kNone[] =
      ".version 8.0\n.target sm_70\n.address_size 64\n.visible .global .u32 x;\n";
  CUlibrary library = nullptr;
  ASSERT_EQ(Cu().cuLibraryLoadData(&library, kNone, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  CUlibrary no_options = nullptr;
  EXPECT_EQ(Cu().cuLibraryLoadData(&no_options, kNone, nullptr, nullptr, 1, nullptr, nullptr, 0),
            CUDA_ERROR_INVALID_VALUE);
  CUkernel kernels[1] = {};
  EXPECT_EQ(Cu().cuLibraryEnumerateKernels(kernels, 0, library), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuLibraryEnumerateKernels(kernels, 1, library), CUDA_SUCCESS);
  EXPECT_EQ(kernels[0], nullptr);
  EXPECT_EQ(Cu().cuLibraryEnumerateKernels(nullptr, 0, library), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuLibraryGetKernelCount(nullptr, library), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuLibraryUnload(library), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
