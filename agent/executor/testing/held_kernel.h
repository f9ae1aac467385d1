// SPDX-License-Identifier: Apache-2.0
// For tests of the loop with the software GPU: a tenant with one kernel that scales and one that runs until the test lets
// it go on.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

#include "agent/executor/testing/peer.h"
#include "agent/executor/testing/softgpu.h"

namespace gpuloom::executor {

// scale: data[i] *= factor for one block. hold: runs until *gate is not 0, then adds one.
inline constexpr std::string_view kScaleAndHold = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 data, .param .u32 factor)
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [data];
  ld.param.u32 %r1, [factor];
  mov.u32 %r2, %tid.x;
  mul.wide.u32 %rd2, %r2, 4;
  add.s64 %rd3, %rd1, %rd2;
  ld.global.u32 %r3, [%rd3];
  mul.lo.u32 %r4, %r3, %r1;
  st.global.u32 [%rd3], %r4;
  ret;
}
.visible .entry hold(.param .u64 data, .param .u64 gate)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  .reg .pred %p1;
  ld.param.u64 %rd1, [data];
  ld.param.u64 %rd2, [gate];
LOOP:
  ld.volatile.global.u32 %r3, [%rd2];
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra LOOP;
  ld.global.u32 %r1, [%rd1];
  add.u32 %r2, %r1, 1;
  st.global.u32 [%rd1], %r2;
  ret;
}
)";

struct ScaleParams {
  uint64_t data;
  uint32_t factor;
};
struct HoldParams {
  uint64_t data;
  uint64_t gate;
};

// A word that lets a kernel go on; opened at the latest by its end, so that a failed check leaves no
// kernel behind.
class Gate {
 public:
  explicit Gate(uint32_t* word) : word_(word) {}
  ~Gate() { Open(); }
  void Open() { std::atomic_ref(*word_).store(1); }
  uint64_t address() const { return reinterpret_cast<uint64_t>(word_); }

 private:
  uint32_t* const word_;
};

// Their ids.
inline constexpr uint32_t kScale = 1;
inline constexpr uint32_t kHold = 2;

class HeldKernelTest : public ::testing::Test {
 protected:
  static bool LoadProgram(TestingTenant* tenant, std::string_view program = kScaleAndHold) {
    if (!tenant->LoadKernel(1, kScale, "scale", program)) return false;
    const uint8_t name[] = {'h', 'o', 'l', 'd'};
    return tenant->Call<wire::KernelGet>({wire::LibraryId{1}, wire::KernelId{kHold}}, nullptr,
                                         name) == CUDA_SUCCESS;
  }

  static wire::Ticket Scale(TestingTenant* tenant, uint32_t stream, uint64_t data,
                            uint32_t factor) {
    const ScaleParams params{data, factor};
    return tenant->Post<wire::Launch>(
        {wire::StreamId{stream}, wire::KernelId{kScale}, {1, 1, 1}, {32, 1, 1}, 0, 0},
        {reinterpret_cast<const uint8_t*>(&params), 12});
  }
  static wire::Ticket Hold(TestingTenant* tenant, uint32_t stream, uint64_t data,
                           const Gate& gate) {
    const HoldParams params{data, gate.address()};
    return tenant->Launch(stream, kHold, {reinterpret_cast<const uint8_t*>(&params), 16});
  }

  // A pinned page of the arena.
  static uint32_t* Pin(TestingTenant* tenant) {
    const uint64_t address = tenant->order.host_range_begin + (1u << 20);
    std::memset(reinterpret_cast<void*>(address), 0, 4096);
    return tenant->Call<wire::HostRegister>({wire::HostPtr{address}, 4096}) == CUDA_SUCCESS
               ? reinterpret_cast<uint32_t*>(address)
               : nullptr;
  }

  TestingScheduler scheduler_{SoftGpu(GPULOOM_SOFTGPU_LIBRARY)};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();

  // What a test has in which somebody is to keep nobody waiting: the tenant with memory and a pinned page, whose word 64
  // is for a gate, and a neighbour with memory.
  void MakeNeighbours() {
    ASSERT_TRUE(LoadProgram(tenant_.get()));
    memory_ = tenant_->Alloc(4096);
    host_ = Pin(tenant_.get());
    ASSERT_NE(host_, nullptr);
    neighbour_ = scheduler_.AddTenant();
    ASSERT_TRUE(LoadProgram(neighbour_.get()));
    theirs_ = neighbour_->Alloc(4096);
  }
  bool NeighbourGoesOn() { return neighbour_->WaitDone(0, Scale(neighbour_.get(), 0, theirs_, 2)); }

  uint64_t memory_ = 0;
  uint32_t* host_ = nullptr;
  std::unique_ptr<TestingTenant> neighbour_;
  uint64_t theirs_ = 0;
};

}  // namespace gpuloom::executor
