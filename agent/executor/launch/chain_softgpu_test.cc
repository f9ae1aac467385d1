// SPDX-License-Identifier: Apache-2.0
// Launches that go together and launches that go one by one leave the same behind: the real loop on
// the software GPU, with kernels whose results tell their order.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <string>

#include "agent/executor/testing/peer.h"
#include "agent/executor/testing/softgpu.h"

namespace gpuloom::executor {
namespace {

using wire::DevicePtr;
using wire::EventId;
using wire::HostPtr;
using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

constexpr uint32_t kKernels = 6;
constexpr uint32_t kWords = 8;  // of a stream's state

constexpr uint32_t Factor(uint32_t kernel) { return 1664525 + 8 * kernel; }

// step0 … : *state = *state * factor + addend, in one thread of any shape.
std::string Program() {
  std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n";
  for (uint32_t i = 0; i < kKernels; ++i) {
    const std::string number = std::to_string(i);
    text += ".visible .entry step" + number + "(.param .u64 state, .param .u32 addend";
    // Sizes differ, so that parameters move when kernels do.
    if (i % 2 == 1) text += ", .param .u64 unused";
    text +=
        ")\n{\n"
        "  .reg .b32 %r<9>;\n  .reg .b64 %rd<2>;\n  .reg .pred %p<2>;\n"
        "  ld.param.u64 %rd1, [state];\n  ld.param.u32 %r1, [addend];\n"
        "  mov.u32 %r2, %tid.x;\n  mov.u32 %r3, %ctaid.x;\n  or.b32 %r4, %r2, %r3;\n"
        "  setp.ne.u32 %p1, %r4, 0;\n  @%p1 bra DONE;\n"
        "  ld.global.u32 %r5, [%rd1];\n"
        "  mad.lo.u32 %r6, %r5, " +
        std::to_string(Factor(i)) +
        ", %r1;\n  st.global.u32 [%rd1], %r6;\n"
        "DONE:\n  ret;\n}\n";
  }
  return text;
}

struct Step {
  uint32_t kernel;
  uint32_t grid;
  uint32_t addend;
};

enum class Way { kPlain, kBatched, kThreads };

class ChainSoftGpuTest : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(Load(tenant_.get()));
    memory_ = tenant_->Alloc(4096);
    ASSERT_NE(memory_, 0u);
    for (uint32_t i = 1; i < kWords; ++i) ASSERT_TRUE(tenant_->CreateStream(i, i % 2 == 0));
    for (uint32_t i = 0; i < kWords; ++i) Fill(i, i, 1);
  }

  static bool Load(TestingTenant* tenant) {
    if (tenant->LoadLibrary(1, Program()) != CUDA_SUCCESS) return false;
    for (uint32_t i = 0; i < kKernels; ++i) {
      const std::string name = "step" + std::to_string(i);
      const auto* bytes = reinterpret_cast<const uint8_t*>(name.data());
      if (tenant->Call<wire::KernelGet>({LibraryId{1}, KernelId{i + 1}}, nullptr,
                                        {bytes, name.size()}) != CUDA_SUCCESS) {
        return false;
      }
    }
    return true;
  }

  Ticket Fill(uint32_t stream, uint32_t word, uint32_t value) {
    expected_[word] = value;
    return last_[stream] =
               tenant_->Post<wire::Fill>({StreamId{stream}, 4, value, 0, memory_ + word * 4, 1});
  }

  Ticket Launch(uint32_t stream, uint32_t word, const Step& step, uint32_t threads = 2) {
    if (threads <= 1024) expected_[word] = expected_[word] * Factor(step.kernel) + step.addend;
    return last_[stream] = Post(tenant_.get(), stream, memory_ + word * 4, step, threads);
  }

  static Ticket Post(TestingTenant* tenant, uint32_t stream, uint64_t state, const Step& step,
                     uint32_t threads) {
    uint8_t params[24] = {};
    std::memcpy(params, &state, 8);
    std::memcpy(params + 8, &step.addend, 4);
    return tenant->Post<wire::Launch>(
        {StreamId{stream}, KernelId{step.kernel + 1}, {step.grid, 1, 1}, {threads, 1, 1}, 0, 0},
        {params, step.kernel % 2 == 1 ? 24u : 12u});
  }

  // What `to` does from now on comes after what `from` has done so far.
  void OrderBehind(uint32_t from, uint32_t to, uint32_t event) {
    tenant_->Post<wire::EventRecord>({EventId{event}, StreamId{from}});
    tenant_->Post<wire::StreamWaitEvent>({StreamId{to}, EventId{event}});
  }

  uint32_t Below(uint32_t limit) { return static_cast<uint32_t>(rng_()) % limit; }
  Step Random() { return {Below(kKernels), 1 + Below(3), static_cast<uint32_t>(rng_())}; }

  void ExpectState() {
    const uint64_t address = tenant_->order.host_range_begin + (1u << 20);
    std::memset(reinterpret_cast<void*>(address), 0, 4096);
    ASSERT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{address}, 4096}), CUDA_SUCCESS);
    for (uint32_t i = 0; i < kWords; ++i) ASSERT_TRUE(tenant_->WaitDone(i, last_[i]));
    const Ticket read = tenant_->Post<wire::Copy>(
        {StreamId{0}, wire::CopyKind::kDeviceToHost, address, memory_, kWords * 4});
    ASSERT_TRUE(tenant_->WaitDone(0, read));
    for (uint32_t i = 0; i < kWords; ++i) {
      EXPECT_EQ(reinterpret_cast<const uint32_t*>(address)[i], expected_[i]) << "stream " << i;
    }
    ASSERT_EQ(tenant_->Call<wire::HostUnregister>({HostPtr{address}, 4096}), CUDA_SUCCESS);
  }

  std::mt19937 rng_{20260101};
  TestingScheduler scheduler_{SoftGpu(GPULOOM_SOFTGPU_LIBRARY), GetParam() != Way::kPlain,
                              GetParam() == Way::kThreads ? 2 : 0};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
  uint64_t memory_ = 0;
  uint32_t expected_[kWords] = {};
  Ticket last_[kWords] = {};
};

std::string WayName(const ::testing::TestParamInfo<Way>& way) {
  switch (way.param) {
    case Way::kPlain:
      return "Plain";
    case Way::kBatched:
      return "Batched";
    default:
      return "Threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ChainSoftGpuTest,
                         ::testing::Values(Way::kPlain, Way::kBatched, Way::kThreads), WayName);

TEST_P(ChainSoftGpuTest, ASequenceThatComesAgainAndAgain) {
  std::vector<Step> steps(100);
  for (Step& step : steps) step = Random();
  for (int round = 0; round < 400; ++round) {
    for (const Step& step : steps) Launch(1, 1, step);
  }
  ExpectState();
}

TEST_P(ChainSoftGpuTest, TheSameKernelsWithOtherParameters) {
  std::vector<Step> steps(100);
  for (Step& step : steps) step = Random();
  for (int round = 0; round < 400; ++round) {
    for (Step& step : steps) {
      step.addend = static_cast<uint32_t>(rng_());
      Launch(1, 1, step);
    }
  }
  ExpectState();
}

TEST_P(ChainSoftGpuTest, NothingComesAgain) {
  for (int i = 0; i < 20'000; ++i) Launch(1, 1, Random());
  ExpectState();
}

// Streams, events between them, fills and launches that CUDA refuses, in any order.
TEST_P(ChainSoftGpuTest, RandomPrograms) {
  std::vector<Step> known(40);
  for (Step& step : known) step = Random();
  uint32_t errors = 0;
  const uint32_t errors_before = tenant_->reader.async_error_count();
  for (uint32_t event = 1; event <= 4; ++event) {
    tenant_->Post<wire::EventCreate>({EventId{event}, 0});
  }
  for (int i = 0; i < 3000; ++i) {
    const uint32_t stream = Below(kWords);
    switch (Below(12)) {
      case 0:
        Fill(stream, stream, static_cast<uint32_t>(rng_()));
        break;
      case 1: {
        // Another stream's state, once that stream has come so far, and back.
        const uint32_t other = Below(kWords);
        const uint32_t event = 1 + Below(4);
        OrderBehind(stream, other, event);
        for (uint32_t n = Below(20); n > 0; --n) Launch(other, stream, Random());
        OrderBehind(other, stream, event);
        break;
      }
      case 2:
        // More threads than a block may have. Nobody checks but CUDA.
        Launch(stream, stream, {Below(kKernels), 1, 0}, 5000);
        ++errors;
        break;
      case 3:
        if (Below(20) == 0) {
          ASSERT_TRUE(tenant_->WaitDone(stream, Fill(stream, stream, 7)));
        }
        break;
      case 4:
        // The GPU has something to do for a while, so that launches pile up.
        for (int n = 0; n < 200; ++n) Launch(stream, stream, known[n % known.size()]);
        break;
      default:
        for (uint32_t n = Below(40); n > 0; --n) Launch(stream, stream, known[n - 1]);
    }
  }
  ExpectState();
  EXPECT_EQ(tenant_->reader.async_error_count() - errors_before, errors);
}

// Tenants at work at the same time, whose launches may go by different threads.
class ChainSoftGpuTenantsTest : public ChainSoftGpuTest {
 protected:
  struct Neighbour {
    std::unique_ptr<TestingTenant> tenant;
    uint64_t memory = 0;
    uint32_t expected = 0;
    Ticket last{};
  };

  void SetUp() override {
    ChainSoftGpuTest::SetUp();
    for (Neighbour& one : neighbours_) {
      one.tenant = scheduler_.AddTenant();
      ASSERT_TRUE(Load(one.tenant.get()));
      one.memory = one.tenant->Alloc(4096);
      ASSERT_NE(one.memory, 0u);
      one.tenant->Post<wire::Fill>({StreamId{0}, 4, 0, 0, one.memory, 1});
    }
  }

  static void Launch(Neighbour* one, const Step& step) {
    one->expected = one->expected * Factor(step.kernel) + step.addend;
    one->last = Post(one->tenant.get(), 0, one->memory, step, 2);
  }

  // Everybody's state is what it must be, and everybody leaves.
  void ExpectStates() {
    for (Neighbour& one : neighbours_) {
      const uint64_t address = one.tenant->order.host_range_begin + (1u << 20);
      std::memset(reinterpret_cast<void*>(address), 0, 4096);
      ASSERT_EQ(one.tenant->Call<wire::HostRegister>({HostPtr{address}, 4096}), CUDA_SUCCESS);
      const Ticket read = one.tenant->Post<wire::Copy>(
          {StreamId{0}, wire::CopyKind::kDeviceToHost, address, one.memory, 4});
      ASSERT_TRUE(one.tenant->WaitDone(0, read));
      EXPECT_EQ(*reinterpret_cast<const uint32_t*>(address), one.expected);
      scheduler_.RemoveTenant(*one.tenant);
      ASSERT_TRUE(scheduler_.WaitEnded(one.tenant->order.session_id).has_value());
    }
    ExpectState();
  }

  std::vector<Neighbour> neighbours_{3};
};

INSTANTIATE_TEST_SUITE_P(Ways, ChainSoftGpuTenantsTest,
                         ::testing::Values(Way::kPlain, Way::kBatched, Way::kThreads), WayName);

TEST_P(ChainSoftGpuTenantsTest, LaunchAtTheSameTime) {
  for (int i = 0; i < 4000; ++i) {
    Neighbour& one = neighbours_[Below(3)];
    for (uint32_t n = Below(8); n > 0; --n) {
      const Step step = Random();
      if (Below(50) == 0) {
        one.last = Post(one.tenant.get(), 0, one.memory, step, 5000);  // CUDA refuses it
      } else {
        Launch(&one, step);
      }
    }
    if (Below(10) == 0) ChainSoftGpuTest::Launch(1, 1, Random());
    if (Below(40) == 0) {
      ASSERT_TRUE(one.tenant->WaitDone(0, one.last));
    }
  }
  ExpectStates();
}

// Graphs are let go, and what they hold is forgotten, while other tenants' launches go by them.
TEST_P(ChainSoftGpuTenantsTest, RepeatThemselvesWhileLibrariesComeAndGo) {
  std::vector<Step> steps(60);
  for (Step& step : steps) step = Random();
  for (int i = 0; i < 1500; ++i) {
    for (Neighbour& one : neighbours_) {
      const uint32_t begin = Below(20);
      const uint32_t end = begin + 16 + Below(24);
      for (uint32_t at = begin; at < end; ++at) Launch(&one, steps[at]);
    }
    Neighbour& one = neighbours_[Below(3)];
    if (i % 40 == 0) {
      ASSERT_EQ(one.tenant->Call<wire::KernelSetAttribute>(
                    {KernelId{1}, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, i}),
                CUDA_SUCCESS);
    }
    if (i % 100 == 0) {
      ASSERT_EQ(one.tenant->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
      ASSERT_TRUE(Load(one.tenant.get()));
    }
  }
  ExpectStates();
}

}  // namespace
}  // namespace gpuloom::executor
