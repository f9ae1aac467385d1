// SPDX-License-Identifier: Apache-2.0
// Conditional nodes: bodies that run, or do not, or run again and again, by values that kernels set.
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

// Kernels:
//   set_from(handle, word*)      the condition becomes *word
//   count_down(handle, word*)    --*word, which the condition becomes
//   bump(word*)                  ++*word, atomically
//   is_odd(handle, word*)        the condition becomes *word & 1
//   read(from*, to*)             *to = *from
constexpr char kConditionKernels[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64

.extern .func cudaGraphSetConditional
(
  .param .b64 cudaGraphSetConditional_param_0,
  .param .b32 cudaGraphSetConditional_param_1
)
;

.visible .entry set_from(.param .u64 handle, .param .u64 word)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [handle];
  ld.param.u64 %rd2, [word];
  ld.global.u32 %r1, [%rd2];
  {
  .param .b64 param0;
  st.param.b64 [param0+0], %rd1;
  .param .b32 param1;
  st.param.b32 [param1+0], %r1;
  call.uni cudaGraphSetConditional, (param0, param1);
  }
  ret;
}

.visible .entry count_down(.param .u64 handle, .param .u64 word)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [handle];
  ld.param.u64 %rd2, [word];
  ld.global.u32 %r1, [%rd2];
  sub.s32 %r2, %r1, 1;
  st.global.u32 [%rd2], %r2;
  {
  .param .b64 param0;
  st.param.b64 [param0+0], %rd1;
  .param .b32 param1;
  st.param.b32 [param1+0], %r2;
  call.uni cudaGraphSetConditional, (param0, param1);
  }
  ret;
}

.visible .entry is_odd(.param .u64 handle, .param .u64 word)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [handle];
  ld.param.u64 %rd2, [word];
  ld.global.u32 %r1, [%rd2];
  and.b32 %r2, %r1, 1;
  {
  .param .b64 param0;
  st.param.b64 [param0+0], %rd1;
  .param .b32 param1;
  st.param.b32 [param1+0], %r2;
  call.uni cudaGraphSetConditional, (param0, param1);
  }
  ret;
}

.visible .entry bump(.param .u64 word)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
  atom.global.add.u32 %r1, [%rd1], 1;
  ret;
}

.visible .entry read(.param .u64 from, .param .u64 to)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  ld.global.u32 %r1, [%rd1];
  st.global.u32 [%rd2], %r1;
  ret;
}
)PTX";

using Nodes = std::vector<CUgraphNode>;
using Words = std::vector<uint32_t>;

class Conditional : public WithContext {
 protected:
  void SetUp() override {
    if (IsDriverBelow(12030)) GTEST_SKIP() << "CUDA 12.3 has it first";
    ASSERT_NO_FATAL_FAILURE(WithContext::SetUp());
    ASSERT_EQ(Cu().cuModuleLoadData(&module_, kConditionKernels), CUDA_SUCCESS);
    memory_ = Alloc(kWords * 4);
    ASSERT_EQ(Cu().cuMemsetD32_v2(memory_, 0, kWords), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
    stream_ = Stream();
  }
  void TearDown() override {
    if (exec_ != nullptr) {
      EXPECT_EQ(Cu().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
    }
    if (graph_ != nullptr) {
      EXPECT_EQ(Cu().cuGraphDestroy(graph_), CUDA_SUCCESS);
    }
    if (module_ != nullptr) {
      EXPECT_EQ(Cu().cuModuleUnload(module_), CUDA_SUCCESS);
    }
    WithContext::TearDown();
  }

  CUfunction Function(const char* name) {
    CUfunction function = nullptr;
    EXPECT_EQ(Cu().cuModuleGetFunction(&function, module_, name), CUDA_SUCCESS) << name;
    return function;
  }
  CUgraphConditionalHandle Handle(CUgraph graph, unsigned value = 0, unsigned flags = 0) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_EQ(Cu().cuGraphConditionalHandleCreate(&handle, graph, context_, value, flags),
              CUDA_SUCCESS);
    return handle;
  }
  CUgraphNodeParams Asked(CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                          unsigned size) const {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context_;
    return params;
  }
  struct Branches {
    CUgraphNode node = nullptr;
    CUgraph* bodies = nullptr;
  };
  Branches AddBranches(CUgraph graph, CUgraphConditionalHandle handle,
                       CUgraphConditionalNodeType type, unsigned size, const Nodes& after = {}) {
    CUgraphNodeParams params = Asked(handle, type, size);
    Branches made;
    EXPECT_EQ(
        Cu().cuGraphAddNode_v2(&made.node, graph, after.data(), nullptr, after.size(), &params),
        CUDA_SUCCESS);
    made.bodies = params.conditional.phGraph_out;
    EXPECT_NE(made.bodies, nullptr);
    return made;
  }
  template <typename... Ts>
  CUgraphNode AddKernel(CUgraph graph, const Nodes& after, const char* name, Ts... values) {
    void* parameters[] = {&values..., nullptr};
    CUDA_KERNEL_NODE_PARAMS params = {};
    params.func = Function(name);
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = parameters;
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cu().cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &params),
              CUDA_SUCCESS);
    return node;
  }
  CUdeviceptr At(size_t word) const { return memory_ + word * 4; }
  void Put(size_t word, uint32_t value) {
    ASSERT_EQ(Cu().cuMemsetD32_v2(At(word), value, 1), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  Words Get(size_t first, size_t count) { return Download<uint32_t>(At(first), count); }
  void Instantiate() {
    ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
  }
  void Run(int times = 1) {
    for (int i = 0; i < times; ++i) ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  // Word 0 is what the condition becomes, word 1 counts the loop's rounds.
  CUgraph AddLoop(CUgraphConditionalHandle handle) {
    const CUgraphNode first = AddKernel(graph_, {}, "set_from", handle, At(0));
    const Branches loop = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1, {first});
    const CUgraphNode round = AddKernel(loop.bodies[0], {}, "bump", At(1));
    AddKernel(loop.bodies[0], {round}, "count_down", handle, At(0));
    return loop.bodies[0];
  }

  static constexpr size_t kWords = 64;
  CUmodule module_ = nullptr;
  CUdeviceptr memory_ = 0;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(Conditional, AnIfRunsItsBodyWhenTheValueIsNotZero) {
  const auto handle = Handle(graph_);
  const CUgraphNode set = AddKernel(graph_, {}, "set_from", handle, At(0));
  const Branches branch = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1, {set});
  AddKernel(branch.bodies[0], {}, "bump", At(1));
  AddKernel(graph_, {branch.node}, "read", At(1), At(2));  // what is behind it waits for the body
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_EQ(Cu().cuGraphNodeGetType(branch.node, &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
  Instantiate();
  Run();
  EXPECT_EQ(Get(1, 2), (Words{0, 0}));
  Put(0, 5);
  Run(3);
  EXPECT_EQ(Get(1, 2), (Words{3, 3}));
  Put(0, 0);
  Run();
  EXPECT_EQ(Get(1, 2), (Words{3, 3}));
}

TEST_F(Conditional, AnIfOfTwoBodiesRunsTheSecondOtherwise) {
  const auto handle = Handle(graph_);
  const CUgraphNode set = AddKernel(graph_, {}, "set_from", handle, At(0));
  const Branches branch = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 2, {set});
  AddKernel(branch.bodies[0], {}, "bump", At(1));
  AddKernel(branch.bodies[1], {}, "bump", At(2));
  Instantiate();
  Run();
  Put(0, 1);
  Run(2);
  EXPECT_EQ(Get(1, 2), (Words{2, 1}));
}

TEST_F(Conditional, AWhileRunsAsLongAsItsBodySays) {
  AddLoop(Handle(graph_));
  Instantiate();
  Put(0, 10);
  Run();
  EXPECT_EQ(Get(0, 2), (Words{0, 10}));
  Run();  // the value is 0 from the beginning
  EXPECT_EQ(Get(0, 2), (Words{0, 10}));
  Put(0, 100);
  Run();
  EXPECT_EQ(Get(0, 2), (Words{0, 110}));
}

TEST_F(Conditional, ASwitchRunsTheBodyOfItsValue) {
  constexpr unsigned kBodies = 5;
  const auto handle = Handle(graph_);
  const CUgraphNode set = AddKernel(graph_, {}, "set_from", handle, At(0));
  const Branches branch = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_SWITCH, kBodies, {set});
  for (unsigned i = 0; i < kBodies; ++i) AddKernel(branch.bodies[i], {}, "bump", At(1 + i));
  Instantiate();
  for (const uint32_t value : {3u, 0u, 4u, 3u, kBodies, 1000u}) {
    Put(0, value);
    Run();
  }
  EXPECT_EQ(Get(1, kBodies + 1), (Words{1, 0, 0, 2, 1, 0}));
}

TEST_F(Conditional, ADefaultIsAssignedAtEachLaunch) {
  const auto handle = Handle(graph_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  const Branches branch = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  const CUgraphNode bump = AddKernel(branch.bodies[0], {}, "bump", At(1));
  AddKernel(branch.bodies[0], {bump}, "set_from", handle, At(0));  // 0, until the next launch
  Instantiate();
  Run(4);
  EXPECT_EQ(Get(1, 1), (Words{4}));
}

// The inner handle belongs to the graph at the top, or to the body itself.
TEST_F(Conditional, NodesInBodiesHaveBodies) {
  for (const bool of_body : {false, true}) {
    const auto outer = Handle(graph_);
    const CUgraphNode set = AddKernel(graph_, {}, "set_from", outer, At(0));
    const Branches loop = AddBranches(graph_, outer, CU_GRAPH_COND_TYPE_WHILE, 1, {set});
    const auto inner = Handle(of_body ? loop.bodies[0] : graph_);
    const CUgraphNode odd = AddKernel(loop.bodies[0], {}, "is_odd", inner, At(0));
    const Branches branch = AddBranches(loop.bodies[0], inner, CU_GRAPH_COND_TYPE_IF, 2, {odd});
    AddKernel(branch.bodies[0], {}, "bump", At(1));
    AddKernel(branch.bodies[1], {}, "bump", At(2));
    AddKernel(loop.bodies[0], {branch.node}, "count_down", outer, At(0));
    Instantiate();
    Put(0, 7);
    Put(1, 0);
    Put(2, 0);
    Run();
    EXPECT_EQ(Get(0, 3), (Words{0, 4, 3})) << of_body;
    EXPECT_EQ(Cu().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
    exec_ = nullptr;
    EXPECT_EQ(Cu().cuGraphDestroy(graph_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  }
}

TEST_F(Conditional, TwoLoopsOfOneGraphGoTheirOwnWays) {
  for (const size_t word : {0, 2}) {
    const auto handle = Handle(graph_);
    const CUgraphNode set = AddKernel(graph_, {}, "set_from", handle, At(word));
    const Branches loop = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1, {set});
    const CUgraphNode round = AddKernel(loop.bodies[0], {}, "bump", At(word + 1));
    AddKernel(loop.bodies[0], {round}, "count_down", handle, At(word));
  }
  Instantiate();
  Put(0, 4);
  Put(2, 9);
  Run();
  EXPECT_EQ(Get(0, 4), (Words{0, 4, 0, 9}));
}

TEST_F(Conditional, BodiesCopyAndFillAndHaveChildGraphs) {
  CUgraph child = nullptr;
  ASSERT_EQ(Cu().cuGraphCreate(&child, 0), CUDA_SUCCESS);
  AddKernel(child, {}, "bump", At(3));
  const auto handle = Handle(graph_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  const CUgraph body = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1).bodies[0];
  CUgraphNode fill = nullptr;
  const CUDA_MEMSET_NODE_PARAMS words = {At(1), 0, 77, 4, 1, 1};
  ASSERT_EQ(Cu().cuGraphAddMemsetNode(&fill, body, nullptr, 0, &words, context_), CUDA_SUCCESS);
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = At(1);
  copy.dstDevice = At(2);
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  CUgraphNode copied = nullptr;
  ASSERT_EQ(Cu().cuGraphAddMemcpyNode(&copied, body, &fill, 1, &copy, context_), CUDA_SUCCESS);
  CUgraphNode empty = nullptr;
  ASSERT_EQ(Cu().cuGraphAddEmptyNode(&empty, body, &copied, 1), CUDA_SUCCESS);
  CUgraphNode inner = nullptr;
  ASSERT_EQ(Cu().cuGraphAddChildGraphNode(&inner, body, &empty, 1, child), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(child), CUDA_SUCCESS);
  Instantiate();
  Run(2);
  EXPECT_EQ(Get(1, 3), (Words{77, 77, 2}));
}

TEST_F(Conditional, ABodyMayBeEmpty) {
  const auto handle = Handle(graph_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  const Branches branch = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  AddKernel(graph_, {branch.node}, "bump", At(1));
  Instantiate();
  Run();
  EXPECT_EQ(Get(1, 1), (Words{1}));
}

// As PyTorch and XLA do: the node is added to the graph that is being captured, its body is captured
// in another stream meanwhile.
TEST_F(Conditional, ALoopIsCaptured) {
  CUstream other = Stream();
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph captured = nullptr;
  const CUgraphNode* after = nullptr;
  size_t count = 0;
  ASSERT_EQ(Cu().cuStreamGetCaptureInfo_v2(stream_, &status, nullptr, &captured, nullptr, nullptr),
            CUDA_SUCCESS);
  const auto handle = Handle(captured);
  ASSERT_EQ(Launch(Function("set_from"), 1, 1, stream_, handle, At(0)), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamGetCaptureInfo_v2(stream_, &status, nullptr, &captured, &after, &count),
            CUDA_SUCCESS);
  ASSERT_EQ(count, 1u);
  Branches loop = AddBranches(captured, handle, CU_GRAPH_COND_TYPE_WHILE, 1, {after[0]});
  ASSERT_EQ(Cu().cuStreamUpdateCaptureDependencies(stream_, &loop.node, 1,
                                                   CU_STREAM_SET_CAPTURE_DEPENDENCIES),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamBeginCaptureToGraph(other, loop.bodies[0], nullptr, nullptr, 0,
                                             CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("bump"), 1, 1, other, At(1)), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD32Async(At(2), 9, 1, other), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("count_down"), 1, 1, other, handle, At(0)), CUDA_SUCCESS);
  CUgraph body = nullptr;
  ASSERT_EQ(Cu().cuStreamEndCapture(other, &body), CUDA_SUCCESS);
  EXPECT_EQ(body, loop.bodies[0]);
  ASSERT_EQ(Launch(Function("bump"), 1, 1, stream_, At(3)), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamEndCapture(stream_, &captured), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec_, captured, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(captured), CUDA_SUCCESS);  // the executable graph stays
  Put(0, 6);
  Run();
  EXPECT_EQ(Get(0, 4), (Words{0, 6, 9, 1}));
}

TEST_F(Conditional, NodesOfABodyAreUpdated) {
  const auto handle = Handle(graph_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  const Branches branch = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  const CUgraphNode bump = AddKernel(branch.bodies[0], {}, "bump", At(1));
  Instantiate();
  Run();
  CUDA_KERNEL_NODE_PARAMS params = {};
  ASSERT_EQ(Cu().cuGraphKernelNodeGetParams_v2(bump, &params), CUDA_SUCCESS);
  CUdeviceptr target = At(2);
  void* values[] = {&target};
  params.kernelParams = values;
  params.extra = nullptr;
  ASSERT_EQ(Cu().cuGraphExecKernelNodeSetParams_v2(exec_, bump, &params), CUDA_SUCCESS);
  Run(2);
  EXPECT_EQ(Get(1, 3), (Words{1, 2, 0}));
  target = At(3);
  ASSERT_EQ(Cu().cuGraphKernelNodeSetParams_v2(bump, &params), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info = {};
  ASSERT_EQ(Cu().cuGraphExecUpdate_v2(exec_, graph_, &info), CUDA_SUCCESS);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  Run();
  EXPECT_EQ(Get(1, 3), (Words{1, 2, 1}));
}

TEST_F(Conditional, AGraphIsInstantiatedAgain) {
  AddLoop(Handle(graph_));
  for (uint32_t round = 1; round <= 3; ++round) {
    Instantiate();
    CUgraphExec second = nullptr;
    EXPECT_NE(Cu().cuGraphInstantiateWithFlags(&second, graph_, 0), CUDA_SUCCESS);  // one at a time
    Put(0, 5);
    Run();
    EXPECT_EQ(Get(0, 2), (Words{0, 5 * round}));
    ASSERT_EQ(Cu().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
    exec_ = nullptr;
  }
}

TEST_F(Conditional, AnExecutableGraphOutlivesItsGraph) {
  AddLoop(Handle(graph_));
  Instantiate();
  ASSERT_EQ(Cu().cuGraphDestroy(graph_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  Put(0, 3);
  ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphExecDestroy(exec_), CUDA_SUCCESS);  // what runs goes on
  exec_ = nullptr;
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Get(0, 2), (Words{0, 3}));
}

TEST_F(Conditional, ManyGraphsComeAndGo) {
  for (uint32_t i = 1; i <= 40; ++i) {
    AddLoop(Handle(graph_));
    if (i % 4 == 0) {
      Instantiate();
      Put(0, 2);
      Run();
      EXPECT_EQ(Get(0, 2), (Words{0, i / 2}));
      ASSERT_EQ(Cu().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
      exec_ = nullptr;
    }
    ASSERT_EQ(Cu().cuGraphDestroy(graph_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  }
}

TEST_F(Conditional, TwoGraphsDoNotMeet) {
  AddLoop(Handle(graph_));
  Instantiate();
  CUgraph other = nullptr;
  ASSERT_EQ(Cu().cuGraphCreate(&other, 0), CUDA_SUCCESS);
  const auto handle = Handle(other);
  const CUgraphNode set = AddKernel(other, {}, "set_from", handle, At(8));
  const Branches loop = AddBranches(other, handle, CU_GRAPH_COND_TYPE_WHILE, 1, {set});
  const CUgraphNode round = AddKernel(loop.bodies[0], {}, "bump", At(9));
  AddKernel(loop.bodies[0], {round}, "count_down", handle, At(8));
  CUgraphExec other_exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&other_exec, other, 0), CUDA_SUCCESS);
  Put(0, 50);
  Put(8, 30);
  ASSERT_EQ(Cu().cuGraphLaunch(other_exec, Stream()), CUDA_SUCCESS);
  Run();
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Get(0, 2), (Words{0, 50}));
  EXPECT_EQ(Get(8, 2), (Words{0, 30}));
  EXPECT_EQ(Cu().cuGraphExecDestroy(other_exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(other), CUDA_SUCCESS);
}

TEST_F(Conditional, WrongHandles) {
  CUgraphConditionalHandle handle = 0;
  const auto create = [&](CUgraphConditionalHandle* out, CUgraph graph, CUcontext context,
                          unsigned flags) {
    return Cu().cuGraphConditionalHandleCreate(out, graph, context, 1, flags);
  };
  EXPECT_EQ(create(&handle, graph_, context_, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(nullptr, graph_, context_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(&handle, nullptr, context_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(&handle, graph_, nullptr, 0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(handle, 0u);
}

TEST_F(Conditional, WrongNodes) {
  const auto handle = Handle(graph_);
  const auto add = [&](CUgraphNodeParams params) {
    CUgraphNode node = nullptr;
    return Cu().cuGraphAddNode_v2(&node, graph_, nullptr, nullptr, 0, &params);
  };
  EXPECT_EQ(add(Asked(handle, CU_GRAPH_COND_TYPE_WHILE, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(Asked(handle, CU_GRAPH_COND_TYPE_WHILE, 2)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(Asked(handle, CU_GRAPH_COND_TYPE_IF, 3)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(Asked(handle, CU_GRAPH_COND_TYPE_SWITCH, 0)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(add(Asked(handle, static_cast<CUgraphConditionalNodeType>(9), 1)),
            CUDA_ERROR_INVALID_VALUE);
  AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  // One node a handle.
  EXPECT_EQ(add(Asked(handle, CU_GRAPH_COND_TYPE_IF, 1)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Conditional, AnUnusedHandleKeepsAGraphFromRunning) {
  Handle(graph_);
  CUDA_GRAPH_INSTANTIATE_PARAMS params = {};
  EXPECT_EQ(Cu().cuGraphInstantiateWithParams(&exec_, graph_, &params), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(params.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
  exec_ = nullptr;
}

TEST_F(Conditional, SuchGraphsAreNeitherClonedNorChildren) {
  const auto handle = Handle(graph_);
  AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  CUgraph other = nullptr;
  EXPECT_EQ(Cu().cuGraphClone(&other, graph_), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(Cu().cuGraphCreate(&other, 0), CUDA_SUCCESS);
  CUgraphNode node = nullptr;
  EXPECT_NE(Cu().cuGraphAddChildGraphNode(&node, other, nullptr, 0, graph_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(other), CUDA_SUCCESS);
}

TEST_F(Conditional, ABodyRunsNoHostNodes) {
  const auto handle = Handle(graph_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  const CUgraph body = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1).bodies[0];
  const CUDA_HOST_NODE_PARAMS params = {[](void*) {}, nullptr};
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cu().cuGraphAddHostNode(&node, body, nullptr, 0, &params), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_ERROR_INVALID_VALUE);
  exec_ = nullptr;
  ASSERT_EQ(Cu().cuGraphDestroyNode(node), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
}

TEST_F(Conditional, ABodyIsItsNodesOwn) {
  const auto handle = Handle(graph_);
  const Branches branch = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_NE(Cu().cuGraphDestroy(branch.bodies[0]), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroyNode(branch.node), CUDA_SUCCESS);
}

TEST_F(Conditional, ChildGraphsGetConditionalNodesWhenTheyHaveTheirParent) {
  CUgraphNodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  CUgraph& child = params.graph.graph;
  ASSERT_EQ(Cu().cuGraphCreate(&child, 0), CUDA_SUCCESS);
  (void)Handle(child);
  CUgraphNode node = nullptr;
  EXPECT_EQ(Cu().cuGraphAddNode_v2(&node, graph_, nullptr, nullptr, 0, &params),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Cu().cuGraphDestroy(child), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphCreate(&child, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphAddNode_v2(&node, graph_, nullptr, nullptr, 0, &params), CUDA_SUCCESS);
  // Made for either, a handle is the uppermost graph's.
  for (CUgraph where : {graph_, child}) {
    const auto handle = Handle(where, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
    AddKernel(AddBranches(child, handle, CU_GRAPH_COND_TYPE_IF, 1).bodies[0], {}, "bump", At(0));
  }
  CUgraph clone = nullptr;
  EXPECT_EQ(Cu().cuGraphClone(&clone, graph_), CUDA_ERROR_NOT_SUPPORTED);
  Instantiate();
  Run();
  EXPECT_EQ(Get(0, 1), Words{2});
}

TEST_F(Conditional, BodiesAreCapturedWithoutAskingForThem) {
  const auto handle = Handle(graph_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraph body = AddBranches(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1).bodies[0];
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Cu().cuStreamBeginCaptureToGraph(stream_, body, nullptr, nullptr, 0,
                                               CU_STREAM_CAPTURE_MODE_GLOBAL),
              CUDA_SUCCESS);
    EXPECT_EQ(Launch(Function("bump"), 1, 1, stream_, memory_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_SUCCESS);
  }
  EXPECT_EQ(Cu().cuGraphDestroy(body), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuGraphInstantiateWithFlags(&exec_, body, 0), CUDA_ERROR_NOT_SUPPORTED);
  Instantiate();
  Run();
  EXPECT_EQ(Get(0, 1), Words{2});
}

}  // namespace
}  // namespace gpuloom::conformance
