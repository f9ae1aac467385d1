// SPDX-License-Identifier: Apache-2.0
// Green contexts that programs use wrongly: they get errors, and their sessions go on.
#include <atomic>
#include <thread>
#include <vector>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

constexpr CUdevResourceType kSm = CU_DEV_RESOURCE_TYPE_SM;

class GreenContexts : public ShimTest {
 protected:
  void SetUp() override { Begin(); }

  CUdevResourceDesc Describe() {
    CUdevResource all = {};
    CUdevResource part = {};
    unsigned count = 1;
    EXPECT_EQ(cu_.cuDeviceGetDevResource(0, &all, kSm), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuDevSmResourceSplitByCount(&part, &count, &all, nullptr, 0, 16), CUDA_SUCCESS);
    CUdevResourceDesc description = nullptr;
    EXPECT_EQ(cu_.cuDevResourceGenerateDesc(&description, &part, 1), CUDA_SUCCESS);
    return description;
  }
  CUgreenCtx Make(CUdevResourceDesc description) {
    CUgreenCtx green = nullptr;
    EXPECT_EQ(cu_.cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM),
              CUDA_SUCCESS);
    return green;
  }
};

TEST_F(GreenContexts, AreDestroyedOnceByManyThreads) {
  const CUdevResourceDesc description = Describe();
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const CUgreenCtx green = Make(description);
    std::vector<std::thread> threads;
    std::atomic<int> successes{0};
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        const CUresult result = cu_.cuGreenCtxDestroy(green);
        if (result == CUDA_SUCCESS) {
          ++successes;
        } else {
          EXPECT_EQ(result, CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(successes, 1);
  }
  Alloc(4096);  // behind what was sent
  EXPECT_EQ(node_.count("GreenDestroy"), size_t{kRounds});
  EXPECT_EQ(node_.count("StreamDestroy"), size_t{kRounds});
}

TEST_F(GreenContexts, AreDestroyedOnceBesideAReset) {
  const CUdevResourceDesc description = Describe();
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    ASSERT_NO_FATAL_FAILURE(Begin());
    const CUgreenCtx green = Make(description);
    std::thread destroyer([&] {
      const CUresult result = cu_.cuGreenCtxDestroy(green);
      EXPECT_TRUE(result == CUDA_SUCCESS || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) << result;
    });
    EXPECT_EQ(cu_.cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
    destroyer.join();
    EXPECT_EQ(cu_.cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  }
  ASSERT_NO_FATAL_FAILURE(Begin());
  Alloc(4096);
  EXPECT_EQ(node_.count("GreenDestroy"), size_t{kRounds});
  EXPECT_EQ(node_.count("StreamDestroy"), size_t{kRounds});
}

// Whatever a program writes into a resource, nothing is sent that the executor would end it for.
TEST_F(GreenContexts, ForgedResourcesAreErrors) {
  CUdevResource all = {};
  CUdevResource part = {};
  CUdevResource forged = {};
  unsigned count = 1;
  ASSERT_EQ(cu_.cuDeviceGetDevResource(0, &all, kSm), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuDevSmResourceSplitByCount(&part, &count, &all, nullptr, 0, 16), CUDA_SUCCESS);
  CUdevResourceDesc description = nullptr;
  size_t refused = 0;
  for (size_t byte = 0; byte < 48; ++byte) {
    forged = part;
    forged._internal_padding[byte] = 0x7f;
    const CUresult result = cu_.cuDevResourceGenerateDesc(&description, &forged, 1);
    if (result == CUDA_SUCCESS) continue;
    EXPECT_EQ(result, CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    ++refused;
  }
  EXPECT_GT(refused, 20u);
  forged = all;
  forged.sm.smCount = 8;
  EXPECT_EQ(cu_.cuDevSmResourceSplitByCount(&part, &count, &forged, nullptr, 0, 8),
            CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
  Make(Describe());
}

TEST_F(GreenContexts, HandlesOfDestroyedOnesSaySo) {
  CUgreenCtx green = Make(Describe());
  CUcontext context = nullptr;
  ASSERT_EQ(cu_.cuCtxFromGreenCtx(&context, green), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuGreenCtxDestroy(green), CUDA_SUCCESS);
  unsigned long long id = 0;
  EXPECT_EQ(cu_.cuGreenCtxGetId(green, &id), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cu_.cuCtxSetCurrent(context), CUDA_SUCCESS);
  // Where NVIDIA's driver crashes.
  CUdeviceptr memory = 0;
  EXPECT_EQ(cu_.cuMemAlloc_v2(&memory, 4096), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
  Alloc(4096);
}

}  // namespace
}  // namespace gpuloom
