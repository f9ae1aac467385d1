// SPDX-License-Identifier: Apache-2.0
// Host functions: run in the tenant, one after the other, also when the session is lost.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class HostFunctions : public ShimTest {
 protected:
  void SetUp() override { Begin(); }
};

struct CallbackResult {
  std::atomic<int> calls{0};
  std::atomic<int> status{-1};
  static void CUDA_CB Record(CUstream, CUresult status, void* outcome) {
    auto* self = static_cast<CallbackResult*>(outcome);
    self->status = status;
    ++self->calls;
  }
};

void CUDA_CB Count(void* count) { ++*static_cast<std::atomic<int>*>(count); }

struct Gate {
  std::atomic<bool> entered{false};
  std::atomic<bool> open{false};
  static void CUDA_CB Pass(void* gate) {
    auto* self = static_cast<Gate*>(gate);
    self->entered = true;
    while (!self->open) std::this_thread::yield();
  }
};

TEST_F(HostFunctions, SynchronizingWaitsForThem) {
  std::atomic<int> ran{0};
  for (int i = 1; i <= 1000; ++i) {
    ASSERT_EQ(cu_.cuLaunchHostFunc(nullptr, &Count, &ran), CUDA_SUCCESS);
    if (i % 100 != 0) continue;
    ASSERT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
    EXPECT_EQ(ran, i);
  }
  EXPECT_EQ(node_.count("HostFunction"), 1000u);
}

TEST_F(HostFunctions, TheirThreadTakesNoSignals) {
  struct Asked {
    sigset_t blocked;
    std::atomic<bool> done{false};
  } asked;
  sigemptyset(&asked.blocked);
  const auto ask = [](void* data) {
    auto* self = static_cast<Asked*>(data);
    sigprocmask(SIG_SETMASK, nullptr, &self->blocked);
    self->done = true;
  };
  ASSERT_EQ(cu_.cuLaunchHostFunc(nullptr, ask, &asked), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  // ThreadSanitizer does not see the order that memory mapped twice brings.
  ASSERT_TRUE(asked.done);
  for (const int signal : {SIGTERM, SIGINT, SIGALRM, SIGPROF, SIGUSR1}) {
    EXPECT_EQ(sigismember(&asked.blocked, signal), 1) << signal;
  }
}

TEST_F(HostFunctions, CallsInsideAreNotPermitted) {
  struct Asked {
    const Driver* cuda;
    CUresult memory, context, current, synchronize;
    std::atomic<bool> done;
  } asked = {&cu_, CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS, {false}};
  const auto ask = [](void* data) {
    auto* self = static_cast<Asked*>(data);
    CUdeviceptr memory;
    CUcontext context;
    self->memory = self->cuda->cuMemAlloc_v2(&memory, 4);
    self->context = self->cuda->cuDevicePrimaryCtxRetain(&context, 0);
    self->current = self->cuda->cuCtxSetCurrent(nullptr);
    self->synchronize = self->cuda->cuStreamSynchronize(nullptr);
    self->done = true;
  };
  ASSERT_EQ(cu_.cuLaunchHostFunc(nullptr, ask, &asked), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  ASSERT_TRUE(asked.done);
  for (const CUresult result : {asked.memory, asked.context, asked.current, asked.synchronize}) {
    EXPECT_EQ(result, CUDA_ERROR_NOT_PERMITTED);
  }
}

TEST_F(HostFunctions, CallbacksHearOfTheSessionsLossAndFunctionsAreDropped) {
  Gate gate;
  std::atomic<int> ran{0};
  CallbackResult first, second;
  ASSERT_EQ(cu_.cuLaunchHostFunc(nullptr, &Gate::Pass, &gate), CUDA_SUCCESS);
  while (!gate.entered) std::this_thread::yield();
  node_.PauseReading(true);
  ASSERT_EQ(cu_.cuStreamAddCallback(nullptr, &CallbackResult::Record, &first, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuLaunchHostFunc(nullptr, &Count, &ran), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuStreamAddCallback(nullptr, &CallbackResult::Record, &second, 0), CUDA_SUCCESS);
  testing::internal::CaptureStderr();
  node_.PublishFault(CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
  gate.open = true;
  while (second.calls == 0) std::this_thread::yield();
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(first.status, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(second.status, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(ran, 0);
  CallbackResult later;
  EXPECT_EQ(cu_.cuStreamAddCallback(nullptr, &CallbackResult::Record, &later, 0),
            CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(HostFunctions, AForkedChildHasNone) {
  Gate gate;
  std::atomic<int> ran{0};
  ASSERT_EQ(cu_.cuLaunchHostFunc(nullptr, &Gate::Pass, &gate), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuLaunchHostFunc(nullptr, &Count, &ran), CUDA_SUCCESS);
  const pid_t child = fork();
  if (child == 0) {
    _exit(cu_.cuLaunchHostFunc(nullptr, &Count, &ran) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  gate.open = true;
  ASSERT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace gpuloom
