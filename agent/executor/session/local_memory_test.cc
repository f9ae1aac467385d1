// SPDX-License-Identifier: Apache-2.0
// Local memory of kernels, which NVIDIA's driver makes when a launch first needs it, on the software GPU.
#include <gtest/gtest.h>

#include <string>

#include "agent/executor/testing/held_kernel.h"

namespace gpuloom::executor {
namespace {

using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

constexpr uint32_t kDeep = 3;

// For the same program: scale through 64 KiB of local memory.
constexpr std::string_view kDeepEntry = R"(
.visible .entry deep(.param .u64 data, .param .u32 factor)
{
  .local .align 4 .b8 frame[65536];
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [factor];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r3, [%rd3];
  mul.lo.u32 %r4, %r3, %r1;
  st.local.u32 [frame+65532], %r4;
  ld.local.u32 %r3, [frame+65532];
  st.global.u32 [%rd3], %r3;
  ret;
}
)";

using LocalMemoryTest = HeldKernelTest;

// NVIDIA's driver waits for all that runs when a launch needs more local memory a thread than any
// before: on this thread, a kernel without an end would have stopped the whole domain.
TEST_F(LocalMemoryTest, AKernelWithMoreThanAnyBeforeKeepsNobodyWaiting) {
  ASSERT_NO_FATAL_FAILURE(MakeNeighbours());
  auto deep = scheduler_.AddTenant("with-local-memory");
  ASSERT_TRUE(LoadProgram(deep.get(), std::string(kScaleAndHold).append(kDeepEntry)));
  const uint64_t its = deep->Alloc(4096);
  ASSERT_TRUE(deep->WaitDone(0, Scale(deep.get(), 0, its, 2)));
  const uint8_t name[] = {'d', 'e', 'e', 'p'};
  const auto neighbour_goes_on = [&] {
    for (int i = 0; i < 10; ++i) {
      if (!NeighbourGoesOn()) return false;
    }
    return true;
  };
  {
    Gate gate(host_ + 64);
    const Ticket endless = Hold(tenant_.get(), 0, memory_, gate);
    const Ticket asked = deep->Post<wire::KernelGet>({LibraryId{1}, KernelId{kDeep}}, name, 7);
    ASSERT_TRUE(neighbour_goes_on());
    EXPECT_EQ(deep->reader.FindReply(7, asked), nullptr) << "the driver would wait at the launch";
    gate.Open();
    ASSERT_TRUE(deep->Wait([&] { return deep->reader.FindReply(7, asked) != nullptr; }));
    EXPECT_EQ(deep->reader.FindReply(7, asked)->result, 0u);
    ASSERT_TRUE(tenant_->WaitDone(0, endless));
  }
  host_[64] = 0;
  Gate gate(host_ + 64);
  const Ticket endless = Hold(tenant_.get(), 0, memory_, gate);
  const ScaleParams params{its, 3};
  const Ticket launched = deep->Launch(0, kDeep, {reinterpret_cast<const uint8_t*>(&params), 12});
  EXPECT_TRUE(deep->WaitDone(0, launched));
  EXPECT_TRUE(neighbour_goes_on());
  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, endless));
  gate.Open();
  EXPECT_TRUE(tenant_->WaitDone(0, endless));
}

}  // namespace
}  // namespace gpuloom::executor
