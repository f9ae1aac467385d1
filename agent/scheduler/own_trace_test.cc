// SPDX-License-Identifier: Apache-2.0
// Tenants' own traces: who may, whose records they get, and that no tenant and no executor keeps
// others from anything by them.
#include "agent/scheduler/own_trace.h"

#include <optional>

#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/channel/socket.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kLongMs = wire::kMaxOwnTraceMs;
constexpr int32_t kPid = 4321;
constexpr uint64_t kNamespace = 77;

// A tenant that requests a trace.
class Requester {
 public:
  Requester(const std::string& directory, uint32_t time_ms) {
    const wire::Hello hello{
        wire::kTraceMagic, wire::kWireMajor, wire::kWireMinor, kPid, time_ms, kNamespace, {}};
    EXPECT_TRUE(tenant_.Connect(directory));
    EXPECT_TRUE(channel::SendMessage(tenant_.socket.get(), &hello, sizeof(hello)));
  }
  // Empty: it was accepted.
  std::string Refusal() {
    channel::UniqueFd none[channel::kMaxFds];
    size_t fd_count = 0;
    const ptrdiff_t size = channel::ReceiveMessage(tenant_.socket.get(), &answer, sizeof(answer),
                                                   none, channel::kMaxFds, &fd_count);
    EXPECT_EQ(size, static_cast<ptrdiff_t>(sizeof(answer)));
    EXPECT_EQ(answer.magic, wire::kTraceMagic);
    EXPECT_EQ(fd_count, 0u) << "no memory of the node's is the tenant's";
    return answer.admission == wire::Admission::kAccepted ? "" : answer.message;
  }
  // All that comes until the scheduler hangs up.
  std::vector<uint8_t> Body() {
    std::vector<uint8_t> body;
    for (;;) {
      uint8_t chunk[wire::kTraceChunkBytes];
      const ptrdiff_t size =
          channel::ReceiveMessage(tenant_.socket.get(), chunk, sizeof(chunk), nullptr, 0, nullptr);
      if (size < 0) return body;
      body.insert(body.end(), chunk, chunk + size);
    }
  }
  void Say(char byte) { EXPECT_TRUE(channel::SendMessage(tenant_.socket.get(), &byte, 1)); }
  bool HungUp() const { return tenant_.HungUp(); }
  void Leave() { tenant_.Leave(); }
  bool is_waiting() const { return !tenant_.HungUp(std::chrono::milliseconds(0)); }

  wire::TraceAnswer answer{};

 private:
  Tenant tenant_;
};

class OwnTraceTest : public SchedulerTest {
 protected:
  void SetUp() override {
    Start();
    client_ = Controller();
  }
  bool Bind(const std::string& name, const std::string& domain, uint32_t trace) {
    control::BindAllocation message = BindMessage(name, domain, kGiB);
    message.trace = trace;
    return client_.BindAllocation(message, &error_);
  }
  // An allocation whose programs may trace themselves.
  std::string Tracing(const std::string& name, const std::string& domain) {
    std::string directory = Add(&client_, name);
    EXPECT_TRUE(Bind(name, domain, static_cast<uint32_t>(control::TraceTerms::kOwn))) << error_;
    return directory;
  }
  static bool Attach(Tenant* tenant, const std::string& directory,
                     uint64_t pid_namespace = kNamespace) {
    const wire::Hello hello{
        wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, kPid, 0, pid_namespace, {}};
    return tenant->Connect(directory) &&
           channel::SendMessage(tenant->socket.get(), &hello, sizeof(hello)) &&
           tenant->ReceiveWelcome() && tenant->accepted();
  }
  static bool Records(Tenant* tenant, uint32_t traces) {
    return WaitFor([&] { return tenant->OrderForNumber('O') == traces; });
  }
  // False when it has ended before it was seen.
  static bool IsSeenRecording(Tenant* tenant, const Requester& requester) {
    bool records = false;
    EXPECT_TRUE(WaitFor([&] {
      records = tenant->OrderForNumber('O') == 1;
      return records || !requester.is_waiting();
    }));
    return records;
  }
  static std::vector<uint64_t> SessionsOf(const wire::TraceAnswer& answer,
                                          const std::vector<uint8_t>& body) {
    EXPECT_EQ(body.size(),
              answer.header_bytes + answer.records * answer.record_bytes + answer.name_bytes);
    std::vector<uint64_t> sessions;
    for (uint64_t i = 0; i < answer.records; ++i) {
      wire::TraceRecord record;
      std::memcpy(&record, body.data() + answer.header_bytes + i * answer.record_bytes,
                  sizeof(record));
      sessions.push_back(record.session_id);
    }
    return sessions;
  }

  control::Client client_;
  std::string error_;
};

TEST_F(OwnTraceTest, UnlessThePolicySaysSoItIsRefused) {
  Tenant tenant;
  const std::string directory = Allocate(&client_, "a", "red");
  ASSERT_TRUE(tenant.Attach(directory));
  Requester requester(directory, 1);
  EXPECT_THAT(requester.Refusal(), HasSubstr("can write `trace: own` for its namespace"));
  EXPECT_TRUE(requester.HungUp());
  EXPECT_EQ(tenant.OrderForNumber('O'), 0u);
  ExpectServed(directory);
  EXPECT_THAT(Requester(Add(&client_, "unbound"), 1).Refusal(), HasSubstr("not resolved yet"));
  EXPECT_FALSE(Bind("a", "red", control::kTraceTerms));
  EXPECT_THAT(error_, HasSubstr("3 says nothing about traces"));
}

TEST_F(OwnTraceTest, ATenantGetsItsOwnSessionsAndNothingOfOthers) {
  Tenant neighbour, one, other, elsewhere;
  ASSERT_TRUE(Attach(&neighbour, Tracing("b", "red")));
  const std::string directory = Tracing("a", "red");
  ASSERT_TRUE(Attach(&one, directory));
  ASSERT_TRUE(Attach(&other, directory, kNamespace + 1));
  ASSERT_TRUE(Attach(&elsewhere, Tracing("c", "blue")));
  Requester requester(directory, 1);
  ASSERT_EQ(requester.Refusal(), "");
  const wire::TraceAnswer& answer = requester.answer;
  EXPECT_EQ(answer.gpu_uuid[0], 0xab);
  ASSERT_EQ(answer.session_count, 2u);
  EXPECT_EQ(answer.sessions[0].session_id, one.welcome.session_id);
  EXPECT_EQ(answer.sessions[0].pid, kPid);
  EXPECT_EQ(answer.sessions[1].session_id, other.welcome.session_id);
  EXPECT_EQ(answer.sessions[1].pid, 0) << "in another namespace the number means another process";
  EXPECT_EQ(SessionsOf(answer, requester.Body()),
            (std::vector<uint64_t>{one.welcome.session_id, other.welcome.session_id}));
}

TEST_F(OwnTraceTest, ProcessesThatBeginMeanwhileAreNamed) {
  // On a slow machine its time is over before: then once more, for longer.
  uint32_t named = 0;
  for (uint32_t time_ms = 500; named < 2 && time_ms <= 32'000; time_ms *= 2) {
    Tenant first, later, neighbour;
    const std::string domain = "domain-" + std::to_string(time_ms);
    const std::string directory = Tracing("a-" + domain, domain);
    ASSERT_TRUE(Attach(&first, directory));
    Requester requester(directory, time_ms);
    if (!IsSeenRecording(&first, requester)) continue;
    ASSERT_TRUE(Attach(&later, directory));
    ASSERT_TRUE(Attach(&neighbour, Tracing("b-" + domain, domain)));
    ASSERT_EQ(requester.Refusal(), "");
    named = requester.answer.session_count;
    ASSERT_TRUE(named == 1 || named == 2);
    EXPECT_EQ(requester.answer.sessions[named - 1].session_id,
              (named == 2 ? later : first).welcome.session_id);
  }
  EXPECT_EQ(named, 2u);
}

TEST_F(OwnTraceTest, WithoutAProgramThereIsNothingToTrace) {
  Tenant neighbour;
  ASSERT_TRUE(Attach(&neighbour, Tracing("b", "red")));
  EXPECT_THAT(Requester(Tracing("a", "red"), 1).Refusal(),
              HasSubstr("no program of this container uses the GPU now"));
}

TEST_F(OwnTraceTest, Malicious_RequestsWithoutSenseEndOnlyThemselves) {
  Tenant tenant;
  const std::string directory = Tracing("a", "red");
  ASSERT_TRUE(Attach(&tenant, directory));
  for (const uint32_t time_ms : {0u, wire::kMaxOwnTraceMs + 1, UINT32_MAX}) {
    EXPECT_THAT(Requester(directory, time_ms).Refusal(),
                HasSubstr(std::to_string(time_ms) + " ms"));
  }
  // As short as a Hello may be: no time at all; shorter; of another version.
  wire::Hello hello{wire::kTraceMagic, wire::kWireMajor, wire::kWireMinor, 0, 1, 0, {}};
  for (const size_t bytes : {size_t{1}, wire::kShortestHelloBytes - 1}) {
    Tenant requester;
    ASSERT_TRUE(requester.Connect(directory));
    ASSERT_TRUE(channel::SendMessage(requester.socket.get(), &hello, bytes));
    EXPECT_TRUE(requester.HungUp());
  }
  hello.minor = wire::kWireMinor + 1;
  Tenant newer;
  wire::TraceAnswer answer{};
  ASSERT_TRUE(newer.Connect(directory));
  ASSERT_TRUE(channel::SendMessage(newer.socket.get(), &hello, sizeof(hello)));
  ASSERT_EQ(channel::ReceiveMessage(newer.socket.get(), &answer, sizeof(answer)),
            static_cast<ptrdiff_t>(sizeof(answer)));
  EXPECT_EQ(answer.admission, wire::Admission::kWrongVersion);
  EXPECT_EQ(Requester(directory, 1).Refusal(), "");
  ExpectServed(directory);
}

TEST_F(OwnTraceTest, Malicious_OneAtATimeInADomainAndThenAPause) {
  Tenant one, neighbour, elsewhere;
  const std::string directory = Tracing("a", "red");
  const std::string of_neighbour = Tracing("b", "red");
  const std::string of_elsewhere = Tracing("c", "blue");
  ASSERT_TRUE(Attach(&one, directory));
  ASSERT_TRUE(Attach(&neighbour, of_neighbour));
  ASSERT_TRUE(Attach(&elsewhere, of_elsewhere));
  Requester first(directory, kLongMs);
  ASSERT_TRUE(Records(&one, 1));
  EXPECT_THAT(Requester(directory, 1).Refusal(),
              HasSubstr("this container is being traced already"));
  EXPECT_THAT(Requester(of_neighbour, 1).Refusal(),
              HasSubstr("the trust domain of this container is"));
  EXPECT_EQ(Requester(of_elsewhere, 1).Refusal(), "") << "another domain waits for nobody";
  EXPECT_TRUE(first.is_waiting()) << "what others were refused has not ended it";
  first.Leave();
  ASSERT_TRUE(Records(&one, 0)) << "recording ends with who asked";
  EXPECT_THAT(Requester(directory, 1).Refusal(), HasSubstr("has traced just now: it may again in"));
  EXPECT_EQ(Requester(of_neighbour, 1).Refusal(), "");
  ExpectServed(directory);
}

TEST_F(OwnTraceTest, Malicious_WhoSpeaksMeanwhileGetsNothing) {
  Tenant tenant;
  const std::string directory = Tracing("a", "red");
  ASSERT_TRUE(Attach(&tenant, directory));
  Requester requester(directory, kLongMs);
  ASSERT_TRUE(Records(&tenant, 1));
  requester.Say('x');
  EXPECT_TRUE(requester.HungUp());
  EXPECT_TRUE(Records(&tenant, 0));
  ExpectServed(directory);
}

TEST_F(OwnTraceTest, Malicious_NobodyKeepsTheOperatorFromTracing) {
  Tenant tenant, neighbour;
  const std::string directory = Tracing("a", "red");
  const std::string of_neighbour = Tracing("b", "red");
  ASSERT_TRUE(Attach(&tenant, directory));
  ASSERT_TRUE(Attach(&neighbour, of_neighbour));
  Requester requester(directory, kLongMs);
  ASSERT_TRUE(Records(&tenant, 1));
  ASSERT_TRUE(client_.BeginTrace(60'000, &error_)) << error_;
  EXPECT_THAT(requester.Refusal(), HasSubstr("the node's operator traces this GPU now"));
  EXPECT_THAT(Requester(of_neighbour, 1).Refusal(), HasSubstr("the node's operator traces"));
  control::Client::Trace trace;
  ASSERT_TRUE(client_.EndTrace(&trace, &error_)) << error_;
  ASSERT_EQ(trace.parts.size(), 1u);
  EXPECT_EQ(static_cast<control::TraceEnd>(trace.parts[0].part.end), control::TraceEnd::kWhole);
  EXPECT_EQ(trace.sessions.size(), 2u);
  EXPECT_EQ(Requester(of_neighbour, 1).Refusal(), "");
}

TEST_F(OwnTraceTest, APolicyThatNoLongerAllowsItEndsIt) {
  Tenant tenant;
  const std::string directory = Tracing("a", "red");
  ASSERT_TRUE(Attach(&tenant, directory));
  Requester requester(directory, kLongMs);
  ASSERT_TRUE(Records(&tenant, 1));
  ASSERT_TRUE(Bind("a", "red", 0)) << error_;
  EXPECT_THAT(requester.Refusal(), HasSubstr("the policy does not let this container trace"));
  EXPECT_TRUE(Records(&tenant, 0));
  ExpectServed(directory);
}

TEST_F(OwnTraceTest, ItEndsWithItsAllocation) {
  Tenant tenant, neighbour;
  const std::string directory = Tracing("a", "red");
  const std::string of_neighbour = Tracing("b", "red");
  ASSERT_TRUE(Attach(&tenant, directory));
  ASSERT_TRUE(Attach(&neighbour, of_neighbour));
  Requester requester(directory, kLongMs);
  ASSERT_TRUE(Records(&neighbour, 1));
  ASSERT_TRUE(client_.RemoveAllocation("a", &error_)) << error_;
  EXPECT_THAT(requester.Refusal(), HasSubstr("allocation was removed"));
  EXPECT_TRUE(Records(&neighbour, 0));
  EXPECT_EQ(Requester(of_neighbour, 1).Refusal(), "");
}

TEST_F(OwnTraceTest, AnExecutorThatEndsIsSaidToHave) {
  Tenant tenant;
  const std::string directory = Tracing("a", "red");
  ASSERT_TRUE(Attach(&tenant, directory));
  Requester requester(directory, kLongMs);
  ASSERT_TRUE(Records(&tenant, 1));
  tenant.SendByte('F');
  EXPECT_EQ(requester.Refusal(), "the executor has ended: its programs must be started again");
  ExpectServed(directory);
}

// An executor with the profiler attached is not kept; while it records it is.
TEST_F(OwnTraceTest, AnExecutorStaysWhileItRecords) {
  // On a slow machine its time is over before its tenant leaves: then once more, for longer.
  bool records = false;
  for (uint32_t time_ms = 200; !records && time_ms <= 25'600; time_ms *= 2) {
    Tenant tenant;
    const std::string name = "a" + std::to_string(time_ms);
    const std::string directory = Tracing(name, name);
    ASSERT_TRUE(Bind(name, name, static_cast<uint32_t>(control::TraceTerms::kOwnByCupti)))
        << error_;
    ASSERT_TRUE(Attach(&tenant, directory));
    Requester requester(directory, time_ms);
    records = IsSeenRecording(&tenant, requester);
    tenant.Leave();
    EXPECT_EQ(requester.Refusal(), "");
    EXPECT_EQ(requester.answer.records, 1u);
    EXPECT_TRUE(WaitFor([] { return Children().empty(); }));
  }
  EXPECT_TRUE(records);
}

TEST_F(OwnTraceTest, Malicious_AnExecutorsCountsAreCutToWhatThereIs) {
  Tenant tenant;
  const std::string directory = Tracing("a", "red");
  ASSERT_TRUE(Attach(&tenant, directory));
  EXPECT_EQ(tenant.Order('^'), 'k');
  Requester requester(directory, 1);
  ASSERT_EQ(requester.Refusal(), "");
  EXPECT_EQ(requester.answer.records, wire::kOwnTraceRecords);
  EXPECT_EQ(requester.answer.name_bytes, wire::kTraceNameBytes);
  (void)SessionsOf(requester.answer, requester.Body());
}

class ImpatientOwnTraceTest : public OwnTraceTest {
 protected:
  void SetUp() override {}
  void StartWithPatience(std::chrono::milliseconds patience) {
    options_.trace_patience = patience;
    OwnTraceTest::SetUp();
  }
};

TEST_F(ImpatientOwnTraceTest, Malicious_WhoDoesNotReadHoldsNothing) {
  // That of the honest one's executor, too.
  StartWithPatience(std::chrono::seconds(5));
  Tenant tenant, neighbour;
  const std::string directory = Tracing("a", "red");
  const std::string of_neighbour = Tracing("b", "red");
  ASSERT_TRUE(Attach(&tenant, directory));
  ASSERT_TRUE(Attach(&neighbour, of_neighbour));
  EXPECT_EQ(tenant.Order('^'), 'k');
  Requester requester(directory, 1);
  ASSERT_TRUE(requester.HungUp());
  EXPECT_EQ(Requester(of_neighbour, 1).Refusal(), "");
  ASSERT_EQ(requester.Refusal(), "");
  EXPECT_LT(requester.Body().size(), wire::kOwnTraceRecords) << "only what the socket holds";
  ExpectServed(directory);
}

TEST_F(ImpatientOwnTraceTest, Malicious_AnExecutorThatSaysNothingIsNotWaitedFor) {
  StartWithPatience(std::chrono::milliseconds(300));
  Tenant tenant;
  const std::string directory = Tracing("a", "red");
  ASSERT_TRUE(Attach(&tenant, directory));
  EXPECT_EQ(tenant.Order('Q'), 'k');
  EXPECT_EQ(Requester(directory, 1).Refusal(), "the executor did not answer in time");
  ExpectServed(directory);
}

}  // namespace
}  // namespace gpuloom::scheduler
