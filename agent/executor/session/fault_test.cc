// SPDX-License-Identifier: Apache-2.0
// A lost context: which sessions learn what.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <initializer_list>

#include "agent/executor/printing/driver_output.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

constexpr char kText[] = "a.cu:7: k: block: [0,0,0], thread: [0,0,0] Assertion `ok` failed.\n";

class FaultTest : public ::testing::Test {
 protected:
  // After Release nothing may hang on what a failed test has left.
  ~FaultTest() override { TestingDriver::Release(); }

  // From now on each has a kernel at the device.
  static void Occupy(std::initializer_list<TestingTenant*> tenants) {
    for (TestingTenant* tenant : tenants) {
      ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
    }
    TestingDriver::Hold();
    for (TestingTenant* tenant : tenants) {
      TestingDriver::TakeCalls();
      tenant->LaunchPlain(0, 1);
      ASSERT_TRUE(tenant->Wait([] { return TestingDriver::WasCalled("launch"); }));
    }
  }
  // Waits until the tenant has been told of the fault.
  static std::string TextOf(TestingTenant* tenant) {
    EXPECT_TRUE(tenant->Wait([&] { return tenant->reader.fault() == CUDA_ERROR_ASSERT; }));
    return {reinterpret_cast<const char*>(tenant->reader.fault_text()),
            tenant->reader.fault_text_bytes()};
  }

  const Driver& driver_ = TestingDriver::Reset();
  DriverOutput output_;
  const int errors_fd_ = [this] {
    const int errors_fd = memfd_create("errors", MFD_CLOEXEC);
    output_.ReadErrors(channel::UniqueFd(errors_fd));
    return errors_fd;
  }();
  TestingScheduler scheduler_{driver_,
                              /*batches=*/true,
                              /*submit_threads=*/-1,
                              /*memory_limit_bytes=*/0,
                              /*means=*/nullptr,
                              &output_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(FaultTest, FaultIsToldToEveryTenantAndTheScheduler) {
  auto neighbour = scheduler_.AddTenant();
  Occupy({tenant_.get()});
  TestingDriver::Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  for (TestingTenant* one : {tenant_.get(), neighbour.get()}) {
    EXPECT_TRUE(one->Wait([&] { return one->reader.fault() == CUDA_ERROR_ILLEGAL_ADDRESS; }));
  }
  const auto fault = scheduler_.WaitFault();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->result, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(fault->session_id, tenant_->order.session_id);
  EXPECT_TRUE(scheduler_.WaitLoopEnd(std::chrono::seconds(60)));
}

// Of several processes one is named, if they are one container's: it was its fault, whichever it was.
TEST_F(FaultTest, TheContainerThatWasAloneAtTheDeviceIsNamed) {
  auto one = scheduler_.AddTenant("a");
  auto same = scheduler_.AddTenant("a");
  Occupy({one.get(), same.get()});
  TestingDriver::Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto fault = scheduler_.WaitFault();
  ASSERT_TRUE(fault.has_value());
  EXPECT_TRUE(fault->session_id == one->order.session_id ||
              fault->session_id == same->order.session_id);
}

TEST_F(FaultTest, OfSeveralContainersAtTheDeviceNoneIsNamed) {
  auto neighbour = scheduler_.AddTenant();
  Occupy({tenant_.get(), neighbour.get()});
  TestingDriver::Fail(CUDA_ERROR_ILLEGAL_ADDRESS);
  const auto fault = scheduler_.WaitFault();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->session_id, 0u);
  EXPECT_STREQ(fault->function, "");
}

// It cannot be known whose kernel it was, and the program that failed must see why.
TEST_F(FaultTest, EachProcessOfTheContainerAtTheDeviceGetsTheTextOfAnAssert) {
  auto one = scheduler_.AddTenant("a");
  auto same = scheduler_.AddTenant("a");
  auto idle = scheduler_.AddTenant("a");
  Occupy({one.get(), same.get()});
  TestingDriver::FailAssert(errors_fd_, kText);
  EXPECT_EQ(TextOf(one.get()), kText);
  EXPECT_EQ(TextOf(same.get()), kText);
  EXPECT_EQ(TextOf(idle.get()), "");
  EXPECT_EQ(TextOf(tenant_.get()), "");
}

TEST_F(FaultTest, OfSeveralContainersAtTheDeviceNoneGetsTheTextOfAnAssert) {
  auto one = scheduler_.AddTenant("a");
  auto same = scheduler_.AddTenant("a");
  Occupy({one.get(), same.get(), tenant_.get()});
  TestingDriver::FailAssert(errors_fd_, kText);
  for (TestingTenant* each : {one.get(), same.get(), tenant_.get()}) EXPECT_EQ(TextOf(each), "");
}

}  // namespace
}  // namespace gpuloom::executor
