// SPDX-License-Identifier: Apache-2.0
// When the device itself tells a waiting tenant what is done, and when it must not.
#include <gtest/gtest.h>

#include <algorithm>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::EventId;
using wire::StreamId;
using wire::Ticket;

class CompletionWordsTest : public ::testing::Test {
 protected:
  ~CompletionWordsTest() override { TestingDriver::Release(); }

  void SetWaits(uint32_t threads) {
    auto* region = reinterpret_cast<wire::CommandRegion*>(tenant_->commands.data());
    std::atomic_ref<uint32_t>(region->head.tenant_waits).store(threads);
  }
  // Until `done` is, or in vain. The device may say so before the mark's event is recorded: what is answered after it was read
  // after that.
  std::vector<std::string> CallsUntil(uint32_t stream, Ticket done) {
    EXPECT_TRUE(tenant_->WaitDone(stream, done));
    EXPECT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
    return TestingDriver::TakeCalls();
  }
  static long Writes(const std::vector<std::string>& calls) {
    return std::count_if(calls.begin(), calls.end(),
                         [](const std::string& call) { return call.starts_with("write"); });
  }
  // Until so many marks have been made; collects what was called.
  bool Recorded(long count, std::vector<std::string>* calls) {
    return tenant_->Wait([&] {
      for (std::string& call : TestingDriver::TakeCalls()) calls->push_back(std::move(call));
      return std::count_if(calls->begin(), calls->end(), [](const std::string& call) {
               return call.starts_with("record");
             }) == count;
    });
  }
  // The words are registered behind the session's begin.
  void LetDeviceNotify() {
    SetWaits(1);
    ASSERT_TRUE(
        tenant_->Wait([&] { return Writes(CallsUntil(0, tenant_->LaunchPlain(0, 1))) != 0; }));
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_,
                              /*batches=*/false};  // each command is one call, and no other
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(CompletionWordsTest, TheDeviceTellsWhoWaitsAndNobodyElse) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  EXPECT_EQ(Writes(CallsUntil(0, tenant_->LaunchPlain(0, 1))), 0);
  LetDeviceNotify();
  const auto calls = CallsUntil(0, tenant_->LaunchPlain(0, 1));
  ASSERT_EQ(calls.size(), 3u) << ::testing::PrintToString(calls);
  EXPECT_TRUE(calls[0].starts_with("launch"));
  EXPECT_TRUE(calls[1].starts_with("write"));
  EXPECT_TRUE(calls[2].starts_with("record")) << "we must not know before the tenant does";
  SetWaits(0);
  EXPECT_EQ(Writes(CallsUntil(0, tenant_->LaunchPlain(0, 1))), 0);
}

TEST_F(CompletionWordsTest, PagesThatTheDeviceCannotReachDoNotStayRegistered) {
  Driver driver = driver_;
  driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr*, void*, unsigned) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  TestingScheduler scheduler(driver, /*batches=*/false);
  tenant_ = scheduler.AddTenant();
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  SetWaits(1);
  EXPECT_TRUE(tenant_->Wait([&] {
    return tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1)) &&
           TestingDriver::WasCalled("unregister");
  }));
}

TEST_F(CompletionWordsTest, NotWhileAnotherStreamsWorkIsUnfinished) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_TRUE(tenant_->CreateStream(1, /*nonblocking=*/true));
  ASSERT_NO_FATAL_FAILURE(LetDeviceNotify());
  TestingDriver::Hold();
  const Ticket other = tenant_->LaunchPlain(1, 1);
  std::vector<std::string> calls;
  ASSERT_TRUE(Recorded(1, &calls));
  const long before = Writes(calls);
  const Ticket mine = tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(Recorded(2, &calls));
  EXPECT_EQ(Writes(calls), before) << "it may have waited for the other stream";
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->WaitDone(1, other));
  EXPECT_TRUE(tenant_->WaitDone(0, mine));
}

TEST_F(CompletionWordsTest, EventsButNotThoseWithTimesNorThoseBehindNothing) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  tenant_->Post<wire::EventCreate>({EventId{1}, /*timing=*/0});
  tenant_->Post<wire::EventCreate>({EventId{2}, /*timing=*/1});
  ASSERT_NO_FATAL_FAILURE(LetDeviceNotify());
  EXPECT_EQ(Writes(CallsUntil(0, tenant_->Post<wire::EventRecord>({EventId{1}, StreamId{0}}))), 0);
  for (const uint32_t event : {1u, 2u}) {
    TestingDriver::Hold();
    SetWaits(0);
    tenant_->LaunchPlain(0, 1);
    std::vector<std::string> calls;
    ASSERT_TRUE(Recorded(1, &calls));
    const long before = Writes(calls);
    SetWaits(1);
    const Ticket record = tenant_->Post<wire::EventRecord>({EventId{event}, StreamId{0}});
    ASSERT_TRUE(Recorded(2, &calls));
    EXPECT_EQ(Writes(calls) - before, event == 1 ? 1 : 0) << ::testing::PrintToString(calls);
    TestingDriver::Release();
    EXPECT_TRUE(tenant_->WaitDone(0, record));
  }
}

// A thread waits for an older step then, and the device has the next one already.
TEST_F(CompletionWordsTest, NotOfAProgramThatKeepsAheadOfTheDevice) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_NO_FATAL_FAILURE(LetDeviceNotify());
  for (int turn = 0; turn < 2; ++turn) {
    TestingDriver::Hold();
    std::vector<std::string> calls;
    tenant_->LaunchPlain(0, 1);
    ASSERT_TRUE(Recorded(1, &calls));
    EXPECT_EQ(Writes(calls), 1);
    // Of commands that take long no more than two go at a time.
    const Ticket next = tenant_->LaunchPlain(0, 1);
    ASSERT_TRUE(Recorded(2, &calls));
    EXPECT_EQ(Writes(calls), 1) << "the first may be what it waits for, and no later one";
    TestingDriver::Release();
    EXPECT_EQ(Writes(CallsUntil(0, next)), 0);
    EXPECT_EQ(Writes(CallsUntil(0, tenant_->LaunchPlain(0, 1))), 1)
        << "and again when it has caught up";
  }
}

// The tenant may give the id to a new stream as soon as it sees the old one's end.
TEST_F(CompletionWordsTest, NotTheEndOfADestroyedStream) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_NO_FATAL_FAILURE(LetDeviceNotify());
  for (int turn = 0; turn < 2; ++turn) {
    ASSERT_TRUE(tenant_->CreateStream(1, /*nonblocking=*/true)) << "the id is in use";
    TestingDriver::TakeCalls();
    TestingDriver::Hold();
    tenant_->LaunchPlain(1, 1);
    std::vector<std::string> calls;
    ASSERT_TRUE(Recorded(1, &calls));
    ASSERT_EQ(Writes(calls), 1) << "somebody waits for the launch";
    const Ticket end = tenant_->Post<wire::StreamDestroy>({StreamId{1}});
    ASSERT_TRUE(Recorded(2, &calls));
    EXPECT_EQ(Writes(calls), 1);
    TestingDriver::Release();
    ASSERT_TRUE(tenant_->WaitDone(1, end));
  }
}

// Who sees the launch done may ask for the time between its events.
TEST_F(CompletionWordsTest, NotOfAGraphThatRecordsEvents) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  tenant_->Post<wire::EventCreate>({EventId{1}, /*timing=*/1});
  ASSERT_NO_FATAL_FAILURE(LetDeviceNotify());
  for (const bool records : {false, true}) {
    TestingGraph graph;
    graph.AddKernel(1, PlainParams());
    if (records) graph.AddEvent(wire::GraphNodeKind::kEventRecord, 1);
    const wire::GraphId id{records ? 2u : 1u};
    ASSERT_EQ(
        tenant_->Call<wire::GraphInstantiate>({id, 0, wire::HostPtr{0}, 0}, nullptr, graph.Block()),
        CUDA_SUCCESS);
    TestingDriver::TakeCalls();
    EXPECT_EQ(Writes(CallsUntil(0, tenant_->Post<wire::GraphLaunch>({id, StreamId{0}}))),
              records ? 0 : 1);
  }
}

TEST_F(CompletionWordsTest, NotWhereSessionsShareEvents) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  tenant_->Post<wire::EventCreate>({EventId{1}, /*timing=*/0});
  ASSERT_NO_FATAL_FAILURE(LetDeviceNotify());
  ASSERT_EQ(tenant_->Call<wire::EventShare>({EventId{1}}), CUDA_SUCCESS);
  TestingDriver::TakeCalls();
  EXPECT_EQ(Writes(CallsUntil(0, tenant_->LaunchPlain(0, 1))), 0);
}

TEST_F(CompletionWordsTest, TheDriverLetsGoWhenNothingRuns) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_NO_FATAL_FAILURE(LetDeviceNotify());
  TestingDriver::TakeCalls();
  const uint64_t id = tenant_->order.session_id;
  tenant_.reset();
  ASSERT_TRUE(scheduler_.WaitEnded(id).has_value());
  EXPECT_TRUE(TestingScheduler::WaitUntil([] { return TestingDriver::WasCalled("unregister"); }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

}  // namespace
}  // namespace gpuloom::executor
