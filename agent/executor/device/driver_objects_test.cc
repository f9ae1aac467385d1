// SPDX-License-Identifier: Apache-2.0
// What the driver makes without waiting, and who gets it.
#include "agent/executor/device/driver_objects.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/testing/driver.h"

namespace gpuloom::executor {
namespace {

TEST(ObjectCount, AsManyAsThereHaveBeenCanBeThereAgain) {
  ObjectCount count(2);
  EXPECT_TRUE(count.HasSpare(2, 0));
  EXPECT_FALSE(count.HasSpare(2, 1));
  for (int i = 0; i < 3; ++i) count.Add();
  EXPECT_FALSE(count.HasSpare(1, 0));
  for (int i = 0; i < 3; ++i) count.Remove();
  EXPECT_TRUE(count.HasSpare(3, 0));
  EXPECT_FALSE(count.HasSpare(4, 0));
  for (int i = 0; i < 2; ++i) count.Add();
  EXPECT_TRUE(count.HasSpare(1, 0)) << "the driver keeps what it has";
  EXPECT_FALSE(count.HasSpare(2, 0));
}

class DriverObjectsTest : public ::testing::Test {
 protected:
  static constexpr size_t kMany = 960;  // of one graph
  bool HasSpare(Device::EventUse use) const { return device_.HasSpareEvent(/*timing=*/true, use); }
  void PrepareMissing() {
    const Device::Preparation missing = device_.Missing();
    ASSERT_NE(missing.events, 0u);
    device_.Prepare(missing);
    device_.OnPrepared(missing);
  }

  const Driver& driver_ = TestingDriver::Reset();
  Device device_{driver_};
};

TEST_F(DriverObjectsTest, WhatIsPromisedNobodyElseGets) {
  EXPECT_TRUE(device_.Missing().empty());
  auto first = device_.PromiseEvents(kMany);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(TestingDriver::made().events, 0);
  EXPECT_EQ(device_.PromiseEvents(kMany), nullptr) << "a fresh context makes 2,000 of them";
  EXPECT_TRUE(HasSpare(Device::EventUse::kMark)) << "those that come back go on";
  std::vector<CUevent> events(kMany / 2);
  for (CUevent& event : events) ASSERT_EQ(first->Make(&event), CUDA_SUCCESS);
  EXPECT_EQ(device_.PromiseEvents(kMany), nullptr) << "made or not";
  first.reset();
  EXPECT_EQ(device_.PromiseEvents(kMany), nullptr) << "half of the first ones are there";
  EXPECT_NE(device_.PromiseEvents(kMany / 2), nullptr) << "and half will not be made";
}

TEST_F(DriverObjectsTest, WhatIsNotThereIsPrepared) {
  const auto first = device_.PromiseEvents(kMany);
  ASSERT_NE(first, nullptr);
  ASSERT_EQ(device_.PromiseEvents(kMany), nullptr);
  ASSERT_NO_FATAL_FAILURE(PrepareMissing());
  EXPECT_EQ(TestingDriver::made().events, 0) << "only the driver's blocks stay";
  EXPECT_TRUE(device_.Missing().empty());
  EXPECT_NE(device_.PromiseEvents(kMany), nullptr);
}

TEST_F(DriverObjectsTest, GraphsWithoutEventsWaitForNone) {
  std::vector<CUevent> events(2000);
  for (CUevent& event : events) ASSERT_EQ(device_.TakeEvent(true, &event), CUDA_SUCCESS);
  EXPECT_FALSE(HasSpare(Device::EventUse::kOwn));
  EXPECT_NE(device_.PromiseEvents(0), nullptr);
}

TEST_F(DriverObjectsTest, TheLastEventsAreForMarksAndTheVeryLastForTheExecutor) {
  using enum Device::EventUse;
  CUevent event = nullptr;
  for (int i = 0; HasSpare(kKept); ++i) {
    ASSERT_LT(i, 2000);
    ASSERT_EQ(device_.TakeEvent(true, &event), CUDA_SUCCESS);
  }
  EXPECT_FALSE(device_.Missing().empty());
  int marks = 0;
  for (; HasSpare(kMark); ++marks) ASSERT_EQ(device_.TakeEvent(true, &event), CUDA_SUCCESS);
  EXPECT_GE(marks, 512) << "as many as the driver's queues take";
  EXPECT_TRUE(HasSpare(kOwn));
  device_.GiveEvent(true, event);
  EXPECT_TRUE(HasSpare(kMark)) << "that one";
  EXPECT_FALSE(HasSpare(kKept));
}

// However often they come back: with one more for programs each time, those would have them all.
TEST_F(DriverObjectsTest, Malicious_ProgramsLeaveMarksTheirs) {
  using enum Device::EventUse;
  std::vector<CUevent> marks(512);
  for (int round = 0; round < 20; ++round) {
    CUevent kept = nullptr;
    while (device_.HasSpareEvent(/*timing=*/false, kFew)) {
      ASSERT_EQ(device_.TakeEvent(false, &kept), CUDA_SUCCESS);
    }
    // Many streams are marked at a time, behind one look.
    for (CUevent& mark : marks) ASSERT_EQ(device_.TakeEvent(false, &mark), CUDA_SUCCESS);
    for (const CUevent mark : marks) device_.GiveEvent(false, mark);
  }
  EXPECT_LE(TestingDriver::made().events, 2000) << "beyond them the driver waits";
}

TEST_F(DriverObjectsTest, TheLastForProgramsAreForThoseThatHaveFew) {
  using enum Device::EventUse;
  CUevent event = nullptr;
  while (HasSpare(kKept)) ASSERT_EQ(device_.TakeEvent(true, &event), CUDA_SUCCESS);
  EXPECT_TRUE(HasSpare(kFew));
  EXPECT_EQ(device_.PromiseEvents(1), nullptr) << "graphs count as those that have many";
  CUstream stream = nullptr;
  while (device_.HasSpareStream(0, /*has_few=*/false)) {
    ASSERT_EQ(device_.TakeStream(0, &stream), CUDA_SUCCESS);
  }
  EXPECT_TRUE(device_.HasSpareStream(0, /*has_few=*/true));
  const Device::Preparation missing = device_.Missing();
  EXPECT_NE(missing.events, 0u) << "or those with many would wait for ever";
  EXPECT_NE(missing.streams, 0u);
}

// A green context has blocks of its own, and its streams are not reused.
TEST_F(DriverObjectsTest, StreamsOfAGreenContextAreCountedByThemselves) {
  const auto green = reinterpret_cast<CUgreenCtx>(uintptr_t{8});
  const auto other = reinterpret_cast<CUgreenCtx>(uintptr_t{16});
  CUstream stream = nullptr;
  int taken = 0;
  for (; device_.HasSpareGreenStream(green); ++taken) {
    ASSERT_LT(taken, 40) << "the 41st waits";
    ASSERT_EQ(device_.TakeGreenStream(green, 0, &stream), CUDA_SUCCESS);
  }
  EXPECT_GE(taken, 30);
  EXPECT_TRUE(device_.HasSpareGreenStream(other));
  EXPECT_TRUE(device_.HasSpareStream(0, /*has_few=*/true));
  const Device::Preparation missing = device_.Missing();
  EXPECT_EQ(missing.streams, 0u);
  ASSERT_EQ(missing.green, green);
  device_.Prepare(missing);
  device_.OnPrepared(missing);
  EXPECT_TRUE(device_.Missing().empty());
  EXPECT_TRUE(device_.HasSpareGreenStream(green));
}

// What goes back beyond the pool is destroyed, and the driver has room for as many again.
TEST_F(DriverObjectsTest, WhatIsDestroyedMakesRoom) {
  std::vector<CUevent> events(4000);
  for (CUevent& event : events) ASSERT_EQ(device_.TakeEvent(true, &event), CUDA_SUCCESS);
  for (const CUevent event : events) device_.GiveEvent(true, event);
  for (;;) {
    const Device::Excess excess = device_.TakeExcess();
    if (excess.empty()) break;
    device_.Destroy(excess);
  }
  EXPECT_EQ(TestingDriver::made().events, static_cast<int>(Device::kMaxIdleEvents));
  constexpr size_t kOfOthers = Device::kMaxIdleEvents + 768 + 256;
  EXPECT_NE(device_.PromiseEvents(4000 - kOfOthers), nullptr);
  EXPECT_EQ(device_.PromiseEvents(4001 - kOfOthers), nullptr);
}

// A driver that has no memory for more than so many at a time.
class RefusedObjectsTest : public ::testing::Test {
 protected:
  static Driver ThatRefuses() {
    Driver driver = TestingDriver::Reset();
    most_streams_ = 40;
    most_events_ = 2100;
    make_stream_ = driver.cuStreamCreateWithPriority;
    driver.cuStreamCreateWithPriority = [](CUstream* stream, unsigned flags, int priority) {
      const bool has_room = TestingDriver::made().streams < most_streams_;
      return has_room ? make_stream_(stream, flags, priority) : CUDA_ERROR_OUT_OF_MEMORY;
    };
    make_event_ = driver.cuEventCreate;
    driver.cuEventCreate = [](CUevent* event, unsigned flags) {
      const bool has_room = TestingDriver::made().events < most_events_;
      return has_room ? make_event_(event, flags) : CUDA_ERROR_OUT_OF_MEMORY;
    };
    return driver;
  }
  CUresult Prepare() {
    const Device::Preparation missing = device_.Missing();
    EXPECT_NE(missing.streams, 0u);
    EXPECT_NE(missing.events, 0u);
    const CUresult result = device_.Prepare(missing);
    device_.OnPrepared(missing);
    return result;
  }
  void TakeAllForPrograms() {
    CUevent event = nullptr;
    while (device_.HasSpareEvent(/*timing=*/true, Device::EventUse::kFew)) {
      ASSERT_EQ(device_.TakeEvent(true, &event), CUDA_SUCCESS);
    }
    CUstream stream = nullptr;
    while (device_.HasSpareStream(0, /*has_few=*/true)) {
      ASSERT_EQ(device_.TakeStream(0, &stream), CUDA_SUCCESS);
    }
  }

  static inline int most_streams_, most_events_;
  static inline decltype(Driver::cuStreamCreateWithPriority) make_stream_;
  static inline decltype(Driver::cuEventCreate) make_event_;
  const Driver driver_ = ThatRefuses();
  Device device_{driver_};
};

TEST_F(RefusedObjectsTest, WhatTheDriverRefusesIsNotThere) {
  ASSERT_NO_FATAL_FAILURE(TakeAllForPrograms());
  EXPECT_EQ(device_.StreamRefusal(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Prepare(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(device_.StreamRefusal(nullptr), CUDA_ERROR_OUT_OF_MEMORY);
  ASSERT_NO_FATAL_FAILURE(TakeAllForPrograms()) << "what was made is there";
  EXPECT_EQ(TestingDriver::made().streams, 40 - 8);
  EXPECT_EQ(TestingDriver::made().events, 2100 - 768);
  CUevent mark = nullptr;
  for (int i = 0; i < 512; ++i) {
    ASSERT_TRUE(device_.HasSpareEvent(/*timing=*/false, Device::EventUse::kMark)) << i;
    ASSERT_EQ(device_.TakeEvent(false, &mark), CUDA_SUCCESS) << "the device would be given up";
  }
  most_streams_ = most_events_ = 10000;
  EXPECT_EQ(Prepare(), CUDA_SUCCESS);
  EXPECT_EQ(device_.StreamRefusal(nullptr), CUDA_SUCCESS);
  EXPECT_TRUE(device_.HasSpareStream(0, /*has_few=*/false));
  EXPECT_TRUE(device_.HasSpareEvent(/*timing=*/true, Device::EventUse::kKept));
}

// Streams that go back are there again, whatever the driver said of more.
TEST_F(RefusedObjectsTest, ARefusalIsForgottenWithWhatWasMissing) {
  ASSERT_NO_FATAL_FAILURE(TakeAllForPrograms());
  ASSERT_EQ(Prepare(), CUDA_ERROR_OUT_OF_MEMORY);
  for (int i = 0; i < 20; ++i)
    device_.DropStream(reinterpret_cast<CUstream>(uintptr_t{1}), nullptr);
  device_.Destroy(device_.TakeExcess());
  EXPECT_EQ(device_.Missing().streams, 0u);
  EXPECT_EQ(device_.StreamRefusal(nullptr), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::executor
