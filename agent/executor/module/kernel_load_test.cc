// SPDX-License-Identifier: Apache-2.0
// Kernels that are loaded beside one that runs, with the software GPU, which then lets nothing begin before that one has
// ended, as the hardware does.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "agent/executor/testing/held_kernel.h"

namespace gpuloom::executor {
namespace {

using wire::KernelId;
using wire::LibraryId;

constexpr uint32_t kLarge = 2;  // its id

// Too many kernels to be loaded together.
std::string LargeProgram() {
  std::string program(kScaleAndHold);
  for (int i = 0; i < 100; ++i)
    program += ".visible .entry more" + std::to_string(i) + "() { ret; }\n";
  return program;
}

class KernelLoadTest : public HeldKernelTest {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(MakeNeighbours()); }

  // Does not wait for the answer.
  static wire::Ticket Ask(TestingTenant* tenant, uint32_t library, uint32_t kernel,
                          std::string_view name) {
    return tenant->Post<wire::KernelGet>(
        {LibraryId{library}, KernelId{kernel}},
        {reinterpret_cast<const uint8_t*>(name.data()), name.size()}, kSlot);
  }
  static bool IsAnswered(const TestingTenant& tenant, wire::Ticket ticket) {
    return tenant.reader.FindReply(kSlot, ticket) != nullptr;
  }
  static bool LoadLarge(TestingTenant* tenant) {
    return tenant->LoadKernel(kLarge, 10, "more0", LargeProgram());
  }

  // A kernel of the tenant's that runs meanwhile; has ended behind it, when its gate's word may go.
  class Meanwhile {
   public:
    explicit Meanwhile(KernelLoadTest* test) : test_(test), gate_(std::in_place, Word(test)) {
      held_ = Hold(test_->tenant_.get(), 0, test_->memory_, *gate_);
    }
    ~Meanwhile() {
      gate_.reset();
      EXPECT_TRUE(test_->tenant_->WaitDone(0, held_));
    }

   private:
    static uint32_t* Word(KernelLoadTest* test) {
      std::atomic_ref(test->host_[64]).store(0);
      return test->host_ + 64;
    }
    KernelLoadTest* const test_;
    std::optional<Gate> gate_;
    wire::Ticket held_{};
  };

  static constexpr uint16_t kSlot = 5;
};

TEST_F(KernelLoadTest, Malicious_BesideAKernelWithoutEndLoadingOneKeepsNobodyWaiting) {
  ASSERT_TRUE(LoadLarge(neighbour_.get()));
  const auto third = scheduler_.AddTenant();
  ASSERT_TRUE(LoadProgram(third.get()));
  const uint64_t memory = third->Alloc(4096);
  wire::Ticket asked{};
  {
    const Meanwhile kernel(this);
    asked = Ask(neighbour_.get(), kLarge, 11, "more1");
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(third->WaitDone(0, Scale(third.get(), 0, memory, 2))) << i;
      ASSERT_TRUE(NeighbourGoesOn()) << i;
    }
    EXPECT_FALSE(IsAnswered(*neighbour_, asked)) << "it waits for the kernel";
  }
  EXPECT_TRUE(neighbour_->Wait([&] { return IsAnswered(*neighbour_, asked); }));
}

TEST_F(KernelLoadTest, ASmallLibraryIsLoadedWithItsFirstKernel) {
  const std::string_view program =
      ".version 8.0\n.target sm_90\n.address_size 64\n"
      ".visible .entry one() { ret; }\n"
      ".visible .entry two() { ret; }\n";
  ASSERT_TRUE(neighbour_->LoadKernel(kLarge, 10, "one", program));
  const Meanwhile kernel(this);
  const wire::Ticket asked = Ask(neighbour_.get(), kLarge, 11, "two");
  EXPECT_TRUE(neighbour_->Wait([&] { return IsAnswered(*neighbour_, asked); }));
  EXPECT_TRUE(neighbour_->WaitDone(0, neighbour_->Launch(0, 11, {})));
}

// Each has a library of its own, because of the variable, once the image is known by its hash.
TEST_F(KernelLoadTest, WhatEarlierProgramsHaveAskedForIsLoadedWithTheFirst) {
  const std::string program = LargeProgram() + ".visible .global .u32 state;\n";
  ASSERT_TRUE(neighbour_->LoadKernel(kLarge, 10, "more0", program));
  const wire::Ticket asked = Ask(neighbour_.get(), kLarge, 11, "more1");
  ASSERT_TRUE(neighbour_->Wait([&] { return IsAnswered(*neighbour_, asked); }));
  EXPECT_TRUE(TestingScheduler::WaitUntil([&] {
    const auto next = scheduler_.AddTenant();
    EXPECT_TRUE(next->LoadKernel(kLarge, 10, "more0", program));
    const Meanwhile kernel(this);
    const wire::Ticket again = Ask(next.get(), kLarge, 11, "more1");
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    while (!IsAnswered(*next, again) && std::chrono::steady_clock::now() < end) {
      std::this_thread::yield();
    }
    return IsAnswered(*next, again);
  }));
}

// Its kernel may wait for what the program does next.
TEST_F(KernelLoadTest, WhoHasTheDeviceToItselfLoadsBesideItsOwnKernels) {
  ASSERT_TRUE(LoadLarge(tenant_.get()));
  neighbour_->doorbell.Reset();
  ASSERT_TRUE(scheduler_.WaitEnded(neighbour_->order.session_id).has_value());
  const Meanwhile kernel(this);
  const wire::Ticket asked = Ask(tenant_.get(), kLarge, 11, "more1");
  EXPECT_TRUE(tenant_->Wait([&] { return IsAnswered(*tenant_, asked); }));
}

}  // namespace
}  // namespace gpuloom::executor
