// SPDX-License-Identifier: Apache-2.0
// Contexts that the program creates, used wrongly.
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class CreatedContexts : public ShimTest {
 protected:
  void SetUp() override { Begin(); }

  CUcontext Create() {
    CUcontext context = nullptr;
    EXPECT_EQ(cu_.cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    return context;
  }
};

// Otherwise two of those that are created later would have one handle.
TEST_F(CreatedContexts, AreDestroyedOnceByManyThreads) {
  constexpr int kRounds = 100;
  constexpr int kThreads = 4;
  for (int round = 0; round < kRounds; ++round) {
    const CUcontext context = Create();
    std::atomic<int> ready{0};
    std::atomic<int> successes{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        ++ready;
        while (ready != kThreads) std::this_thread::yield();
        const CUresult result = cu_.cuCtxDestroy_v2(context);
        if (result == CUDA_SUCCESS) {
          ++successes;
        } else {
          EXPECT_EQ(result, CUDA_ERROR_INVALID_CONTEXT);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(successes, 1);
  }
  // As many as it takes for the first handles to be given again.
  for (int i = 0; i < 300; ++i) EXPECT_EQ(cu_.cuCtxDestroy_v2(Create()), CUDA_SUCCESS);
  std::set<CUcontext> contexts;
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(contexts.insert(Create()).second);
}

}  // namespace
}  // namespace gpuloom
