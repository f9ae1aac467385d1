// The real loop on the software GPU: kernels that compute, spin and fault.
#include <gtest/gtest.h>

#include "agent/executor/testing_peer.h"

namespace gpuloom::executor {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using wire::DevicePtr;
using wire::HostPtr;
using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

// scale: data[i] *= factor for one block. spin: runs for so many nanoseconds, then adds one.
constexpr std::string_view kProgram = R"(
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
.visible .entry spin(.param .u64 data, .param .u64 nanoseconds)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<7>;
  .reg .pred %p1;
  ld.param.u64 %rd1, [data];
  ld.param.u64 %rd2, [nanoseconds];
  mov.u64 %rd3, %globaltimer;
LOOP:
  mov.u64 %rd4, %globaltimer;
  sub.u64 %rd5, %rd4, %rd3;
  setp.lt.u64 %p1, %rd5, %rd2;
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
struct SpinParams {
  uint64_t data;
  uint64_t nanoseconds;
};

const Driver& SoftGpu() {
  static const Driver kDriver = [] {
    Driver driver;
    std::string error;
    if (!Load(GPULOOM_SOFTGPU_LIBRARY, &driver, &error)) {
      ADD_FAILURE() << error;
      abort();
    }
    return driver;
  }();
  return kDriver;
}

constexpr uint32_t kScale = 1;
constexpr uint32_t kSpin = 2;

class SoftGpuTest : public ::testing::Test {
 protected:
  static bool LoadProgram(TestingTenant* tenant, std::string_view program = kProgram) {
    if (!tenant->LoadKernel(1, kScale, "scale", program)) return false;
    const uint8_t name[] = {'s', 'p', 'i', 'n'};
    return tenant->Call<wire::KernelGet>({LibraryId{1}, KernelId{kSpin}}, nullptr, name) ==
           CUDA_SUCCESS;
  }

  static Ticket Scale(TestingTenant* tenant, uint32_t stream, uint64_t data, uint32_t factor) {
    const ScaleParams params{data, factor};
    return tenant->Post<wire::Launch>(
        {StreamId{stream}, KernelId{kScale}, {1, 1, 1}, {32, 1, 1}, 0, 0},
        {reinterpret_cast<const uint8_t*>(&params), 12});
  }
  static Ticket Spin(TestingTenant* tenant, uint32_t stream, uint64_t data, milliseconds time) {
    const SpinParams params{data, static_cast<uint64_t>(time.count()) * 1'000'000};
    return tenant->Launch(stream, kSpin, {reinterpret_cast<const uint8_t*>(&params), 16});
  }

  // A pinned page of the arena.
  static uint32_t* Pin(TestingTenant* tenant) {
    const uint64_t address = tenant->order.host_range_begin + (1u << 20);
    std::memset(reinterpret_cast<void*>(address), 0, 4096);
    return tenant->Call<wire::HostRegister>({HostPtr{address}, 4096}) == CUDA_SUCCESS
               ? reinterpret_cast<uint32_t*>(address)
               : nullptr;
  }
  static Ticket CopyOut(TestingTenant* tenant, uint32_t stream, uint32_t* to, uint64_t from) {
    return tenant->Post<wire::Copy>({StreamId{stream}, wire::CopyKind::kDeviceToHost,
                                     reinterpret_cast<uint64_t>(to), from, 128});
  }

  TestingScheduler scheduler_{SoftGpu()};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(SoftGpuTest, ComputesInOrder) {
  ASSERT_EQ(tenant_->ready.ok, 1u) << tenant_->ready.message;
  ASSERT_TRUE(LoadProgram(tenant_.get()));
  const uint64_t memory = tenant_->Alloc(4096);
  ASSERT_NE(memory, 0u);
  uint32_t* host = Pin(tenant_.get());
  ASSERT_NE(host, nullptr);
  for (uint32_t i = 0; i < 32; ++i) host[i] = i;
  tenant_->Post<wire::Copy>(
      {StreamId{0}, wire::CopyKind::kHostToDevice, memory, reinterpret_cast<uint64_t>(host), 128});
  for (int i = 0; i < 5; ++i) Scale(tenant_.get(), 0, memory, 3);
  ASSERT_TRUE(tenant_->WaitDone(0, CopyOut(tenant_.get(), 0, host, memory)));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(host[i], i * 243);
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
