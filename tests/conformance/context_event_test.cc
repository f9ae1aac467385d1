// SPDX-License-Identifier: Apache-2.0
// Events and whole contexts: cuCtxRecordEvent is behind all that the context's streams hold, and
// cuCtxWaitEvent before all that comes. The codes of wrong calls are those of driver 580 on an H200.
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

class ContextEvent : public WithKernels {
 protected:
  void SetUp() override {
    if (IsDriverBelow(12050)) GTEST_SKIP() << "CUDA 12.5 has it first";
    WithKernels::SetUp();
  }
  CUresult Store(CUstream stream, const volatile uint32_t* word, uint32_t value) {
    return Launch(Function("store"), 1, 1, stream, reinterpret_cast<CUdeviceptr>(word), value);
  }
  CUresult Append(CUstream stream, CUdeviceptr journal, uint32_t id) {
    return Launch(Function("append"), 1, 1, stream, journal, id);
  }
};

TEST_F(ContextEvent, ARecordIsBehindEveryStream) {
  auto* words = static_cast<volatile uint32_t*>(HostAlloc(12));
  const CUstream free_stream = Stream(), blocking = Stream(CU_STREAM_DEFAULT);
  const CUevent event = Event();
  Block(free_stream);
  ASSERT_EQ(Store(free_stream, words, 1), CUDA_SUCCESS);
  ASSERT_EQ(Store(blocking, words + 1, 2), CUDA_SUCCESS);
  ASSERT_EQ(Store(nullptr, words + 2, 3), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxRecordEvent(context_, event), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  Open();
  ASSERT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[1], 2u);
  EXPECT_EQ(words[2], 3u);
}

TEST_F(ContextEvent, WhatComesLaterIsNotInTheRecord) {
  const CUevent event = Event();
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuCtxRecordEvent(context_, event), CUDA_SUCCESS);
  Block(stream);
  EXPECT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  Open();
}

TEST_F(ContextEvent, RecordsHaveTimes) {
  const CUevent begin = Event(), end = Event();
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuCtxRecordEvent(context_, begin), CUDA_SUCCESS);
  // Nothing orders the kernel behind the record.
  ASSERT_EQ(Cu().cuEventSynchronize(begin), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("spin"), 1, 1, stream, uint64_t{2'000'000}), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxRecordEvent(context_, end), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventSynchronize(end), CUDA_SUCCESS);
  float milliseconds = 0;
  ASSERT_EQ(Cu().cuEventElapsedTime(&milliseconds, begin, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 1.5f);
}

TEST_F(ContextEvent, AWaitHoldsBackAllThatComes) {
  const CUdeviceptr journal = Alloc(64);
  ASSERT_EQ(Cu().cuMemsetD32_v2(journal, 0, 16), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  const CUstream first = Stream(), other = Stream(), blocking = Stream(CU_STREAM_DEFAULT);
  const CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  Block(first);
  ASSERT_EQ(Append(first, journal, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxWaitEvent(context_, event), CUDA_SUCCESS);
  const CUstream made_later = Stream();
  ASSERT_EQ(Append(other, journal, 2), CUDA_SUCCESS);
  ASSERT_EQ(Append(made_later, journal, 2), CUDA_SUCCESS);
  ASSERT_EQ(Append(blocking, journal, 2), CUDA_SUCCESS);
  ASSERT_EQ(Append(nullptr, journal, 2), CUDA_SUCCESS);
  ASSERT_EQ(Append(CU_STREAM_PER_THREAD, journal, 2), CUDA_SUCCESS);
  for (const CUstream stream : {other, made_later, blocking, CUstream{nullptr}}) {
    EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  }
  Open();
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(journal, 7), (std::vector<uint32_t>{6, 1, 2, 2, 2, 2, 2}));
}

// The legacy stream waits as well when no other blocking stream does, and two streams that wait
// for the same event do not wait for each other.
TEST_F(ContextEvent, AWaitOrdersNoMoreThanItMust) {
  auto* words = static_cast<volatile uint32_t*>(HostAlloc(8));
  const CUstream first = Stream(), busy = Stream(CU_STREAM_DEFAULT),
                 idle = Stream(CU_STREAM_DEFAULT);
  const CUevent event = Event(CU_EVENT_DISABLE_TIMING), done = Event(CU_EVENT_DISABLE_TIMING);
  ASSERT_EQ(Store(first, words, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(event, first), CUDA_SUCCESS);
  Block(busy);
  ASSERT_EQ(Cu().cuCtxWaitEvent(context_, event), CUDA_SUCCESS);
  ASSERT_EQ(Store(idle, words + 1, 2), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(done, idle), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventSynchronize(done), CUDA_SUCCESS);  // though `busy` still runs
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[1], 2u);
  EXPECT_EQ(Cu().cuStreamQuery(busy), CUDA_ERROR_NOT_READY);
  Open();
}

TEST_F(ContextEvent, ARecordIsWaitedForLikeAnyOther) {
  auto* words = static_cast<volatile uint32_t*>(HostAlloc(8));
  const CUstream first = Stream(), second = Stream();
  const CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  for (uint32_t round = 1; round <= 3; ++round) {
    Block(first);
    ASSERT_EQ(Store(first, words, round), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxRecordEvent(context_, event), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxWaitEvent(context_, event), CUDA_SUCCESS);
    ASSERT_EQ(Store(second, words + 1, round), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    EXPECT_EQ(words[1], round - 1);
    Open();
    ASSERT_EQ(Cu().cuStreamSynchronize(second), CUDA_SUCCESS);
    EXPECT_EQ(words[0], round);
    EXPECT_EQ(words[1], round);
  }
}

TEST_F(ContextEvent, CapturesEnd) {
  const CUstream stream = Stream();
  const CUevent event = Event();
  for (const bool record : {false, true}) {
    ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(
        record ? Cu().cuCtxRecordEvent(context_, event) : Cu().cuCtxWaitEvent(context_, event),
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CUgraph graph = nullptr;
    EXPECT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
}

TEST_F(ContextEvent, BetweenContexts) {
  const CUstream stream = Stream();
  const CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  CUcontext second = nullptr;
  ASSERT_EQ(Cu().cuCtxCreate_v2(&second, 0, device_), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  CUstream of_second = nullptr;
  CUevent event_of_second = nullptr;
  EXPECT_EQ(Cu().cuMemAlloc_v2(&memory, 4), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamCreate(&of_second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventCreate(&event_of_second, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  Block(stream);
  EXPECT_EQ(Cu().cuEventRecord(event, stream), CUDA_SUCCESS);
  // Nothing of the second context runs.
  EXPECT_EQ(Cu().cuCtxRecordEvent(second, event_of_second), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventSynchronize(event_of_second), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuCtxRecordEvent(second, event), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cu().cuCtxWaitEvent(second, event), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSetCurrent(second), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemsetD32Async(memory, 7, 1, of_second), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(of_second), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Cu().cuStreamSynchronize(of_second), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuCtxDestroy_v2(second), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
}

TEST_F(ContextEvent, WrongCalls) {
  const CUevent event = Event();
  EXPECT_EQ(Cu().cuCtxRecordEvent(nullptr, event), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Cu().cuCtxRecordEvent(context_, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cu().cuCtxWaitEvent(nullptr, event), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Cu().cuCtxWaitEvent(context_, nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cu().cuCtxWaitEvent(context_, event), CUDA_SUCCESS);  // never recorded
}

}  // namespace
}  // namespace gpuloom::conformance
