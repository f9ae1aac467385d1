// SPDX-License-Identifier: Apache-2.0
// Who only asks about its allocation, honestly and otherwise.
#include "proto/wire/query.h"

#include <string.h>
#include <sys/socket.h>

#include <string>

#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/channel/socket.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

constexpr int32_t kPid = 4321;
constexpr uint64_t kNamespace = 77;

wire::Hello Question(uint64_t pid_namespace = kNamespace) {
  return {wire::kQueryMagic, wire::kWireMajor, wire::kWireMinor, kPid, 0, pid_namespace, {}};
}

class Query : public SchedulerTest {
 protected:
  // False when the scheduler did not answer with a QueryAnswer.
  bool Ask(const std::string& directory, const void* question, size_t size_bytes) {
    Tenant requester;
    if (!requester.Connect(directory) ||
        !channel::SendMessage(requester.socket.get(), question, size_bytes)) {
      return false;
    }
    channel::UniqueFd none[channel::kMaxFds];
    size_t fd_count = 0;
    const ptrdiff_t size = channel::ReceiveMessage(
        requester.socket.get(), &answer_, sizeof(answer_), none, channel::kMaxFds, &fd_count);
    EXPECT_EQ(fd_count, 0u);
    return size == static_cast<ptrdiff_t>(sizeof(answer_)) && answer_.magic == wire::kQueryMagic &&
           requester.HungUp();
  }
  bool Ask(const std::string& directory, const wire::Hello& question = Question()) {
    return Ask(directory, &question, sizeof(question));
  }
  // A session that says what it is called.
  static bool Attach(Tenant* tenant, const std::string& directory, int32_t pid,
                     uint64_t pid_namespace) {
    const wire::Hello hello{
        wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, pid, 0, pid_namespace, {}};
    return tenant->Connect(directory) &&
           channel::SendMessage(tenant->socket.get(), &hello, sizeof(hello)) &&
           tenant->ReceiveWelcome() && tenant->accepted();
  }

  wire::QueryAnswer answer_{};
};

TEST_F(Query, IsAnsweredWithoutASession) {
  Start();
  SetExecutorStart("die");  // no executor could be had
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a", 3 * kGiB);
  ASSERT_TRUE(Ask(directory));
  ASSERT_EQ(answer_.admission, wire::Admission::kAccepted) << answer_.message;
  EXPECT_EQ(answer_.device.total_memory_bytes, 3 * kGiB);
  EXPECT_STREQ(answer_.device.name, "fake device");
  EXPECT_EQ(answer_.device.uuid[0], 0xab);
  EXPECT_EQ(answer_.device.driver_version, 13000);
  EXPECT_EQ(answer_.used_memory_bytes, 0u);
  EXPECT_EQ(answer_.process_count, 0u);
  EXPECT_EQ(State(&client, "a").sessions, 0u);
}

TEST_F(Query, TellsOwnProcessesAndTheirMemoryAndNobodyElses) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const std::string elsewhere = Allocate(&client, "b", "team-a");
  Tenant small, large, foreign, nameless, neighbour;
  ASSERT_TRUE(Attach(&small, directory, 10, kNamespace));
  ASSERT_TRUE(Attach(&large, directory, 11, kNamespace));
  ASSERT_TRUE(Attach(&foreign, directory, 12, kNamespace + 1));
  ASSERT_TRUE(nameless.Attach(directory));
  ASSERT_TRUE(Attach(&neighbour, elsewhere, 13, kNamespace));
  for (Tenant* tenant : {&small, &large, &large, &foreign, &neighbour}) {
    ASSERT_EQ(tenant->Order('m'), 0);
  }
  ASSERT_TRUE(Ask(directory));
  const uint64_t used_bytes = State(&client, "a").memory_used_bytes;
  EXPECT_GT(used_bytes, 0u);
  EXPECT_EQ(answer_.used_memory_bytes, used_bytes);
  ASSERT_EQ(answer_.process_count, 2u);
  const bool is_in_order = answer_.processes[0].pid == 10;
  const wire::ProcessUse& first = answer_.processes[is_in_order ? 0 : 1];
  const wire::ProcessUse& second = answer_.processes[is_in_order ? 1 : 0];
  EXPECT_EQ(first.pid, 10);
  EXPECT_EQ(second.pid, 11);
  EXPECT_EQ(first.used_memory_bytes, used_bytes / 4);
  EXPECT_EQ(second.used_memory_bytes, used_bytes / 2);

  large.Leave();
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 3; }));
  ASSERT_TRUE(Ask(directory));
  EXPECT_EQ(answer_.process_count, 1u);
  EXPECT_EQ(answer_.used_memory_bytes, used_bytes / 2);
  // One who does not know its namespace is told of no process.
  ASSERT_TRUE(Ask(directory, Question(0)));
  EXPECT_EQ(answer_.process_count, 0u);
}

TEST_F(Query, WhatIsOnlyKeptIsNotUsed) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant keeper, deaf;
  ASSERT_TRUE(Attach(&keeper, directory, 10, kNamespace));
  ASSERT_EQ(keeper.Order('m'), 0);
  ASSERT_EQ(keeper.Order('k'), 'k');
  // An executor that is late counts as one that does not answer.
  EXPECT_TRUE(WaitFor([&] { return Ask(directory) && answer_.used_memory_bytes == 0; }));
  // An executor that does not answer keeps nobody waiting for long.
  ASSERT_TRUE(Attach(&deaf, directory, 11, kNamespace));
  ASSERT_EQ(deaf.Order('m'), 0);
  ASSERT_EQ(deaf.Order('l'), 'k');
  ASSERT_TRUE(Ask(directory));
  EXPECT_GT(answer_.used_memory_bytes, 0u);
}

TEST_F(Query, IsRefusedUntilTheAllocationIsBound) {
  Start();
  control::Client client = Controller();
  ASSERT_TRUE(Ask(Add(&client, "a")));
  EXPECT_EQ(answer_.admission, wire::Admission::kRefused);
  EXPECT_THAT(answer_.message, ::testing::HasSubstr("not resolved yet"));
  EXPECT_EQ(answer_.device.total_memory_bytes, 0u) << "nothing is told";
}

TEST_F(Query, OfAnotherMajorIsToldSo) {
  Start();
  control::Client client = Controller();
  wire::Hello question = Question();
  question.major = wire::kWireMajor + 1;
  ASSERT_TRUE(Ask(Allocate(&client, "a", "team-a"), question));
  EXPECT_EQ(answer_.admission, wire::Admission::kWrongVersion);
}

TEST_F(Query, MayBeShorterOrLongerThanThisBuilds) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const wire::Hello question = Question();
  EXPECT_TRUE(Ask(directory, &question, wire::kShortestHelloBytes));
  struct Later {
    wire::Hello question;
    char more[100];
  } later{question, {}};
  EXPECT_TRUE(Ask(directory, &later, sizeof(later)));
  EXPECT_EQ(answer_.admission, wire::Admission::kAccepted);
}

TEST_F(Query, Malicious_ThatIsNone) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const wire::Hello question = Question();
  EXPECT_FALSE(Ask(directory, &question, wire::kShortestHelloBytes - 1));
  struct Long {
    wire::Hello question;
    char more[5000];
  } too_long{question, {}};
  EXPECT_FALSE(Ask(directory, &too_long, sizeof(too_long)));
  ExpectServed(directory);
}

TEST_F(Query, Malicious_LyingAboutOnesNameHarmsNobody) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const std::string elsewhere = Allocate(&client, "b", "team-b");
  Tenant negative, impostor;
  ASSERT_TRUE(Attach(&negative, directory, -5, kNamespace));
  ASSERT_TRUE(Attach(&impostor, directory, kPid, kNamespace));
  ASSERT_TRUE(Ask(directory));
  ASSERT_EQ(answer_.process_count, 1u);
  EXPECT_EQ(answer_.processes[0].pid, kPid);
  ASSERT_TRUE(Ask(elsewhere));
  EXPECT_EQ(answer_.process_count, 0u);
}

TEST_F(Query, Malicious_ClientsThatNeverReadOrNeverStop) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const std::string elsewhere = Allocate(&client, "b", "team-b");
  const wire::Hello question = Question();
  std::atomic<bool> stop{false};
  std::thread crowd([&] {
    while (!stop) {
      Tenant requester;
      // One that the full queue turns away has asked nothing.
      if (!requester.Connect(directory) ||
          !channel::SendMessage(requester.socket.get(), &question, sizeof(question))) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  });
  for (int i = 0; i < 3; ++i) ExpectServed(elsewhere);
  stop = true;
  crowd.join();
  ExpectServed(directory);
  EXPECT_TRUE(Ask(directory));
}

}  // namespace
}  // namespace gpuloom::scheduler
