// SPDX-License-Identifier: Apache-2.0
// Tenants of other versions of the wire, agents of other versions of the control protocol, and tokens.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/channel/socket.h"
#include "proto/control/testing/recording.h"
#include "proto/wire/session.h"

namespace gpuloom::scheduler {
namespace {

TEST_F(SchedulerTest, TenantsOfEveryOlderMinorAreServed) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const size_t hello_bytes[] = {
      wire::kShortestHelloBytes, offsetof(wire::Hello, token), offsetof(wire::Hello, token),
      sizeof(wire::Hello),       sizeof(wire::Hello),          sizeof(wire::Hello),
      sizeof(wire::Hello),       sizeof(wire::Hello),          sizeof(wire::Hello)};
  ASSERT_EQ(std::size(hello_bytes), wire::kWireMinor + 1u) << "one for each minor";
  for (uint16_t minor = 0; minor <= wire::kWireMinor; ++minor) {
    SCOPED_TRACE(minor);
    const wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, minor, 0, 0, 0, {}};
    Tenant tenant;
    ASSERT_TRUE(tenant.Connect(directory));
    ASSERT_TRUE(channel::SendMessage(tenant.socket.get(), &hello, hello_bytes[minor]));
    ASSERT_TRUE(tenant.ReceiveWelcome());
    EXPECT_TRUE(tenant.accepted()) << tenant.welcome.message;
    EXPECT_EQ(tenant.Order('m'), 0);
  }
}

TEST_F(SchedulerTest, EverySessionHasATokenOfItsOwn) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  std::set<std::string> tokens;
  for (int i = 0; i < 4; ++i) {
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(directory));
    const wire::SessionToken& token = tenant.welcome.token;
    EXPECT_FALSE(token.empty());
    tokens.emplace(reinterpret_cast<const char*>(token.bytes), sizeof(token.bytes));
  }
  EXPECT_EQ(tokens.size(), 4u);
}

TEST_F(SchedulerTest, TakingASessionUpAgainIsRefusedAndTheSessionGoesOn) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  wire::SessionToken guessed{};
  guessed.bytes[15] = 1;
  for (const wire::SessionToken& token : {tenant.welcome.token, guessed}) {
    const wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, token};
    Tenant again;
    ASSERT_TRUE(again.Connect(directory));
    ASSERT_TRUE(channel::SendMessage(again.socket.get(), &hello, sizeof(hello)));
    ASSERT_TRUE(again.ReceiveWelcome());
    EXPECT_EQ(again.welcome.admission, wire::Admission::kRefused);
    EXPECT_STREQ(again.welcome.message, "taking a session up again is not supported yet");
    EXPECT_TRUE(again.welcome.token.empty());
  }
  EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(State(&client, "a").sessions, 1u);
}

// Sends a Hello as it is on the socket; the bytes of the Answer's body.
std::vector<uint8_t> SayHello(control::Connection& connection, uint16_t major, uint16_t minor) {
  const struct {
    control::MessageHeader header{control::kType<control::ControlHello>, 1};
    control::ControlHello hello;
  } message{.hello = {major, minor}};
  EXPECT_TRUE(channel::SendMessage(connection.fd(), &message, sizeof(message)));
  control::Incoming in;
  EXPECT_TRUE(connection.Receive(&in));
  EXPECT_EQ(in.header.type, control::kType<control::Answer>);
  return {in.body, in.body + in.body_bytes};
}

TEST_F(SchedulerTest, AgentsOfEveryMinorAreServedAndToldOurVersion) {
  Start();
  const std::string path = root_ / control::kControlSocketName;
  for (const int one : {0, int{control::kControlMinor}, control::kControlMinor + 1, UINT16_MAX}) {
    const auto minor = static_cast<uint16_t>(one);
    SCOPED_TRACE(minor);
    control::Connection connection(channel::ConnectTo(path.c_str()));
    const std::vector<uint8_t> body = SayHello(connection, control::kControlMajor, minor);
    control::Answer answer{};
    ASSERT_EQ(body.size(), minor == 0 ? control::Answer::kShortestBytes : sizeof(answer));
    std::memcpy(&answer, body.data(), body.size());
    EXPECT_EQ(answer.ok, 1u) << answer.message;
    EXPECT_EQ(answer.device_memory_bytes, 16 * kGiB);
    EXPECT_EQ(answer.major, minor == 0 ? 0 : control::kControlMajor);
    EXPECT_EQ(answer.minor, minor == 0 ? 0 : control::kControlMinor);
  }
}

TEST_F(SchedulerTest, AnAgentOfAnotherMajorIsToldBothVersionsAndTheNextStep) {
  Start();
  const std::string path = root_ / control::kControlSocketName;
  const std::pair<int, const char*> kNextSteps[] = {
      {control::kControlMajor + 1, "delete its gpuloom-schedulers pod"},
      {control::kControlMajor - 1, "install the release that this scheduler comes from"}};
  for (const auto& [number, next_step] : kNextSteps) {
    const auto major = static_cast<uint16_t>(number);
    control::Connection connection(channel::ConnectTo(path.c_str()));
    const std::vector<uint8_t> body = SayHello(connection, major, 7);
    control::Answer answer{};
    ASSERT_EQ(body.size(), control::Answer::kShortestBytes) << "what every major understands";
    std::memcpy(&answer, body.data(), body.size());
    EXPECT_EQ(answer.ok, 0u);
    const std::string text = control::TextOf(answer.message);
    EXPECT_THAT(text, ::testing::HasSubstr("version " + control::VersionText(major, 7)));
    EXPECT_THAT(text, ::testing::HasSubstr(
                          control::VersionText(control::kControlMajor, control::kControlMinor)));
    EXPECT_THAT(text, ::testing::HasSubstr(next_step));
    // And it is not served.
    ASSERT_TRUE(connection.Send(2, control::ListAllocations{}));
    control::Incoming in;
    ASSERT_TRUE(connection.Receive(&in) && in.As(&answer));
    EXPECT_EQ(answer.ok, 0u);
  }
}

TEST_F(SchedulerTest, AnUnknownMessageIsRefusedAndTheConnectionGoesOn) {
  Start();
  control::Client client = Controller();
  control::Connection connection(channel::ConnectTo((root_ / control::kControlSocketName).c_str()));
  (void)SayHello(connection, control::kControlMajor, control::kControlMinor + 1);
  control::MessageHeader unknown{static_cast<uint32_t>(control::kMessages.size()) + 1, 0};
  // Nobody waits for an answer to the first.
  ASSERT_TRUE(channel::SendMessage(connection.fd(), &unknown, sizeof(unknown)));
  unknown.request = 8;
  ASSERT_TRUE(channel::SendMessage(connection.fd(), &unknown, sizeof(unknown)));
  control::Incoming in;
  control::Answer answer;
  ASSERT_TRUE(connection.Receive(&in) && in.As(&answer));
  EXPECT_EQ(in.header.request, 8u);
  EXPECT_EQ(answer.ok, 0u);
  EXPECT_THAT(answer.message, ::testing::HasSubstr("not known to control version"));
  ASSERT_TRUE(connection.Send(9, control::ListAllocations{}));
  ASSERT_TRUE(connection.Receive(&in) && in.As(&answer));
  EXPECT_EQ(in.header.request, 9u);
  EXPECT_EQ(answer.ok, 1u);
}

// What the agent and the command of another release have said, word for word.
class RecordedClient : public SchedulerTest, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(
    Releases, RecordedClient,
    ::testing::Values("control_3.0/agent_3.0", "control_3.0/run_3.0", "control_3.1/agent_3.1",
                      "control_3.1/run_3.1", "control_3.2/agent_3.2", "control_3.2/run_3.2",
                      "control_3.3/agent_3.3", "control_3.3/run_3.3", "control_3.3/status_3.3",
                      "control_3.4/agent_3.4", "control_3.4/run_3.4", "control_3.4/status_3.4",
                      "control_3.5/agent_3.5", "control_3.5/run_3.5", "control_3.5/status_3.5",
                      "control_3.6/agent_3.6", "control_3.6/run_3.6", "control_3.6/status_3.6",
                      "control_3.7/agent_3.7", "control_3.7/run_3.7", "control_3.7/status_3.7"),
    [](const auto& name) {
      std::string text = name.param;
      std::replace_if(
          text.begin(), text.end(), [](char c) { return !isalnum(c); }, '_');
      return text;
    });

TEST_P(RecordedClient, IsAnsweredAsByItsOwnScheduler) {
  Start();
  const control::Recording recording =
      control::ReadRecording(std::string(GPULOOM_GOLDEN "/") + GetParam() + ".txt");
  ASSERT_FALSE(recording.empty());
  const channel::UniqueFd socket =
      channel::ConnectTo((root_ / control::kControlSocketName).c_str());
  size_t states = 0;  // of allocations, or of a GPU
  for (const control::RecordedMessage& recorded : recording) {
    std::vector<uint8_t> bytes = recorded.bytes;
    const control::MessageHeader header = recorded.header();
    if (!recorded.from_scheduler) {
      if (header.type == control::kType<control::AddAllocation>) {
        // Where it was recorded is not here.
        control::AddAllocation add;
        ASSERT_EQ(bytes.size(), sizeof(header) + sizeof(add));
        std::memcpy(&add, bytes.data() + sizeof(header), sizeof(add));
        const std::filesystem::path directory = root_ / add.name;
        std::filesystem::create_directories(directory);
        control::SetText(add.directory, directory.c_str());
        std::memcpy(bytes.data() + sizeof(header), &add, sizeof(add));
      }
      ASSERT_TRUE(channel::SendMessage(socket.get(), bytes.data(), bytes.size()));
      continue;
    }
    std::vector<uint8_t> said(control::kMaxMessageBytes);
    const ptrdiff_t size = channel::ReceiveMessage(socket.get(), said.data(), said.size());
    if (std::string(GetParam()).starts_with("control_3.0")) {
      ASSERT_EQ(size, static_cast<ptrdiff_t>(bytes.size())) << "3.0 takes no other than its own";
    } else {
      ASSERT_GE(size, static_cast<ptrdiff_t>(bytes.size()));
    }
    control::Incoming then, now;
    std::memcpy(&then.header, bytes.data(), sizeof(header));
    std::memcpy(&now.header, said.data(), sizeof(header));
    then.body_bytes = now.body_bytes = static_cast<uint32_t>(bytes.size() - sizeof(header));
    std::memcpy(then.body, bytes.data() + sizeof(header), then.body_bytes);
    std::memcpy(now.body, said.data() + sizeof(header), now.body_bytes);
    EXPECT_EQ(now.header.type, then.header.type);
    EXPECT_EQ(now.header.request, then.header.request);
    control::Answer answer_then, answer_now;
    if (then.As(&answer_then) && now.As(&answer_now)) {
      EXPECT_EQ(answer_now.ok, answer_then.ok) << answer_now.message;
    }
    control::AllocationState state_then, state_now;
    if (then.As(&state_then) && now.As(&state_now)) {
      EXPECT_STREQ(state_now.name, state_then.name);
      EXPECT_STREQ(state_now.pod, state_then.pod);
      EXPECT_EQ(state_now.memory_quota_bytes, state_then.memory_quota_bytes);
      ++states;
    }
    control::GpuState gpu_then, gpu_now;
    if (then.As(&gpu_then) && now.As(&gpu_now)) {
      EXPECT_EQ(gpu_now.allocations, gpu_then.allocations);
      EXPECT_EQ(gpu_now.memory_promised_bytes, gpu_then.memory_promised_bytes);
      ++states;
    }
  }
  EXPECT_GT(states, 0u) << "the recording lists nothing";
}

}  // namespace
}  // namespace gpuloom::scheduler
