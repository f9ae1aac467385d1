// SPDX-License-Identifier: Apache-2.0
// Objects that several threads end at once: one of them does. Wrong programs, whose sessions go on: a
// context would be lost if its object were ended twice.
#include <atomic>
#include <thread>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class Destroying : public ShimTest {
 protected:
  void SetUp() override { Begin(); }

  // `make` makes an object, and returns a call that destroys it.
  template <typename Make>
  void DestroyByTwoThreads(const char* command, Make make) {
    constexpr size_t kRounds = 200;
    for (size_t round = 0; round < kRounds; ++round) {
      const auto destroy = make();
      std::atomic<int> ready{0}, done{0};
      const auto race = [&] {
        EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
        for (++ready; ready < 2;) {
        }
        done += destroy() == CUDA_SUCCESS;
      };
      std::thread first(race), second(race);
      first.join();
      second.join();
      ASSERT_EQ(done, 1);
    }
    EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(node_.count(command), kRounds);
  }
};

TEST_F(Destroying, AStreamIsForOneOfTheThreads) {
  DestroyByTwoThreads("StreamDestroy", [&] {
    CUstream stream = nullptr;
    EXPECT_EQ(cu_.cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    return [this, stream] { return cu_.cuStreamDestroy_v2(stream); };
  });
}

TEST_F(Destroying, AnEventIsForOneOfTheThreads) {
  DestroyByTwoThreads("EventDestroy", [&] {
    CUevent event = nullptr;
    EXPECT_EQ(cu_.cuEventCreate(&event, 0), CUDA_SUCCESS);
    return [this, event] { return cu_.cuEventDestroy_v2(event); };
  });
}

TEST_F(Destroying, UnloadingAModuleIsForOneOfTheThreads) {
  DestroyByTwoThreads("LibraryUnload", [&] {
    CUmodule module = nullptr;
    EXPECT_EQ(cu_.cuModuleLoadData(&module, ".version 8.0"), CUDA_SUCCESS);
    return [this, module] { return cu_.cuModuleUnload(module); };
  });
}

}  // namespace
}  // namespace gpuloom
