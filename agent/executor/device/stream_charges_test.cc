// SPDX-License-Identifier: Apache-2.0
// What the driver keeps of streams, and who pays for it; and what of them is made anew while work runs that may never end.
#include "agent/executor/device/stream_charges.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "agent/executor/stream/stream_state.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::StreamId;

class StreamChargesTest : public ::testing::Test {
 protected:
  // Counts those that are there, and those that are made beyond what was there at a time, while work runs.
  static Driver ThatCounts() {
    Driver driver = TestingDriver::Reset();
    streams_ = most_ = waits_ = 0;
    runs_ = false;
    make_ = driver.cuStreamCreateWithPriority;
    destroy_ = driver.cuStreamDestroy_v2;
    driver.cuStreamCreateWithPriority = [](CUstream* stream, unsigned flags, int priority) {
      Count();
      return make_(stream, flags, priority);
    };
    driver.cuStreamDestroy_v2 = [](CUstream stream) {
      --streams_;
      return destroy_(stream);
    };
    return driver;
  }
  static void Count() {
    const int now = ++streams_;
    if (now <= most_) return;
    most_ = now;
    waits_ += runs_;
  }

  // With more streams than a tenant gets without a quiet moment, none of which has work.
  std::unique_ptr<TestingTenant> AddWithStreams(const char* label = nullptr) {
    auto tenant = scheduler_.AddTenant(label);
    EXPECT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
    for (uint32_t stream = 1; stream <= kStreams; ++stream) {
      EXPECT_TRUE(tenant->CreateStream(stream, true));
      EXPECT_TRUE(tenant->WaitDone(stream, tenant->LaunchPlain(stream, 1))) << stream;
    }
    return tenant;
  }
  // From now on something of it runs that does not end.
  static void Run(TestingTenant* tenant) {
    ASSERT_TRUE(tenant->WaitDone(0, tenant->LaunchPlain(0, 1)));
    TestingDriver::Hold();
    TestingDriver::TakeCalls();
    tenant->LaunchPlain(0, 1);
    ASSERT_TRUE(tenant->Wait([] { return TestingDriver::WasCalled("launch"); }));
    runs_ = true;
  }
  // In each stream. Returns how many of these launches reach the device while that runs.
  static uint32_t LaunchInAll(TestingTenant* tenant) {
    uint32_t launched = 0;
    for (; launched < kStreams; ++launched) {
      TestingDriver::TakeCalls();
      tenant->LaunchPlain(launched + 1, 1);
      if (!tenant->Wait([] { return TestingDriver::WasCalled("launch"); })) break;
    }
    return launched;
  }
  static void EndRun(TestingTenant* tenant) {
    runs_ = false;
    TestingDriver::Release();
    EXPECT_TRUE(tenant->WaitDone(kStreams, tenant->LaunchPlain(kStreams, 1)));
    EXPECT_EQ(tenant->reader.async_error_count(), 0u);
  }

  static constexpr uint32_t kStreams = 60;
  static inline std::atomic<int> streams_, most_, waits_;
  static inline std::atomic<bool> runs_;
  static inline decltype(Driver::cuStreamCreateWithPriority) make_;
  static inline decltype(Driver::cuStreamDestroy_v2) destroy_;
  const Driver driver_ = ThatCounts();
  TestingScheduler scheduler_{driver_, /*batches=*/false};
};

// As when an operator lowers the class of a pod that has a kernel without an end.
TEST_F(StreamChargesTest, StreamsThatChangeTheirBandKeepNobodyWaiting) {
  control::ShareTerms terms{};
  terms.priority = 1;
  scheduler_.shares = terms;
  const auto many = AddWithStreams();
  Run(many.get());
  terms.priority = 3;
  scheduler_.SetShares(*many, terms);
  ASSERT_TRUE(scheduler_.Reclaim(*many));  // comes behind it
  EXPECT_EQ(LaunchInAll(many.get()), kStreams) << "in their old band, if need be";
  EXPECT_EQ(waits_, 0);
  EndRun(many.get());
}

// They were a tenant's to take beyond its quota: it created many, destroyed them, and had its quota anew.
TEST_F(StreamChargesTest, Malicious_WhatTheDriverKeepsOfStreamsStaysPaidFor) {
  const uint64_t fresh_bytes = scheduler_.memory_in_use();
  auto first = AddWithStreams("first");
  constexpr uint64_t kPaidBytes = (kStreams - kFreeStreams) * kStreamTakesBytes;
  const uint64_t one_bytes = scheduler_.memory_in_use();
  ASSERT_GE(one_bytes, fresh_bytes + kPaidBytes);
  const auto end = [&](std::unique_ptr<TestingTenant> tenant) {
    tenant->doorbell.Reset();
    EXPECT_TRUE(scheduler_.WaitEnded(tenant->order.session_id).has_value());
  };
  // While it lives, too.
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    first->Post<wire::StreamDestroy>({StreamId{stream}});
  }
  EXPECT_TRUE(first->WaitDone(0, first->LaunchPlain(0, 1)));
  // What a fresh context has it need not pay for any more.
  constexpr uint64_t kKeptBytes = (kStreams - 32) * kStreamTakesBytes;
  EXPECT_TRUE(first->Never([&] { return scheduler_.memory_in_use() < fresh_bytes + kKeptBytes; }));
  end(std::move(first));
  EXPECT_GE(scheduler_.memory_in_use(), fresh_bytes + kKeptBytes);
  // The allocation's next program has paid for its own already.
  end(AddWithStreams("first"));
  auto second = AddWithStreams("first");
  EXPECT_LE(scheduler_.memory_in_use(), one_bytes);
  end(std::move(second));
  // Another one pays instead.
  const auto other = AddWithStreams("other");
  EXPECT_TRUE(other->Wait([&] { return scheduler_.memory_in_use() <= one_bytes; }));
  EXPECT_EQ(other->reader.async_error_count(), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
