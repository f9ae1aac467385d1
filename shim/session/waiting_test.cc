// SPDX-License-Identifier: Apache-2.0
// Waiting, the full ring, and the ends a session can come to.
#include <chrono>
#include <thread>
#include <vector>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

using Clock = std::chrono::steady_clock;

class Waiting : public ShimTest {
 protected:
  void SetUp() override {
    Begin();
    kernel_ = Function("none");
  }
  // What a thread of the program does: its own current context, then `body`.
  template <typename Body>
  std::thread Thread(Body body) {
    return std::thread([this, body] {
      EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
      body();
    });
  }
  CUfunction kernel_ = nullptr;
};

TEST_F(Waiting, ASleepingThreadIsWokenByItsWork) {
  node_.HoldCompletions(true);
  ASSERT_EQ(Launch(kernel_), CUDA_SUCCESS);
  std::atomic<bool> done{false};
  std::thread waiter = Thread([&] {
    EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_SUCCESS);
    done = true;
  });
  node_.WaitForSleeper();
  EXPECT_FALSE(done);
  EXPECT_EQ(cu_.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  node_.HoldCompletions(false);
  waiter.join();
  EXPECT_EQ(cu_.cuStreamQuery(nullptr), CUDA_SUCCESS);
}

TEST_F(Waiting, EveryThreadIsWokenThoughOnePolls) {
  constexpr int kThreads = 8;
  for (int round = 0; round < 20; ++round) {
    node_.HoldCompletions(true);
    std::vector<std::thread> waiters;
    std::atomic<int> done{0};
    for (int i = 0; i < kThreads; ++i) {
      waiters.push_back(Thread([&] {
        CUstream stream = nullptr;
        EXPECT_EQ(cu_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
        EXPECT_EQ(Launch(kernel_, stream), CUDA_SUCCESS);
        EXPECT_EQ(cu_.cuStreamSynchronize(stream), CUDA_SUCCESS);
        EXPECT_EQ(cu_.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
        ++done;
      }));
    }
    node_.WaitForCount("Launch", static_cast<size_t>((round + 1) * kThreads));
    node_.WaitForSleeper();
    EXPECT_EQ(done, 0);
    node_.HoldCompletions(false);
    for (std::thread& waiter : waiters) waiter.join();
  }
}

// The one that polls for all takes the only ring, while another is about to poll itself: rare here, certain with a
// pause of 30 µs before the lock in Waiting::Sleep.
TEST_F(Waiting, NobodySleepsThroughARingThatAnotherHasTaken) {
  constexpr int kRounds = 4000;
  std::atomic<int> round{0};
  std::atomic<int> launched{0};
  std::atomic<int> done{0};
  const auto waits = [&] {
    CUstream stream = nullptr;
    EXPECT_EQ(cu_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    for (int mine = 1; mine <= kRounds; ++mine) {
      while (round < mine) std::this_thread::yield();
      EXPECT_EQ(Launch(kernel_, stream), CUDA_SUCCESS);
      ++launched;
      EXPECT_EQ(cu_.cuStreamSynchronize(stream), CUDA_SUCCESS);
      ++done;
    }
  };
  constexpr int kThreads = 3;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.push_back(Thread(waits));
  for (int i = 1; i <= kRounds; ++i) {
    node_.HoldCompletions(true);
    round = i;
    while (launched < kThreads * i) std::this_thread::yield();
    // The later ones go to sleep about now.
    const auto until = Clock::now() + std::chrono::microseconds(i % 50);
    while (Clock::now() < until) {
    }
    node_.HoldCompletions(false);
    const auto end = Clock::now() + std::chrono::seconds(60);
    while (done < kThreads * i && Clock::now() < end) std::this_thread::yield();
    if (done < kThreads * i) {
      fprintf(stderr, "round %d: a thread sleeps although its work is done\n", i);
      abort();  // it cannot be joined
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Waiting, ManyThreadsGetTheirOwnAnswers) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 100; ++i) {  // more than there are reply slots
    threads.push_back(Thread([&, i] {
      for (int j = 0; j < 20; ++j) {
        const CUdeviceptr address = Alloc(static_cast<size_t>(i + 1) * 100);
        size_t size = 0;
        CUdeviceptr base = 0;
        EXPECT_EQ(cu_.cuMemGetAddressRange_v2(&base, &size, address), CUDA_SUCCESS);
        EXPECT_EQ(base, address);
        EXPECT_EQ(size, static_cast<size_t>(i + 1) * 100);
        EXPECT_EQ(cu_.cuMemFree_v2(address), CUDA_SUCCESS);
      }
    }));
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Waiting, AFullRingHoldsTheProgramBackAndLosesNothing) {
  constexpr int kLaunches = 40'000;  // 2.5 MiB of records
  node_.PauseReading(true);
  std::atomic<int> sent{0};
  std::thread launcher = Thread([&] {
    for (int i = 0; i < kLaunches; ++i) {
      EXPECT_EQ(cu_.cuLaunchKernel(kernel_, static_cast<unsigned>(i + 1), 1, 1, 1, 1, 1, 0, nullptr,
                                   nullptr, nullptr),
                CUDA_SUCCESS);
      ++sent;
    }
  });
  node_.WaitForFullRing();
  EXPECT_LT(sent.load(), kLaunches);
  node_.PauseReading(false);
  launcher.join();
  EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_SUCCESS);
  const auto launches = node_.seen("Launch");
  ASSERT_EQ(launches.size(), static_cast<size_t>(kLaunches));
  for (int i = 0; i < kLaunches; ++i) {
    ASSERT_EQ(launches[static_cast<size_t>(i)].As<wire::Launch>().grid[0],
              static_cast<uint32_t>(i + 1));
  }
}

class Ending : public Waiting, public ::testing::WithParamInterface<bool> {
 protected:
  void HangUp() { GetParam() ? node_.HangUpDoorbell() : node_.HangUpConnection(); }
};
INSTANTIATE_TEST_SUITE_P(ExecutorOrScheduler, Ending, ::testing::Bool());

TEST_P(Ending, EveryWaitEndsAndStaysEnded) {
  node_.HoldCompletions(true);
  ASSERT_EQ(Launch(kernel_), CUDA_SUCCESS);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.push_back(Thread([&] { EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED); }));
  }
  node_.WaitForSleeper();
  testing::internal::CaptureStderr();
  HangUp();
  for (std::thread& waiter : waiters) waiter.join();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("session lost: the executor or its scheduler has ended"), std::string::npos);
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
  CUdeviceptr address = 0;
  EXPECT_EQ(cu_.cuMemAlloc_v2(&address, 16), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(Launch(kernel_), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(cu_.cuStreamQuery(nullptr), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_P(Ending, APollingProgramSeesIt) {
  node_.HoldCompletions(true);
  ASSERT_EQ(Launch(kernel_), CUDA_SUCCESS);
  node_.WaitForCount("Launch", 1);
  testing::internal::CaptureStderr();
  HangUp();
  CUresult result = CUDA_ERROR_NOT_READY;
  while (result == CUDA_ERROR_NOT_READY) result = cu_.cuStreamQuery(nullptr);
  EXPECT_EQ(result, CUDA_ERROR_LAUNCH_FAILED);
  testing::internal::GetCapturedStderr();
}

TEST_P(Ending, AProgramAtTheFullRingSeesIt) {
  node_.PauseReading(true);
  testing::internal::CaptureStderr();
  std::thread launcher = Thread([&] {
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS) result = Launch(kernel_);
    EXPECT_EQ(result, CUDA_ERROR_LAUNCH_FAILED);
  });
  node_.WaitForFullRing();
  HangUp();
  launcher.join();
  testing::internal::GetCapturedStderr();
}

TEST_F(Waiting, AFaultsOwnCodeIsSticky) {
  node_.HoldCompletions(true);
  ASSERT_EQ(Launch(kernel_), CUDA_SUCCESS);
  testing::internal::CaptureStderr();
  std::thread waiter =
      Thread([&] { EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS); });
  node_.WaitForSleeper();
  node_.PublishFault(CUDA_ERROR_ILLEGAL_ADDRESS);
  waiter.join();
  testing::internal::GetCapturedStderr();
  CUdeviceptr address = 0;
  EXPECT_EQ(cu_.cuMemAlloc_v2(&address, 16), CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  int count = 0;
  EXPECT_EQ(cu_.cuDeviceGetCount(&count), CUDA_SUCCESS);  // facts stay available
}

TEST_F(Waiting, ABrokenProtocolIsToldWithItsReason) {
  testing::internal::CaptureStderr();
  node_.PublishFatal(wire::Fatal::kBadHandle);
  EXPECT_EQ(Launch(kernel_), CUDA_ERROR_LAUNCH_FAILED);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find(wire::FatalText(wire::Fatal::kBadHandle)), std::string::npos) << log;
}

TEST_F(Waiting, AnAsynchronousErrorIsReturnedOnceWhereCudaSynchronises) {
  node_.PublishAsyncError(CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(kernel_), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_SUCCESS);
}

// Of host memory it waits for what it does, so nobody else tells that this has failed.
TEST_F(Waiting, AFillOfHostMemoryReturnsAnAsynchronousErrorToo) {
  void* memory = nullptr;
  ASSERT_EQ(cu_.cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP), CUDA_SUCCESS);
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  node_.PublishAsyncError(CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemsetD8_v2(address, 1, 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemsetD8_v2(address, 1, 4096), CUDA_SUCCESS);
  node_.PublishAsyncError(CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemsetD2D8_v2(address, 64, 1, 32, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemsetD2D8_v2(address, 64, 1, 32, 4), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom
