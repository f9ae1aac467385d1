// SPDX-License-Identifier: Apache-2.0
// Of which launches a program is told that updates of its managed memory may be lost. The node says that kernels whose names
// begin with "system_atomics" have atomic operations of the system's scope.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

constexpr char kKernel[] = "system_atomics";
constexpr size_t kSmall = 40;
constexpr size_t kMigrating = 1u << 20;

bool KernelTellsOfPageFaults() {
  int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  if (fd < 0) fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

class SystemAtomicsTest : public ShimTest {
 protected:
  void SetLink(int32_t native_atomics) {
    wire::Welcome welcome = node_.welcome();
    welcome.device.attributes[CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED] = native_atomics;
    node_.set_welcome(welcome);
  }
  void SetUp() override { SetLink(0); }

  CUdeviceptr Managed(size_t size_bytes) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cu_.cuMemAllocManaged(&address, size_bytes, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    return address;
  }
  // What the program is told meanwhile.
  template <typename F>
  static std::string ReportOf(F meanwhile) {
    testing::internal::CaptureStderr();
    meanwhile();
    return testing::internal::GetCapturedStderr();
  }
  std::string ReportOfLaunch(const char* kernel = kKernel) {
    return ReportOf([&] { EXPECT_EQ(Launch(Function(kernel)), CUDA_SUCCESS); });
  }
  static void ExpectNames(const std::string& log, const std::string& kernel) {
    EXPECT_EQ(
        log.find("gpuloom: kernel " + kernel + " has atomic operations of the system's scope"), 0u)
        << log;
    EXPECT_EQ(log.find('\n'), log.size() - 1) << "one line, whole: " << log;
  }
};

TEST_F(SystemAtomicsTest, AProgramIsToldOnceWhereItsManagedMemoryIsInHostMemory) {
  Begin();
  Managed(kSmall);
  ExpectNames(ReportOfLaunch(), kKernel);
  EXPECT_EQ(ReportOfLaunch(), "");
  EXPECT_EQ(ReportOfLaunch("system_atomics_too"), "");
}

TEST_F(SystemAtomicsTest, OtherKernelsAndOtherMemoryAreNotTold) {
  Begin();
  EXPECT_EQ(ReportOfLaunch(), "") << "there is no managed memory";
  void* pinned = nullptr;
  ASSERT_EQ(cu_.cuMemHostAlloc(&pinned, kSmall, 0), CUDA_SUCCESS);
  EXPECT_EQ(ReportOfLaunch(), "") << "pinned memory is as it is without gpuloom";
  const CUdeviceptr managed = Managed(kSmall);
  EXPECT_EQ(ReportOfLaunch("none"), "");
  ASSERT_EQ(cu_.cuMemFree_v2(managed), CUDA_SUCCESS);
  EXPECT_EQ(ReportOfLaunch(), "") << "it is freed";
  Managed(kSmall);
  ExpectNames(ReportOfLaunch(), kKernel);
}

TEST_F(SystemAtomicsTest, NothingIsLostOverALinkThatHasThem) {
  SetLink(1);
  Begin();
  Managed(kSmall);
  EXPECT_EQ(ReportOfLaunch(), "");
}

TEST_F(SystemAtomicsTest, WhatALinkIsNotKnownToHaveItHasNot) {
  SetLink(wire::kNoAttribute);
  Begin();
  Managed(kSmall);
  ExpectNames(ReportOfLaunch(), kKernel);
}

// Its answers end before that field, and something older is there.
TEST_F(SystemAtomicsTest, AnOlderNodeKnowsNothingOfThem) {
  wire::Welcome welcome = node_.welcome();
  welcome.minor = 7;
  node_.set_welcome(welcome);
  Begin();
  Managed(kSmall);
  EXPECT_EQ(ReportOfLaunch(), "");
}

TEST_F(SystemAtomicsTest, MemoryThatMigratesIsToldOfOnlyIfItStaysInHostMemory) {
  if (!KernelTellsOfPageFaults()) GTEST_SKIP() << "the kernel tells this process of no page faults";
  Begin();
  const CUdeviceptr managed = Managed(kMigrating);
  EXPECT_EQ(ReportOfLaunch(), "");
  EXPECT_EQ(node_.count("ManagedMap"), 1u);
  ASSERT_EQ(
      cu_.cuMemAdvise(managed, kMigrating, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU),
      CUDA_SUCCESS);
  ExpectNames(ReportOfLaunch(), kKernel);
}

TEST_F(SystemAtomicsTest, LargeMemoryThatDoesNotMigrateIsToldOf) {
  setenv("GPULOOM_MANAGED_MEMORY", "host", 1);
  Begin();
  unsetenv("GPULOOM_MANAGED_MEMORY");
  Managed(kMigrating);
  ExpectNames(ReportOfLaunch(), kKernel);
}

TEST_F(SystemAtomicsTest, LaunchesWithAttributesAreToldOf) {
  Begin();
  Managed(kSmall);
  CUlaunchAttribute priority = {};
  priority.id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
  const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, nullptr, &priority, 1};
  const CUfunction function = Function(kKernel);
  ExpectNames(ReportOf([&] {
                EXPECT_EQ(cu_.cuLaunchKernelEx(&config, function, nullptr, nullptr), CUDA_SUCCESS);
              }),
              kKernel);
}

TEST_F(SystemAtomicsTest, GraphsAreToldOfWhenTheyAreLaunched) {
  Begin();
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = Function(kKernel);
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  ASSERT_EQ(cu_.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &kernel), CUDA_SUCCESS);
  EXPECT_EQ(ReportOf([&] {
              ASSERT_EQ(cu_.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
              EXPECT_EQ(cu_.cuGraphLaunch(exec, nullptr), CUDA_SUCCESS);
            }),
            "");
  Managed(kSmall);
  ExpectNames(ReportOf([&] { EXPECT_EQ(cu_.cuGraphLaunch(exec, nullptr), CUDA_SUCCESS); }),
              kKernel);
}

TEST_F(SystemAtomicsTest, GraphsAreToldOfThatGetSuchAKernelLater) {
  Begin();
  Managed(kSmall);
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = Function("none");
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  ASSERT_EQ(cu_.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &kernel), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  const auto launch = [&] { EXPECT_EQ(cu_.cuGraphLaunch(exec, nullptr), CUDA_SUCCESS); };
  EXPECT_EQ(ReportOf(launch), "");
  kernel.func = Function(kKernel);
  ASSERT_EQ(cu_.cuGraphExecKernelNodeSetParams_v2(exec, node, &kernel), CUDA_SUCCESS);
  ExpectNames(ReportOf(launch), kKernel);
}

TEST_F(SystemAtomicsTest, ALongNameLeavesTheLineWhole) {
  Begin();
  Managed(kSmall);
  const std::string name = kKernel + std::string(5000, 'x');
  const std::string log = ReportOfLaunch(name.c_str());
  EXPECT_NE(log.find("(said once)\n"), std::string::npos) << log;
}

}  // namespace
}  // namespace gpuloom
