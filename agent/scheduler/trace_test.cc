// SPDX-License-Identifier: Apache-2.0
// Traces: who records, for whom, until when; and that nobody waits for an executor that does not
// play along.
#include <algorithm>

#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/channel/region.h"
#include "proto/sync/testing/wait_for.h"
#include "proto/wire/trace_region.h"

namespace gpuloom::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kLongMs = 60'000;
constexpr uint64_t kMillisecondNs = 1'000'000;  // what the scripted executor reports at once

class TraceTest : public SchedulerTest {
 protected:
  void SetUp() override {
    Start();
    client_ = Controller();
  }
  void Begin(control::Client* client, uint32_t limit_ms = kLongMs) {
    std::string error;
    EXPECT_TRUE(client->BeginTrace(limit_ms, &error)) << error;
  }
  control::Client::Trace End(control::Client* client) {
    control::Client::Trace trace;
    std::string error;
    EXPECT_TRUE(client->EndTrace(&trace, &error)) << error;
    return trace;
  }
  static std::string Refusal(control::Client* client, uint32_t limit_ms) {
    std::string error;
    EXPECT_FALSE(client->BeginTrace(limit_ms, &error));
    return error;
  }
  static control::TraceEnd EndOf(const control::Client::Part& part) {
    return static_cast<control::TraceEnd>(part.part.end);
  }
  // The sessions that the part has records of.
  static std::vector<uint64_t> Recorded(const control::Client::Part& part) {
    channel::Mapping mapping;
    EXPECT_TRUE(mapping.Map(part.region.get(), wire::kTraceRegionBytes,
                            channel::Mapping::Access::kReadOnly));
    const auto* header = reinterpret_cast<const wire::TraceHeader*>(mapping.data());
    const auto* records =
        reinterpret_cast<const wire::TraceRecord*>(mapping.data() + wire::kTraceRecordsAt);
    std::vector<uint64_t> sessions;
    for (uint64_t i = 0; i < header->records; ++i) sessions.push_back(records[i].session_id);
    return sessions;
  }
  static bool StopsRecording(Tenant* tenant) {
    return WaitFor([&] { return tenant->OrderForNumber('O') == 0; });
  }

  control::Client client_;
};

TEST_F(TraceTest, EachExecutorHasAPartAndEachSessionAName) {
  Tenant one, two, elsewhere;
  ASSERT_TRUE(one.Attach(Allocate(&client_, "a", "red")));
  ASSERT_TRUE(two.Attach(Allocate(&client_, "b", "red")));
  ASSERT_TRUE(elsewhere.Attach(Allocate(&client_, "c", "blue")));
  Begin(&client_);
  const control::Client::Trace trace = End(&client_);
  ASSERT_EQ(trace.parts.size(), 2u);
  EXPECT_EQ(trace.lack, "");
  ASSERT_EQ(trace.sessions.size(), 3u);
  for (const control::Client::Part& part : trace.parts) {
    EXPECT_EQ(EndOf(part), control::TraceEnd::kWhole);
    std::vector<uint64_t> named;
    for (const control::TraceSession& session : trace.sessions) {
      if (session.executor_id == part.part.executor_id) named.push_back(session.session_id);
    }
    EXPECT_EQ(Recorded(part), named);
    EXPECT_EQ(named.size(), part.part.trust_domain == std::string("red") ? 2u : 1u);
  }
  EXPECT_STREQ(trace.sessions[0].pod_namespace, "team-a");
  EXPECT_STREQ(trace.sessions[0].pod, "a");
  EXPECT_STREQ(trace.sessions[0].container, "main");
}

TEST_F(TraceTest, WhoeverAskedMayReadThePartsAndNotWriteThem) {
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client_, "a", "red")));
  Begin(&client_);
  const control::Client::Trace trace = End(&client_);
  ASSERT_EQ(trace.parts.size(), 1u);
  channel::Mapping mapping;
  EXPECT_FALSE(mapping.Map(trace.parts[0].region.get(), wire::kTraceRegionBytes,
                           channel::Mapping::Access::kReadWrite));
  EXPECT_TRUE(channel::IsSealedMemory(trace.parts[0].region.get(), wire::kTraceRegionBytes));
}

TEST_F(TraceTest, SessionsAreChargedForWhatTheyUsedMeanwhile) {
  Tenant before, meanwhile;
  const auto is_charged = [](const auto& state) { return state.time.compute_ns == kMillisecondNs; };
  ASSERT_TRUE(before.Attach(Allocate(&client_, "a", "red")));
  ASSERT_TRUE(meanwhile.Attach(Allocate(&client_, "b", "red")));
  EXPECT_EQ(before.Order('1'), 'k');
  ASSERT_TRUE(Becomes(&client_, "a", is_charged));
  Begin(&client_);
  EXPECT_EQ(meanwhile.Order('1'), 'k');
  ASSERT_TRUE(Becomes(&client_, "b", is_charged));
  const control::Client::Trace trace = End(&client_);
  ASSERT_EQ(trace.sessions.size(), 2u);
  EXPECT_EQ(trace.sessions[0].time.compute_ns, 0u);
  EXPECT_EQ(trace.sessions[1].time.compute_ns, kMillisecondNs);
}

// A profiler that is attached stays so, and makes launches slower.
TEST_F(TraceTest, AnExecutorEndsAfterItWithItsLastSession) {
  Tenant busy, idle;
  const std::string of_busy = Allocate(&client_, "a", "red");
  const std::string of_idle = Allocate(&client_, "b", "blue");
  ASSERT_TRUE(busy.Attach(of_busy));
  ASSERT_TRUE(idle.Attach(of_idle));
  const auto traced = Children();
  ASSERT_EQ(traced.size(), 2u);
  Begin(&client_);
  idle.Leave();
  ASSERT_TRUE(Becomes(&client_, "b", [](const auto& state) { return state.sessions == 0; }));
  (void)End(&client_);
  EXPECT_TRUE(WaitFor([] { return Children().size() == 1; })) << "the idle one has not ended";
  const auto of_red = static_cast<pid_t>(busy.OrderForNumber('p'));
  Tenant next;
  ASSERT_TRUE(next.Attach(of_busy));
  EXPECT_EQ(static_cast<pid_t>(next.OrderForNumber('p')), of_red)
      << "it serves as long as it is used";
  busy.Leave();
  next.Leave();
  EXPECT_TRUE(WaitFor([&] { return kill(of_red, 0) != 0; }));
  ExpectServed(of_busy);
}

TEST_F(TraceTest, WhatBeginsMeanwhileIsInItAndWhatEndsStaysInIt) {
  Tenant first, later, elsewhere;
  const std::string directory = Allocate(&client_, "a", "red");
  ASSERT_TRUE(first.Attach(directory));
  Begin(&client_);
  ASSERT_TRUE(later.Attach(directory));
  ASSERT_TRUE(elsewhere.Attach(Allocate(&client_, "b", "blue")));
  EXPECT_EQ(later.Order('1'), 'k');
  later.Leave();
  ASSERT_TRUE(Becomes(&client_, "a", [](const auto& state) { return state.sessions == 1; }));
  EXPECT_EQ(elsewhere.OrderForNumber('O'), 1u);
  const control::Client::Trace trace = End(&client_);
  EXPECT_EQ(trace.parts.size(), 2u);
  ASSERT_EQ(trace.sessions.size(), 3u);
  EXPECT_EQ(trace.sessions[1].time.compute_ns, kMillisecondNs);
}

TEST_F(TraceTest, WithoutAnyExecutorItIsEmpty) {
  Begin(&client_);
  const control::Client::Trace trace = End(&client_);
  EXPECT_TRUE(trace.parts.empty());
  EXPECT_TRUE(trace.sessions.empty());
}

TEST_F(TraceTest, Malicious_TwoAtOnceAndTheSecondIsRefused) {
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client_, "a", "red")));
  control::Client other = Controller();
  Begin(&client_);
  EXPECT_THAT(Refusal(&other, kLongMs), HasSubstr("being traced already"));
  EXPECT_THAT(Refusal(&client_, kLongMs), HasSubstr("being traced already"));
  control::Client::Trace stolen;
  std::string error;
  EXPECT_FALSE(other.EndTrace(&stolen, &error)) << "another's";
  EXPECT_EQ(End(&client_).parts.size(), 1u);
  EXPECT_FALSE(client_.EndTrace(&stolen, &error)) << "twice";
  Begin(&other);
  EXPECT_EQ(End(&other).parts.size(), 1u);
}

TEST_F(TraceTest, Malicious_DurationsWithoutSenseAreRefused) {
  for (const uint32_t limit_ms : {0u, control::kMaxTraceMs + 1, UINT32_MAX}) {
    EXPECT_THAT(Refusal(&client_, limit_ms), HasSubstr(std::to_string(limit_ms) + " ms"));
  }
  Begin(&client_, control::kMaxTraceMs);
  End(&client_);
}

TEST_F(TraceTest, WhoeverAskedMayDieAndTheNextIsServed) {
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client_, "a", "red")));
  {
    control::Client dies = Controller();
    Begin(&dies);
    EXPECT_EQ(tenant.OrderForNumber('O'), 1u);
  }
  EXPECT_TRUE(StopsRecording(&tenant));
  Begin(&client_);
  EXPECT_EQ(tenant.OrderForNumber('O'), 1u);
  EXPECT_EQ(End(&client_).parts.size(), 1u);
}

TEST_F(TraceTest, TheLimitEndsRecordingAndWhatThereIsCanBeHad) {
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client_, "a", "red")));
  Begin(&client_, 1);
  EXPECT_TRUE(StopsRecording(&tenant));
  const control::Client::Trace trace = End(&client_);
  ASSERT_EQ(trace.parts.size(), 1u);
  EXPECT_EQ(EndOf(trace.parts[0]), control::TraceEnd::kWhole);
}

TEST_F(TraceTest, AnExecutorThatDiesIsSaidToHaveAndItsRecordsAreThere) {
  Tenant dies, lives;
  ASSERT_TRUE(dies.Attach(Allocate(&client_, "a", "red")));
  ASSERT_TRUE(lives.Attach(Allocate(&client_, "b", "blue")));
  Begin(&client_);
  dies.SendByte('F');
  EXPECT_TRUE(dies.HungUp());
  const control::Client::Trace trace = End(&client_);
  ASSERT_EQ(trace.parts.size(), 2u);
  const bool red_is_first = trace.parts[0].part.trust_domain == std::string("red");
  const control::Client::Part& red = trace.parts[red_is_first ? 0 : 1];
  const control::Client::Part& blue = trace.parts[red_is_first ? 1 : 0];
  EXPECT_EQ(EndOf(red), control::TraceEnd::kLost);
  EXPECT_THAT(red.part.message, HasSubstr("device context lost"));
  EXPECT_EQ(Recorded(red).size(), 1u);
  EXPECT_EQ(EndOf(blue), control::TraceEnd::kWhole);
  EXPECT_EQ(trace.sessions.size(), 2u);
}

TEST_F(TraceTest, Malicious_AnExecutorThatNeverEndsStartingAgainFillsNoMemory) {
  const std::string directory = Allocate(&client_, "a", "red");
  Begin(&client_);
  for (size_t i = 0; i < kMaxTracePartsOfDomain + 2; ++i) {
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(directory));
    tenant.SendByte('x');
    EXPECT_TRUE(tenant.HungUp());
  }
  const control::Client::Trace trace = End(&client_);
  EXPECT_EQ(trace.parts.size(), kMaxTracePartsOfDomain);
  EXPECT_EQ(trace.lack, "2 executors were not recorded");
}

TEST_F(TraceTest, Malicious_WhatIsSaidOfOtherTracesIsIgnored) {
  Tenant liar, honest;
  ASSERT_TRUE(liar.Attach(Allocate(&client_, "a", "red")));
  const std::string directory = Allocate(&client_, "b", "blue");
  ASSERT_TRUE(honest.Attach(directory));
  EXPECT_EQ(liar.Order('P'), 'k');
  Begin(&client_);
  EXPECT_EQ(liar.Order('P'), 'k');
  EXPECT_EQ(honest.OrderForNumber('O'), 1u) << "it still records";
  const control::Client::Trace trace = End(&client_);
  ASSERT_EQ(trace.parts.size(), 2u);
  for (const auto& part : trace.parts) EXPECT_EQ(EndOf(part), control::TraceEnd::kWhole);
  EXPECT_EQ(liar.Order('P'), 'k');
  ExpectServed(directory);
}

class SilentTraceTest : public TraceTest {
 protected:
  void SetUp() override {
    options_.trace_patience = std::chrono::milliseconds(100);
    TraceTest::SetUp();
  }
};

TEST_F(SilentTraceTest, Malicious_AnExecutorThatSaysNothingIsNotWaitedFor) {
  Tenant silent;
  const std::string directory = Allocate(&client_, "a", "red");
  ASSERT_TRUE(silent.Attach(directory));
  EXPECT_EQ(silent.Order('Q'), 'k');
  Begin(&client_);
  control::Client::Trace trace = End(&client_);
  ASSERT_EQ(trace.parts.size(), 1u);
  EXPECT_EQ(EndOf(trace.parts[0]), control::TraceEnd::kSilent);
  ExpectServed(directory);
}

}  // namespace
}  // namespace gpuloom::scheduler
