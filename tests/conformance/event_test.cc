// SPDX-License-Identifier: Apache-2.0
// Events: states, timing, and the errors of wrong use.
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using Events = WithKernels;

TEST_F(Events, StatesOfAnEvent) {
  CUevent event = Event();
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_SUCCESS);  // never recorded: done
  EXPECT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  CUstream stream = Stream();
  Block(stream);
  ASSERT_EQ(Cu().cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_SUCCESS);
}

TEST_F(Events, RecordedAgainMeansTheLatest) {
  CUevent event = Event();
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuEventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  Block(stream);
  ASSERT_EQ(Cu().cuEventRecord(event, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
}

TEST_F(Events, ElapsedTime) {
  CUevent start = Event(), end = Event();
  CUstream stream = Stream();
  CUfunction spin = Function("spin");
  ASSERT_EQ(Launch(spin, 1, 1, stream, uint64_t{1000}), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(start, stream), CUDA_SUCCESS);
  ASSERT_EQ(Launch(spin, 1, 1, stream, uint64_t{30'000'000}), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(end, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventSynchronize(end), CUDA_SUCCESS);
  float milliseconds = -1;
  const auto elapsed = IsDriverBelow(12080) ? Cu().cuEventElapsedTime : Cu().cuEventElapsedTime_v2;
  ASSERT_EQ(elapsed(&milliseconds, start, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 28.5f);
  EXPECT_LT(milliseconds, 28'500.0f);  // which it would be in microseconds
  ASSERT_EQ(Cu().cuEventElapsedTime(&milliseconds, start, start), CUDA_SUCCESS);
  EXPECT_EQ(milliseconds, 0.0f);
}

TEST_F(Events, WrongUse) {
  if (IsDriverBelow(12080)) GTEST_SKIP() << "CUDA 12.8 has it first";
  CUevent start = Event(), untimed = Event(CU_EVENT_DISABLE_TIMING), unrecorded = Event();
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuEventRecord(start, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(untimed, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  float milliseconds = 0;
  EXPECT_EQ(Cu().cuEventElapsedTime_v2(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cu().cuEventElapsedTime_v2(&milliseconds, start, unrecorded),
            CUDA_ERROR_INVALID_HANDLE);
  Block(stream);
  CUevent end = Event();
  ASSERT_EQ(Cu().cuEventRecord(end, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventElapsedTime_v2(&milliseconds, start, end), CUDA_ERROR_NOT_READY);
  Open();
  CUevent none = nullptr;
  EXPECT_EQ(Cu().cuEventCreate(&none, 0x100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuEventCreate(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
}

// A wait refers to the record before it, not to a later one.
TEST_F(Events, WaitTakesTheRecordBeforeIt) {
  CUstream first = Stream(), second = Stream();
  CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  ASSERT_EQ(Cu().cuEventRecord(event, first), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(second, event, 0), CUDA_SUCCESS);
  Block(first);
  ASSERT_EQ(Cu().cuEventRecord(event, first), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(second), CUDA_SUCCESS);  // would hang on the later record
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  Open();
}

TEST_F(Events, DestroyedWhileRecorded) {
  CUevent event = nullptr;
  ASSERT_EQ(Cu().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  CUstream stream = Stream(), waiting = Stream();
  Block(stream);
  ASSERT_EQ(Cu().cuEventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(waiting, event, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Cu().cuStreamSynchronize(waiting), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
