// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "agent/softgpu/testing/built_driver.h"

namespace gpuloom::softgpu {
namespace {

// A host function that holds its stream until the test opens it.
class Gate {
 public:
  static void Pass(void* gate) { static_cast<Gate*>(gate)->Wait(); }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

void Set(void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }

class StreamTest : public DriverTest {
 protected:
  CUstream Make(unsigned flags = CU_STREAM_DEFAULT) {
    CUstream stream = nullptr;
    EXPECT_EQ(Cuda().cuStreamCreate(&stream, flags), CUDA_SUCCESS);
    return stream;
  }
  CUevent MakeEvent(unsigned flags = CU_EVENT_DEFAULT) {
    CUevent event = nullptr;
    EXPECT_EQ(Cuda().cuEventCreate(&event, flags), CUDA_SUCCESS);
    return event;
  }
};

TEST_F(StreamTest, StreamsRunSideBySide) {
  const CUstream first = Make();
  const CUstream second = Make();
  Gate gate;
  std::atomic<bool> ran{false};
  ASSERT_EQ(Cuda().cuLaunchHostFunc(first, Gate::Pass, &gate), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuLaunchHostFunc(second, Set, &ran), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_TRUE(ran);
  EXPECT_EQ(Cuda().cuStreamQuery(first), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Cuda().cuStreamQuery(second), CUDA_SUCCESS);
  gate.Open();
  EXPECT_EQ(Cuda().cuStreamSynchronize(first), CUDA_SUCCESS);
}

TEST_F(StreamTest, TheLegacyStreamIsABarrierForBlockingStreams) {
  const CUstream before = Make();
  const CUstream after = Make();
  const CUstream apart = Make(CU_STREAM_NON_BLOCKING);
  Gate gate;
  std::atomic<bool> legacy_ran{false};
  std::atomic<bool> after_ran{false};
  std::atomic<bool> apart_ran{false};
  ASSERT_EQ(Cuda().cuLaunchHostFunc(before, Gate::Pass, &gate), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuLaunchHostFunc(nullptr, Set, &legacy_ran), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuLaunchHostFunc(after, Set, &after_ran), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuLaunchHostFunc(apart, Set, &apart_ran), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(apart), CUDA_SUCCESS);
  EXPECT_TRUE(apart_ran);
  EXPECT_EQ(Cuda().cuStreamQuery(after), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Cuda().cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(legacy_ran);
  EXPECT_FALSE(after_ran);
  gate.Open();
  EXPECT_EQ(Cuda().cuStreamSynchronize(after), CUDA_SUCCESS);
  EXPECT_TRUE(legacy_ran);
  EXPECT_TRUE(after_ran);
}

TEST_F(StreamTest, EachThreadHasItsOwnDefaultStream) {
  Gate gate;
  ASSERT_EQ(Cuda().cuLaunchHostFunc_ptsz(nullptr, Gate::Pass, &gate), CUDA_SUCCESS);
  std::thread([&] {
    ASSERT_EQ(Cuda().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    std::atomic<bool> ran{false};
    EXPECT_EQ(Cuda().cuLaunchHostFunc_ptsz(nullptr, Set, &ran), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
    EXPECT_TRUE(ran);
  }).join();
  EXPECT_EQ(Cuda().cuStreamQuery_ptsz(nullptr), CUDA_ERROR_NOT_READY);
  gate.Open();
  EXPECT_EQ(Cuda().cuStreamSynchronize_ptsz(nullptr), CUDA_SUCCESS);
}

TEST_F(StreamTest, EventsOrderStreams) {
  const CUstream first = Make(CU_STREAM_NON_BLOCKING);
  const CUstream second = Make(CU_STREAM_NON_BLOCKING);
  const CUevent event = MakeEvent();
  Gate gate;
  std::atomic<bool> ran{false};
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_SUCCESS);  // never recorded
  ASSERT_EQ(Cuda().cuLaunchHostFunc(first, Gate::Pass, &gate), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuLaunchHostFunc(second, Set, &ran), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Cuda().cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  EXPECT_FALSE(ran);
  // Destroying the event does not disturb who waits for it.
  EXPECT_EQ(Cuda().cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  gate.Open();
  EXPECT_EQ(Cuda().cuStreamSynchronize(second), CUDA_SUCCESS);
  EXPECT_TRUE(ran);
}

TEST_F(StreamTest, EventsMeasureTime) {
  const CUstream stream = Make();
  const CUevent start = MakeEvent();
  const CUevent end = MakeEvent();
  float milliseconds = -1;
  EXPECT_EQ(Cuda().cuEventElapsedTime_v2(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
  const CUdeviceptr pointer = Allocate(64 << 20);
  ASSERT_EQ(Cuda().cuEventRecord(start, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD8Async(pointer, 1, 64 << 20, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventRecord(end, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventSynchronize(end), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuEventElapsedTime_v2(&milliseconds, start, end), CUDA_SUCCESS);
  EXPECT_GT(milliseconds, 0.01f);
  EXPECT_LT(milliseconds, 60000.0f);
  const CUevent untimed = MakeEvent(CU_EVENT_DISABLE_TIMING);
  ASSERT_EQ(Cuda().cuEventRecord(untimed, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventElapsedTime_v2(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(StreamTest, WorkOfADestroyedStreamStillRuns) {
  const CUstream stream = Make();
  Gate gate;
  std::atomic<bool> ran{false};
  ASSERT_EQ(Cuda().cuLaunchHostFunc(stream, Gate::Pass, &gate), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuLaunchHostFunc(stream, Set, &ran), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamDestroy_v2(stream), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cuda().cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
  gate.Open();
  EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(ran);
}

TEST_F(StreamTest, HostFunctionsMayNotCallCuda) {
  static CUresult seen = CUDA_SUCCESS;
  const CUstream stream = Make();
  ASSERT_EQ(Cuda().cuLaunchHostFunc(
                stream, [](void*) { seen = Cuda().cuCtxSynchronize(); }, nullptr),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(seen, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(StreamTest, CallbacksLearnTheirStream) {
  static CUstream seen = nullptr;
  static CUresult status = CUDA_ERROR_UNKNOWN;
  const CUstream stream = Make();
  const auto callback = [](CUstream from, CUresult result, void*) {
    seen = from;
    status = result;
  };
  ASSERT_EQ(Cuda().cuStreamAddCallback(stream, callback, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(seen, stream);
  EXPECT_EQ(status, CUDA_SUCCESS);
}

TEST_F(StreamTest, StreamsTellAboutThemselves) {
  int least = 0;
  int greatest = 0;
  ASSERT_EQ(Cuda().cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100), CUDA_SUCCESS);
  int priority = 1;
  unsigned flags = 0;
  CUcontext context = nullptr;
  unsigned long long first_id = 0;
  unsigned long long second_id = 0;
  EXPECT_EQ(Cuda().cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(Cuda().cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(Cuda().cuStreamGetCtx(stream, &context), CUDA_SUCCESS);
  EXPECT_EQ(context, context_);
  EXPECT_EQ(Cuda().cuStreamGetId(stream, &first_id), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamGetId(Make(), &second_id), CUDA_SUCCESS);
  EXPECT_NE(first_id, second_id);
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  EXPECT_EQ(Cuda().cuStreamIsCapturing(stream, &capture), CUDA_SUCCESS);
  EXPECT_EQ(capture, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(Cuda().cuStreamCreate(&stream, 64), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamTest, PinnedCopiesAreAsynchronous) {
  const CUstream stream = Make();
  void* host = nullptr;
  ASSERT_EQ(Cuda().cuMemHostAlloc(&host, 4096, 0), CUDA_SUCCESS);
  const CUdeviceptr pointer = Allocate(4096);
  ASSERT_EQ(Cuda().cuMemsetD8_v2(pointer, 7, 4096), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  Gate gate;
  ASSERT_EQ(Cuda().cuLaunchHostFunc(stream, Gate::Pass, &gate), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpyDtoHAsync_v2(host, pointer, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<char*>(host)[0], 0);
  gate.Open();
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<char*>(host)[4095], 7);
  EXPECT_EQ(Cuda().cuMemFreeHost(host), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::softgpu
