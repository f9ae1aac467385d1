// SPDX-License-Identifier: Apache-2.0
// Connection and Client against a peer of the test's own.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "proto/control/client.h"
#include "proto/control/testing/recording.h"
#include "proto/control/version.h"

namespace gpuloom::control {
namespace {

using std::chrono::milliseconds;

class ConnectionTest : public ::testing::Test {
 protected:
  ConnectionTest() {
    channel::UniqueFd a, b;
    EXPECT_TRUE(channel::MakePair(SOCK_SEQPACKET, &a, &b));
    a_ = Connection(std::move(a));
    b_ = Connection(std::move(b));
  }
  Connection a_, b_;
};

TEST_F(ConnectionTest, AMessageIsOnlyItself) {
  ASSERT_TRUE(a_.Send(7, RemoveSession{42}));
  Incoming in;
  ASSERT_TRUE(b_.Receive(&in));
  EXPECT_EQ(in.header.request, 7u);
  RemoveSession remove;
  SessionCounters counters;
  EXPECT_FALSE(in.As(&counters));
  ASSERT_TRUE(in.As(&remove));
  EXPECT_EQ(remove.session_id, 42u);
}

TEST_F(ConnectionTest, AnEmptyMessageHasNoBody) {
  ASSERT_TRUE(a_.Send(1, ListAllocations{}));
  Incoming in;
  ASSERT_TRUE(b_.Receive(&in));
  EXPECT_EQ(in.body_bytes, 0u);
  ListAllocations list;
  EXPECT_TRUE(in.As(&list));
}

// Sends a body of so many bytes, all 1, under M's type.
template <Message M>
void SendBytes(Connection& connection, size_t body_bytes) {
  std::vector<uint8_t> bytes(sizeof(MessageHeader) + body_bytes, 1);
  const MessageHeader header{kType<M>, 9};
  std::memcpy(bytes.data(), &header, sizeof(header));
  ASSERT_TRUE(channel::SendMessage(connection.fd(), bytes.data(), bytes.size()));
}

TEST_F(ConnectionTest, Malicious_AShorterBodyThanEverIsNoMessage) {
  for (const size_t body_bytes : {size_t{0}, sizeof(RemoveSession) - 1}) {
    SendBytes<RemoveSession>(a_, body_bytes);
    Incoming in;
    ASSERT_TRUE(b_.Receive(&in));
    RemoveSession remove{5};
    EXPECT_FALSE(in.As(&remove));
    EXPECT_EQ(remove.session_id, 5u);
  }
}

TEST_F(ConnectionTest, WhatANewerMinorAppendsIsIgnored) {
  for (const size_t more : {size_t{1}, kMaxMessageBytes - sizeof(MessageHeader) - 8}) {
    SendBytes<RemoveSession>(a_, sizeof(RemoveSession) + more);
    Incoming in;
    ASSERT_TRUE(b_.Receive(&in));
    RemoveSession remove;
    ASSERT_TRUE(in.As(&remove));
    EXPECT_EQ(remove.session_id, 0x0101010101010101u);
  }
}

TEST_F(ConnectionTest, WhatAnOlderMinorDoesNotSayIsZero) {
  SendBytes<Answer>(a_, Answer::kShortestBytes);
  Incoming in;
  ASSERT_TRUE(b_.Receive(&in));
  Answer answer;
  std::memset(&answer, 0xff, sizeof(answer));
  ASSERT_TRUE(in.As(&answer));
  EXPECT_EQ(answer.ok, 0x01010101u);
  EXPECT_EQ(answer.major, 0u);
  EXPECT_EQ(answer.minor, 0u);
  SendBytes<Answer>(a_, Answer::kShortestBytes - 1);
  ASSERT_TRUE(b_.Receive(&in));
  EXPECT_FALSE(in.As(&answer));
}

TEST_F(ConnectionTest, OneOfTheFirstMinorIsSentItsOwnSizes) {
  for (const uint16_t minor : {uint16_t{0}, kControlMinor}) {
    a_.set_peer_minor(minor);
    ASSERT_TRUE(a_.Send(1, Answer{}));
    Incoming in;
    ASSERT_TRUE(b_.Receive(&in));
    EXPECT_EQ(in.body_bytes, minor == 0 ? Answer::kShortestBytes : sizeof(Answer));
  }
}

TEST_F(ConnectionTest, Malicious_AMessageWithoutAHeaderIsAnError) {
  ASSERT_TRUE(channel::SendMessage(a_.fd(), "abc", 3));
  Incoming in;
  EXPECT_FALSE(b_.Receive(&in));
  EXPECT_EQ(errno, EPROTO);
}

TEST_F(ConnectionTest, DescriptorsOfTheLastMessageAreClosedByTheNext) {
  const int fd = 0;
  ASSERT_TRUE(a_.Send(1, RemoveSession{1}, &fd, 1));
  ASSERT_TRUE(a_.Send(1, RemoveSession{1}));
  Incoming in;
  ASSERT_TRUE(b_.Receive(&in, 2));
  EXPECT_EQ(in.fd_count, 1u);
  EXPECT_TRUE(in.fds[0].valid());
  ASSERT_TRUE(b_.Receive(&in, 2));
  EXPECT_EQ(in.fd_count, 0u);
  EXPECT_FALSE(in.fds[0].valid());
}

TEST(Text, IsCutAndAlwaysEnds) {
  char field[8];
  SetText(field, "0123456789");
  EXPECT_STREQ(field, "0123456");
  SetText(field, "ab");
  EXPECT_EQ(TextLength(field), 2u);
  std::memset(field, 'x', sizeof(field));
  EXPECT_EQ(TextLength(field), sizeof(field))
      << "a peer's text without an end stops at the field's";
}

// A scheduler that answers as the test wants.
class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    char name[] = "/tmp/gpuloom-control-test-XXXXXX";
    folder_ = mkdtemp(name);
    listener_ = channel::ListenAt((folder_ + "/" + kControlSocketName).c_str());
    fcntl(listener_.get(), F_SETFL, 0);
  }
  ~ClientTest() override {
    shutdown(listener_.get(), SHUT_RDWR);
    if (server_.joinable()) server_.join();
    std::filesystem::remove_all(folder_);
  }
  template <typename Body>
  void Serve(Body body) {
    server_ = std::thread([this, body] {
      Connection connection(channel::UniqueFd(accept(listener_.get(), nullptr, nullptr)));
      body(connection);
    });
  }
  // Each connection to its end. One that is given up before it is answered is none.
  template <typename Body>
  void ServeEach(Body body) {
    server_ = std::thread([this, body] {
      for (;;) {
        channel::UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
        if (!fd.valid()) return;
        Connection connection(std::move(fd));
        Incoming in;
        Answer answer{};
        answer.major = kControlMajor;
        answer.minor = kControlMinor;
        answer.ok = 1;
        if (!connection.Receive(&in) || !connection.Send(in.header.request, answer)) continue;
        body(connection);
      }
    });
  }
  // With a timeout that is long enough for this machine now, and no shorter than this.
  bool ConnectsInTime(milliseconds timeout) {
    for (; timeout <= std::chrono::seconds(60); timeout *= 2) {
      if (client_.Connect(folder_, timeout, &error_)) return true;
    }
    return false;
  }
  static void Reply(Connection& connection, uint32_t request, bool ok, const char* message) {
    Answer answer{};
    answer.major = kControlMajor;
    answer.minor = kControlMinor;
    answer.ok = ok ? 1 : 0;
    answer.device_memory_bytes = 77;
    SetText(answer.message, message);
    EXPECT_TRUE(connection.Send(request, answer));
  }

  std::string folder_;
  channel::UniqueFd listener_;
  std::thread server_;
  Client client_;
  std::string error_;
};

TEST_F(ClientTest, NobodyThereIsNamed) {
  EXPECT_FALSE(client_.Connect(folder_ + "/none", milliseconds(100), &error_));
  EXPECT_THAT(error_, ::testing::HasSubstr(folder_ + "/none/control.sock"));
  EXPECT_TRUE(client_.not_listening());
  EXPECT_FALSE(client_.refused());
}

TEST_F(ClientTest, ARefusalIsTold) {
  Serve([](Connection& connection) {
    Incoming in;
    ASSERT_TRUE(connection.Receive(&in));
    Reply(connection, in.header.request, false, "another release");
  });
  EXPECT_FALSE(client_.Connect(folder_, std::chrono::seconds(60), &error_));
  EXPECT_EQ(error_, "scheduler: another release");
  EXPECT_TRUE(client_.refused());
  EXPECT_FALSE(client_.connected());
}

TEST_F(ClientTest, AListIsCollectedAndARefusedRequestKeepsTheConnection) {
  Serve([](Connection& connection) {
    Incoming in;
    ASSERT_TRUE(connection.Receive(&in));
    Reply(connection, in.header.request, true, "");
    ASSERT_TRUE(connection.Receive(&in));
    for (const char* name : {"a", "b"}) {
      AllocationState state{};
      SetText(state.name, name);
      ASSERT_TRUE(connection.Send(in.header.request, state));
    }
    Reply(connection, in.header.request, true, "");
    ASSERT_TRUE(connection.Receive(&in));
    Reply(connection, in.header.request, false, "no");
  });
  ASSERT_TRUE(client_.Connect(folder_, std::chrono::seconds(60), &error_)) << error_;
  EXPECT_EQ(client_.device_memory_bytes(), 77u);
  std::vector<AllocationState> states;
  ASSERT_TRUE(client_.ListAllocations(&states, &error_)) << error_;
  ASSERT_EQ(states.size(), 2u);
  EXPECT_STREQ(states[1].name, "b");
  EXPECT_FALSE(client_.RemoveAllocation("a", &error_));
  EXPECT_EQ(error_, "scheduler: no");
  EXPECT_TRUE(client_.connected());
}

// What the scheduler of another release has answered to a client of today's, word for word.
TEST_F(ClientTest, ASchedulerOf3_0IsSpokenToAsItKnows) {
  listener_.Reset();
  const RecordedScheduler scheduler(
      folder_, ReadRecording(GPULOOM_SOURCE_DIR "/tests/golden/control_3.0/run_3.1.txt"));
  ASSERT_TRUE(client_.Connect(folder_, std::chrono::seconds(60), &error_)) << error_;
  EXPECT_EQ(client_.device_memory_bytes(), uint64_t{1} << 30);
  AddAllocation add{};
  EXPECT_TRUE(client_.AddAllocation(add, &error_)) << error_;
  BindAllocation bind{};
  EXPECT_TRUE(client_.BindAllocation(bind, &error_)) << error_;
  EXPECT_TRUE(client_.PrepareExecutor("a", &error_)) << error_;
  std::vector<AllocationState> states;
  EXPECT_TRUE(client_.ListAllocations(&states, &error_)) << error_;
  ASSERT_EQ(states.size(), 1u);
  EXPECT_STREQ(states[0].container, "true");
  EXPECT_TRUE(client_.RemoveAllocation("a", &error_)) << error_;
  EXPECT_FALSE(scheduler.was_surprised());
}

TEST_F(ClientTest, ASchedulerOf3_1IsSpokenToAsItKnows) {
  listener_.Reset();
  const RecordedScheduler scheduler(
      folder_, ReadRecording(GPULOOM_SOURCE_DIR "/tests/golden/control_3.1/run_3.2.txt"));
  ASSERT_TRUE(client_.Connect(folder_, std::chrono::seconds(60), &error_)) << error_;
  EXPECT_FALSE(client_.scheduler_speaks_3_2());
  BindAllocation bind{};
  bind.shares.weight = 300;
  EXPECT_TRUE(client_.BindAllocation(bind, &error_)) << error_;
  std::vector<AllocationState> states;
  EXPECT_TRUE(client_.ListAllocations(&states, &error_)) << error_;
  ASSERT_EQ(states.size(), 1u);
  EXPECT_STREQ(states[0].container, "true");
  EXPECT_EQ(states[0].shares, ShareTerms{}) << "what it does not say is not said";
  EXPECT_FALSE(scheduler.was_surprised());
}

TEST_F(ClientTest, ASchedulerOf3_2IsSpokenToAsItKnows) {
  listener_.Reset();
  const RecordedScheduler scheduler(
      folder_, ReadRecording(GPULOOM_SOURCE_DIR "/tests/golden/control_3.2/run_3.3.txt"));
  ASSERT_TRUE(client_.Connect(folder_, std::chrono::seconds(60), &error_)) << error_;
  EXPECT_TRUE(client_.scheduler_speaks_3_2());
  EXPECT_FALSE(client_.scheduler_speaks_3_3());
  std::vector<AllocationState> states;
  EXPECT_TRUE(client_.ListAllocations(&states, &error_)) << error_;
  ASSERT_EQ(states.size(), 1u);
  EXPECT_STREQ(states[0].container, "true");
  EXPECT_EQ(states[0].sessions_begun, 0u) << "what it does not say is not said";
  EXPECT_FALSE(scheduler.was_surprised());
}

TEST_F(ClientTest, ASchedulerOf3_3IsSpokenToAsItKnows) {
  listener_.Reset();
  const RecordedScheduler scheduler(
      folder_, ReadRecording(GPULOOM_SOURCE_DIR "/tests/golden/control_3.3/run_3.4.txt"));
  ASSERT_TRUE(client_.Connect(folder_, std::chrono::seconds(60), &error_)) << error_;
  EXPECT_TRUE(client_.scheduler_speaks_3_3());
  EXPECT_FALSE(client_.scheduler_speaks_3_4());
  std::vector<AllocationState> states;
  EXPECT_TRUE(client_.ListAllocations(&states, &error_)) << error_;
  ASSERT_EQ(states.size(), 1u);
  EXPECT_STREQ(states[0].container, "true");
  EXPECT_EQ(states[0].kernels, KernelTerms{}) << "what it does not say is not said";
  EXPECT_FALSE(scheduler.was_surprised());
}

TEST_F(ClientTest, TheGpuAndItsDomainsAreCollected) {
  Serve([](Connection& connection) {
    Incoming in;
    ASSERT_TRUE(connection.Receive(&in));
    Reply(connection, in.header.request, true, "");
    ASSERT_TRUE(connection.Receive(&in));
    GpuState gpu{};
    gpu.slots = 7;
    ASSERT_TRUE(connection.Send(in.header.request, gpu));
    for (const char* name : {"red", "blue"}) {
      DomainState domain{};
      SetText(domain.name, name);
      ASSERT_TRUE(connection.Send(in.header.request, domain));
    }
    Reply(connection, in.header.request, true, "");
  });
  ASSERT_TRUE(client_.Connect(folder_, std::chrono::seconds(60), &error_)) << error_;
  EXPECT_TRUE(client_.scheduler_speaks_3_3());
  GpuState gpu;
  std::vector<DomainState> domains;
  ASSERT_TRUE(client_.DescribeGpu(&gpu, &domains, &error_)) << error_;
  EXPECT_EQ(gpu.slots, 7u);
  ASSERT_EQ(domains.size(), 2u);
  EXPECT_STREQ(domains[1].name, "blue");
}

TEST_F(ClientTest, ASchedulerOfAnotherMajorIsAskedOnceAndItsReasonTold) {
  std::vector<ControlHello> said;
  Serve([&said](Connection& connection) {
    Incoming in;
    while (connection.Receive(&in)) {
      ControlHello hello;
      ASSERT_TRUE(in.As(&hello));
      said.push_back(hello);
      Answer answer{};
      answer.major = kControlMajor + 1;
      SetText(answer.message, "this scheduler speaks 4.0");
      ASSERT_TRUE(connection.Send(in.header.request, answer));
    }
  });
  EXPECT_FALSE(client_.Connect(folder_, std::chrono::seconds(60), &error_));
  EXPECT_EQ(error_, "scheduler: this scheduler speaks 4.0");
  EXPECT_TRUE(client_.refused());
  server_.join();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0].major, kControlMajor);
  EXPECT_EQ(said[0].minor, kControlMinor);
}

TEST_F(ClientTest, ASchedulerThatDoesNotAnswerCostsTheTimeoutOnly) {
  ServeEach([](Connection& connection) {
    Incoming in;
    while (connection.Receive(&in)) {
    }
  });
  ASSERT_TRUE(ConnectsInTime(milliseconds(50))) << error_;
  std::vector<AllocationState> states;
  EXPECT_FALSE(client_.ListAllocations(&states, &error_));
  EXPECT_THAT(error_, ::testing::HasSubstr("no answer in time"));
  EXPECT_FALSE(client_.connected());
}

TEST_F(ClientTest, ASchedulerThatAcceptsNobodyCostsTheTimeoutOnly) {
  // A backlog without room.
  ASSERT_EQ(listen(listener_.get(), 0), 0);
  const std::string path = folder_ + "/" + kControlSocketName;
  std::vector<channel::UniqueFd> before;
  do {
    before.push_back(channel::ConnectTo(path.c_str(), 1));
    ASSERT_LT(before.size(), 1000u);
  } while (before.back().valid());
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(client_.Connect(folder_, milliseconds(50), &error_));
  EXPECT_THAT(error_, ::testing::HasSubstr("control.sock: no answer in time"));
  EXPECT_FALSE(client_.not_listening()) << "it hangs";
}

// Its parts come one by one, each of them in time.
TEST_F(ClientTest, AListWithoutEndCostsTheTimeoutOnly) {
  ServeEach([](Connection& connection) {
    Incoming in;
    if (!connection.Receive(&in)) return;
    while (connection.Send(in.header.request, AllocationState{})) {
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  std::vector<AllocationState> states;
  // Longer where the machine stands still before the first part.
  for (milliseconds timeout(500); states.empty() && timeout <= std::chrono::seconds(60);
       timeout *= 2) {
    ASSERT_TRUE(ConnectsInTime(timeout)) << error_;
    EXPECT_FALSE(client_.ListAllocations(&states, &error_));
    EXPECT_THAT(error_, ::testing::HasSubstr("no answer in time"));
  }
  EXPECT_FALSE(states.empty());
}

TEST(Version, NamesTheRelease) {
  EXPECT_THAT(kVersion, ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+ \\(.+\\)"));
}

TEST(Version, LineNamesProgramReleaseWireAndControl) {
  EXPECT_EQ(VersionLine("gpuloom-x"), "gpuloom-x " + std::string(kVersion) + ", wire " +
                                          VersionText(wire::kWireMajor, wire::kWireMinor) +
                                          ", control " + VersionText(kControlMajor, kControlMinor));
}

}  // namespace
}  // namespace gpuloom::control
