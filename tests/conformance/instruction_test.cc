// SPDX-License-Identifier: Apache-2.0
// The programs that softgpu tests its machine with, on any driver: what they expect is what a GPU
// does.
#include <cstring>
#include <string>

#include "agent/softgpu/exec/cases/instruction_cases.h"
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using softgpu::Case;

class Instructions : public WithContext {
 protected:
  void SetUp() override {
    if (IsDriverBelow(12070)) GTEST_SKIP() << "the cases are PTX 8.6";
    if (IsDeviceBelow(90)) GTEST_SKIP() << "the cases are made for sm_90";
    WithContext::SetUp();
    inputs_ = Alloc(24);
    results_ = Alloc(32 * 8);
    scratch_ = Alloc(kScratchBytes);
  }

  // Of no blocks: a launch without clusters.
  void RunCase(const Case& test, unsigned blocks_per_cluster = 0) {
    SCOPED_TRACE(test.text);
    CUmodule module = nullptr;
    ASSERT_EQ(Cu().cuModuleLoadData(&module, softgpu::ProgramOf(test, false).c_str()),
              CUDA_SUCCESS);
    CUfunction function = nullptr;
    ASSERT_EQ(Cu().cuModuleGetFunction(&function, module, "test"), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemcpyHtoD_v2(inputs_, test.in, 24), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemsetD8_v2(results_, 0, 32 * 8), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemsetD8_v2(scratch_, 0, kScratchBytes), CUDA_SUCCESS);
    CUdeviceptr inputs = inputs_, results = results_, scratch = scratch_;
    void* parameters[] = {&inputs, &results, &scratch};
    CUlaunchAttribute cluster = {};
    cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    cluster.value.clusterDim = {blocks_per_cluster, 1, 1};
    CUlaunchConfig config = {};
    config.gridDimX = blocks_per_cluster == 0 ? 1 : blocks_per_cluster;
    config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1;
    config.blockDimX = 32;
    config.sharedMemBytes = 64;
    config.attrs = &cluster;
    config.numAttrs = blocks_per_cluster == 0 ? 0 : 1;
    ASSERT_EQ(Cu().cuLaunchKernelEx(&config, function, parameters, nullptr), CUDA_SUCCESS);
    const std::vector<uint64_t> got = Download<uint64_t>(results_, 32);
    for (uint32_t lane = 0; lane < 32; ++lane) {
      const uint64_t want = test.want_of != nullptr ? test.want_of(lane) : test.want;
      EXPECT_EQ(got[lane], want) << std::hex << "lane " << lane << ": got 0x" << got[lane]
                                 << ", want 0x" << want;
      if (got[lane] != want) break;
    }
    EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
  }

  void RunAll(std::span<const Case> cases) {
    for (const Case& test : cases) RunCase(test);
  }

 private:
  static constexpr size_t kScratchBytes = softgpu::kCommonBytes + 32 * softgpu::kScratchBytes;
  CUdeviceptr inputs_ = 0, results_ = 0, scratch_ = 0;
};

TEST_F(Instructions, Integer) { RunAll(softgpu::IntegerCases()); }
TEST_F(Instructions, Bits) { RunAll(softgpu::BitCases()); }
TEST_F(Instructions, Float) { RunAll(softgpu::FloatCases()); }
TEST_F(Instructions, Half) { RunAll(softgpu::HalfCases()); }
TEST_F(Instructions, Compare) { RunAll(softgpu::CompareCases()); }
TEST_F(Instructions, Convert) { RunAll(softgpu::ConvertCases()); }
TEST_F(Instructions, Memory) { RunAll(softgpu::MemoryCases()); }
TEST_F(Instructions, Atomics) { RunAll(softgpu::AtomicCases()); }
TEST_F(Instructions, Control) { RunAll(softgpu::ControlCases()); }
TEST_F(Instructions, Warp) { RunAll(softgpu::WarpCases()); }
TEST_F(Instructions, Matrices) { RunAll(softgpu::MatrixCases()); }

// One by one: what hardware refuses ends the context.
class ClusterInstructions : public Instructions, public testing::WithParamInterface<size_t> {};
TEST_P(ClusterInstructions, ReachTheNextBlock) { RunCase(softgpu::ClusterCases()[GetParam()], 2); }
TEST_P(ClusterInstructions, ReachTheBlockItself) {
  RunCase(softgpu::ClusterCases()[GetParam()], 1);
}
INSTANTIATE_TEST_SUITE_P(Each, ClusterInstructions,
                         testing::Range(size_t{0}, softgpu::ClusterCases().size()));

}  // namespace
}  // namespace gpuloom::conformance
