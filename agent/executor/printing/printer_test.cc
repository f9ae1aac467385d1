// SPDX-License-Identifier: Apache-2.0
// Sessions whose kernels may print take turns at the device; others are not concerned.
#include "agent/executor/printing/printer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::Ticket;

constexpr std::string_view kPrinting =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n"
    ".visible .entry k(.param .u64 a, .param .u32 n) { ret; }\n";

class PrinterTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kPrints = 1;
  static constexpr uint32_t kPlain = 2;

  void SetUp() override {
    for (TestingTenant* tenant : {a_.get(), b_.get()}) {
      ASSERT_TRUE(tenant->LoadKernel(1, kPrints, "k", kPrinting));
      ASSERT_TRUE(tenant->LoadKernel(2, kPlain, "k", kEmptyPtx));
      ASSERT_TRUE(tenant->CreateStream(1, true));
    }
    TestingDriver::TakeCalls();
  }
  ~PrinterTest() override { TestingDriver::Release(); }

  // Launches that reached the driver, ever.
  int Launches() {
    for (const std::string& call : TestingDriver::TakeCalls()) {
      launches_ += call.starts_with("launch");
    }
    return launches_;
  }
  bool Reaches(int launches) {
    return a_->Wait([&] { return Launches() == launches; });
  }
  bool Stays(int launches) {
    return a_->Never([&] { return Launches() != launches; });
  }

  TestingScheduler scheduler_{TestingDriver::Reset()};
  std::unique_ptr<TestingTenant> a_ = scheduler_.AddTenant();
  std::unique_ptr<TestingTenant> b_ = scheduler_.AddTenant();
  int launches_ = 0;
};

TEST_F(PrinterTest, ASecondSessionWaitsAndThenTheFirst) {
  TestingDriver::Hold();
  a_->LaunchPlain(1, kPrints);
  a_->LaunchPlain(1, kPrints);
  ASSERT_TRUE(Reaches(2));
  const Ticket second = b_->LaunchPlain(1, kPrints);
  ASSERT_TRUE(Stays(2));
  // Somebody waits: the owner's turn gets no longer.
  const Ticket third = a_->LaunchPlain(1, kPrints);
  ASSERT_TRUE(Stays(2));
  TestingDriver::Release();
  EXPECT_TRUE(b_->WaitDone(1, second));
  EXPECT_TRUE(a_->WaitDone(1, third));
  EXPECT_EQ(Launches(), 4);
}

TEST_F(PrinterTest, KernelsThatDoNotPrintWaitForNobody) {
  TestingDriver::Hold();
  a_->LaunchPlain(1, kPrints);
  ASSERT_TRUE(Reaches(1));
  b_->LaunchPlain(1, kPlain);
  EXPECT_TRUE(Reaches(2));
}

// Between the sections of a launch the turn is free, and what a session that ends there leaves takes no turn.
TEST_F(PrinterTest, ALaunchInSectionsHasATurnForEach) {
  TestingGraph graph;
  graph.AddKernel(kPrints, PlainParams());
  graph.AddHostCall(7);
  graph.AddKernel(kPrints, PlainParams());
  graph.AddEdge(0, 1);
  graph.AddEdge(1, 2);
  ASSERT_EQ(a_->Call<wire::GraphInstantiate>({wire::GraphId{1}, 0, wire::HostPtr{0}, 0}, nullptr,
                                             graph.Block()),
            CUDA_SUCCESS);
  for (uint32_t round = 1; round <= 2; ++round) {
    const Ticket launch = a_->Post<wire::GraphLaunch>({wire::GraphId{1}, wire::StreamId{1}});
    ASSERT_TRUE(a_->Wait([&] { return a_->reader.host_functions_due() == round; }));
    EXPECT_TRUE(b_->WaitDone(1, b_->LaunchPlain(1, kPrints)));
    if (round == 2) break;
    a_->writer.PublishHostFunctionsDone(round);
    if (a_->writer.ExecutorSleeps()) channel::RingDoorbell(a_->doorbell.get());
    EXPECT_TRUE(a_->WaitDone(1, launch));
  }
  scheduler_.RemoveTenant(*a_);
  ASSERT_TRUE(scheduler_.WaitEnded(a_->order.session_id));
  EXPECT_TRUE(b_->WaitDone(1, b_->LaunchPlain(1, kPrints)));
}

// An operator may hold it for hours.
TEST_F(PrinterTest, WhoWaitsAndIsHeldKeepsNobody) {
  TestingDriver::Hold();
  a_->LaunchPlain(1, kPrints);
  ASSERT_TRUE(Reaches(1));
  const Ticket second = b_->LaunchPlain(1, kPrints);
  ASSERT_TRUE(Stays(1));
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*b_, true)));
  a_->LaunchPlain(1, kPrints);
  EXPECT_TRUE(Reaches(2));
  scheduler_.Hold(*b_, false);
  TestingDriver::Release();
  EXPECT_TRUE(b_->WaitDone(1, second));
}

TEST(Printer, WhoIsFirstAndDoesNotGoIsPassedOver) {
  Printer printer(nullptr, nullptr, nullptr);
  uint64_t now = 0;
  ASSERT_TRUE(printer.MayPrint(1, now));
  printer.Began(1);
  EXPECT_FALSE(printer.MayPrint(2, now));
  EXPECT_FALSE(printer.MayPrint(3, now));
  // As long as another's kernel takes, it could not go.
  now += 10 * Printer::kPatienceNs;
  EXPECT_FALSE(printer.MayPrint(1, now));
  printer.Ended(1);
  EXPECT_FALSE(printer.MayPrint(3, now));
  now += Printer::kPatienceNs;
  EXPECT_TRUE(printer.MayPrint(3, now));
  EXPECT_FALSE(printer.Waits(2));
  printer.Began(3);
  EXPECT_TRUE(printer.Waits(1));
  // It has kept its place.
  EXPECT_FALSE(printer.MayPrint(2, now));
  printer.Ended(1);
  EXPECT_FALSE(printer.MayPrint(1, now));
  EXPECT_TRUE(printer.MayPrint(2, now));
}

TEST_F(PrinterTest, WhoWaitsAndEndsIsForgotten) {
  TestingDriver::Hold();
  a_->LaunchPlain(1, kPrints);
  ASSERT_TRUE(Reaches(1));
  b_->LaunchPlain(1, kPrints);
  ASSERT_TRUE(Stays(1));
  scheduler_.RemoveTenant(*b_);
  ASSERT_TRUE(scheduler_.WaitEnded(b_->order.session_id));
  a_->LaunchPlain(1, kPrints);
  EXPECT_TRUE(Reaches(2));
}

}  // namespace
}  // namespace gpuloom::executor
