// SPDX-License-Identifier: Apache-2.0
// Kernels that are loaded beside one that runs, with the software GPU, which then lets nothing begin before that one has
// ended, as the hardware does.
#include <gtest/gtest.h>

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

  static constexpr uint16_t kSlot = 5;
};

TEST_F(KernelLoadTest, Malicious_BesideAKernelWithoutEndLoadingOneKeepsNobodyWaiting) {
  ASSERT_TRUE(LoadLarge(neighbour_.get()));
  const auto third = scheduler_.AddTenant();
  ASSERT_TRUE(LoadProgram(third.get()));
  const uint64_t memory = third->Alloc(4096);
  wire::Ticket asked{};
  {
    Gate gate(host_ + 64);
    Hold(tenant_.get(), 0, memory_, gate);
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
  const Gate gate(host_ + 64);
  Hold(tenant_.get(), 0, memory_, gate);
  const wire::Ticket asked = Ask(neighbour_.get(), kLarge, 11, "two");
  EXPECT_TRUE(neighbour_->Wait([&] { return IsAnswered(*neighbour_, asked); }));
  EXPECT_TRUE(neighbour_->WaitDone(0, neighbour_->Launch(0, 11, {})));
}

// Its kernel may wait for what the program does next.
TEST_F(KernelLoadTest, WhoHasTheDeviceToItselfLoadsBesideItsOwnKernels) {
  ASSERT_TRUE(LoadLarge(tenant_.get()));
  neighbour_->doorbell.Reset();
  ASSERT_TRUE(scheduler_.WaitEnded(neighbour_->order.session_id).has_value());
  const Gate gate(host_ + 64);
  Hold(tenant_.get(), 0, memory_, gate);
  const wire::Ticket asked = Ask(tenant_.get(), kLarge, 11, "more1");
  EXPECT_TRUE(tenant_->Wait([&] { return IsAnswered(*tenant_, asked); }));
}

}  // namespace
}  // namespace gpuloom::executor
