// SPDX-License-Identifier: Apache-2.0
// Streams: handles, order, the legacy default stream's barrier, per-thread default streams.
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

class Streams : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    journal_ = Alloc(64);
    ASSERT_EQ(Cu().cuMemsetD32_v2(journal_, 0, 16), CUDA_SUCCESS);
    append_ = Function("append");
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  }

  void Append(CUstream stream, uint32_t id) {
    ASSERT_EQ(Launch(append_, 1, 1, stream, journal_, id), CUDA_SUCCESS);
  }

  std::vector<uint32_t> Journal() {
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    std::vector<uint32_t> words = Download<uint32_t>(journal_, 16);
    const uint32_t count = words[0] < 15 ? words[0] : 15;
    return {words.begin() + 1, words.begin() + 1 + count};
  }

  CUdeviceptr journal_ = 0;
  CUfunction append_ = nullptr;
};

using Order = std::vector<uint32_t>;

TEST_F(Streams, HandlesAndFlags) {
  CUstream stream = nullptr;
  EXPECT_EQ(Cu().cuStreamCreate(&stream, 0x100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuStreamCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  int least = 0, greatest = 0;
  ASSERT_EQ(Cu().cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, greatest),
            CUDA_SUCCESS);
  unsigned flags = 99;
  int priority = 99;
  EXPECT_EQ(Cu().cuStreamGetFlags(stream, &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_STREAM_NON_BLOCKING});
  EXPECT_EQ(Cu().cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, greatest);
  CUcontext context = nullptr;
  EXPECT_EQ(Cu().cuStreamGetCtx(stream, &context), CUDA_SUCCESS);
  EXPECT_EQ(context, context_);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(nullptr), CUDA_SUCCESS);
}

TEST_F(Streams, QueryAndSynchronize) {
  CUstream stream = Stream();
  Block(stream);
  Append(stream, 1);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{1}));
}

TEST_F(Streams, IndependentStreamsOverlap) {
  CUstream slow = Stream(), fast = Stream();
  Block(slow);
  Append(slow, 1);
  Append(fast, 2);
  ASSERT_EQ(Cu().cuStreamSynchronize(fast), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(slow), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Journal(), (Order{2, 1}));
}

TEST_F(Streams, LegacyStreamIsABarrierForBlockingStreams) {
  CUstream first = Stream(CU_STREAM_DEFAULT), second = Stream(CU_STREAM_DEFAULT);
  CUstream free_running = Stream(CU_STREAM_NON_BLOCKING);
  Block(first);
  Append(first, 1);
  Append(nullptr, 2);
  Append(second, 3);
  Append(CU_STREAM_LEGACY, 4);
  Append(free_running, 5);
  ASSERT_EQ(Cu().cuStreamSynchronize(free_running), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(Cu().cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Journal(), (Order{5, 1, 2, 3, 4}));
}

TEST_F(Streams, NonBlockingStreamDoesNotHoldTheLegacyStream) {
  CUstream free_running = Stream(CU_STREAM_NON_BLOCKING);
  Block(free_running);
  Append(free_running, 1);
  Append(nullptr, 2);
  ASSERT_EQ(Cu().cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(free_running), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Journal(), (Order{2, 1}));
}

TEST_F(Streams, PerThreadStreamsAreTheirThreads) {
  Block(CU_STREAM_PER_THREAD);
  Append(CU_STREAM_PER_THREAD, 1);
  std::thread([this] {
    ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    Append(CU_STREAM_PER_THREAD, 2);
    EXPECT_EQ(Cu().cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(Cu().cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Cu().cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{2, 1}));
}

// The per-thread default stream is a blocking stream: the legacy stream waits for it.
TEST_F(Streams, PerThreadStreamTakesPartInTheBarrier) {
  Block(CU_STREAM_PER_THREAD);
  Append(CU_STREAM_PER_THREAD, 1);
  Append(CU_STREAM_LEGACY, 2);
  EXPECT_EQ(Cu().cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Journal(), (Order{1, 2}));
}

// The entry points of nvcc --default-stream per-thread: their null stream is the thread's own.
TEST_F(Streams, PerThreadEntryPoints) {
  Block(CU_STREAM_PER_THREAD);
  CUdeviceptr journal = journal_;
  uint32_t id = 1;
  void* parameters[] = {&journal, &id};
  ASSERT_EQ(Cu().cuLaunchKernel_ptsz(append_, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery_ptsz(nullptr), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Cu().cuStreamSynchronize_ptsz(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery_ptsz(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{1}));
}

TEST_F(Streams, EventOrdersStreams) {
  CUstream before = Stream(), after = Stream();
  CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  Block(before);
  Append(before, 1);
  ASSERT_EQ(Cu().cuEventRecord(event, before), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(after, event, 0), CUDA_SUCCESS);
  Append(after, 2);
  EXPECT_EQ(Cu().cuStreamQuery(after), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Journal(), (Order{1, 2}));
}

// Destroying a stream lets its work run to the end.
TEST_F(Streams, DestroyedWithWorkInFlight) {
  CUstream stream = nullptr;
  ASSERT_EQ(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  Block(stream);
  Append(stream, 1);
  ASSERT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  Open();
  EXPECT_EQ(Journal(), (Order{1}));
}

TEST_F(Streams, ManyStreams) {
  constexpr uint32_t kStreams = 100;
  const CUdeviceptr counter = Alloc(4);
  ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
  CUfunction increment = Function("increment");
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kStreams; ++i) {
    ASSERT_EQ(Launch(increment, 1, 1, Stream(), counter), CUDA_SUCCESS) << i;
  }
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(counter, 1)[0], kStreams);
}

}  // namespace
}  // namespace gpuloom::conformance
