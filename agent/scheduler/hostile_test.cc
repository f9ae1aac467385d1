// SPDX-License-Identifier: Apache-2.0
// Tenants and executors that mean harm, or are broken. Each test ends with an honest tenant that is
// served.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/channel/socket.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(SchedulerTest, Malicious_ManyConnectAndSayNothing) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const std::string elsewhere = Allocate(&client, "b", "team-b");
  std::vector<Tenant> silent(100);
  for (Tenant& tenant : silent) ASSERT_TRUE(tenant.Connect(directory));
  ExpectServed(elsewhere);
  ExpectServed(directory);
  EXPECT_TRUE(silent[0].HungUp()) << "the oldest is sent away";
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 0; }))
      << "silence is no session";
}

TEST_F(SchedulerTest, Malicious_ConnectsInALoop) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const std::string elsewhere = Allocate(&client, "b", "team-b");
  std::atomic<bool> stop{false};
  std::thread crowd([&] {
    while (!stop) {
      Tenant tenant;
      if (!tenant.Connect(directory)) std::this_thread::sleep_for(milliseconds(1));
    }
  });
  for (int i = 0; i < 3; ++i) ExpectServed(elsewhere);
  stop = true;
  crowd.join();
  ExpectServed(directory);
}

TEST_F(SchedulerTest, Malicious_SessionsWithoutEndTakeNobodysAddresses) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const std::string elsewhere = Allocate(&client, "b", "team-b");
  const AddressLimits limits = DeviceAddressLimits(kGiB);
  std::vector<Tenant> crowd(kMaxSessionsPerAllocation);
  uint64_t held_bytes = 0;
  for (Tenant& tenant : crowd) {
    ASSERT_TRUE(tenant.Attach(directory));
    ASSERT_TRUE(tenant.accepted()) << tenant.welcome.message;
    held_bytes += tenant.welcome.device_range_bytes;
  }
  EXPECT_EQ(crowd[0].welcome.device_range_bytes, limits.first_bytes);
  EXPECT_LE(crowd[1].welcome.device_range_bytes, limits.first_bytes / 2);
  EXPECT_LE(held_bytes, limits.most_bytes);
  Tenant one_more, other;
  ASSERT_TRUE(one_more.Attach(directory));
  EXPECT_FALSE(one_more.accepted());
  EXPECT_THAT(one_more.welcome.message, ::testing::HasSubstr("has 64 processes"));
  ASSERT_TRUE(other.Attach(elsewhere));
  ASSERT_TRUE(other.accepted());
  EXPECT_EQ(other.welcome.device_range_bytes, limits.first_bytes);
  // They end, and others come in their places, again and again.
  for (int round = 0; round < 3; ++round) {
    for (Tenant& tenant : crowd) tenant = Tenant();
    ASSERT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 0; }));
    for (Tenant& tenant : crowd) ASSERT_TRUE(tenant.Attach(directory));
    EXPECT_EQ(crowd[0].welcome.device_range_bytes, limits.first_bytes) << "it is all there again";
  }
  ExpectServed(elsewhere);
}

// Each request meets a full device, and might have every session of the node asked back each time.
TEST_F(SchedulerTest, Malicious_RequestsWithoutEndHaveOthersAskedOnce) {
  Start();
  control::Client client = Controller();
  Tenant culprit, other;
  ASSERT_TRUE(culprit.Attach(Allocate(&client, "a", "team-a")));
  ASSERT_TRUE(other.Attach(Allocate(&client, "b", "team-b")));
  device_.result = 2;  // CUDA_ERROR_OUT_OF_MEMORY
  EXPECT_EQ(culprit.OrderForNumber('R'), 300u) << "each is answered";
  EXPECT_LE(other.OrderForNumber('n'), 20u);
  // And where the quota has no room.
  device_.result = 0;
  while (culprit.Order('m') == 0) {
  }
  const uint32_t before = culprit.OrderForNumber('n');
  EXPECT_EQ(culprit.OrderForNumber('R'), 300u);
  EXPECT_LE(culprit.OrderForNumber('n') - before, 20u);
}

TEST_F(SchedulerTest, Malicious_WaitingIsLoggedOnce) {
  options_.drain_timeout = seconds(60);
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant, neighbour;
  ASSERT_TRUE(tenant.Attach(directory));
  ASSERT_TRUE(neighbour.Attach(directory));
  EXPECT_EQ(tenant.Order('s'), 'k');
  ::testing::internal::CaptureStderr();
  tenant.Leave();
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& state) { return state.sessions == 2; }));
  EXPECT_EQ(neighbour.Order('W'), 'k');
  EXPECT_EQ(neighbour.OrderForNumber('i'), 1024u) << "all of it has been read";
  const std::string log = ::testing::internal::GetCapturedStderr();
  size_t lines = 0;
  for (size_t at = 0; (at = log.find("waits for others", at)) != log.npos; ++at) ++lines;
  EXPECT_LE(lines, 1u) << log;
  EXPECT_EQ(neighbour.Order('T'), 'k');
}

TEST_F(SchedulerTest, Malicious_AnotherUserControlsNothing) {
  if (getuid() != 0) GTEST_SKIP() << "only root can be another user";
  Start();
  control::Client client = Controller();
  // Were the folder and the socket open to all.
  const std::string path = root_ / control::kControlSocketName;
  ASSERT_EQ(chmod(root_.c_str(), 0755), 0);
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  const pid_t child = fork();
  if (child == 0) {
    // As an executor is.
    if (setresgid(2'000'000'001, 2'000'000'001, 2'000'000'001) != 0 ||
        setresuid(2'000'000'001, 2'000'000'001, 2'000'000'001) != 0) {
      _exit(1);
    }
    const channel::UniqueFd socket = channel::ConnectTo(path.c_str());
    if (!socket.valid()) _exit(2);
    char byte;
    // Hung up on, without a word.
    _exit(recv(socket.get(), &byte, 1, 0) == 0 ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ExpectServed(Allocate(&client, "a", "team-a"));
}

// Sessions whose ends nobody hears of: what they held stays on their allocation's account.
TEST_F(SchedulerTest, Malicious_AddressesThatComeBackLateAreTheirAllocations) {
  options_.drain_timeout = seconds(600);
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const AddressLimits limits = DeviceAddressLimits(kGiB);
  Tenant stuck, again, next, other;
  ASSERT_TRUE(stuck.Attach(directory));
  EXPECT_EQ(stuck.Order('s'), 'k');  // its executor will not end it
  stuck.Leave();
  // Until the scheduler has heard that it left, it is one that is served.
  EXPECT_TRUE(WaitFor([&] {
    again = Tenant();
    return again.Attach(directory) && again.welcome.device_range_bytes == limits.first_bytes;
  })) << "none is served beside it";
  ASSERT_TRUE(next.Attach(directory));
  ASSERT_TRUE(next.accepted()) << next.welcome.message;
  EXPECT_LE(next.welcome.device_range_bytes, limits.first_bytes / 2);
  const channel::Range range{stuck.welcome.device_range_begin, stuck.welcome.device_range_bytes};
  EXPECT_FALSE(range.Contains(again.welcome.device_range_begin, 1));
  EXPECT_FALSE(range.Contains(next.welcome.device_range_begin, 1));
  ASSERT_TRUE(other.Attach(Allocate(&client, "b", "team-a")));
  EXPECT_EQ(other.welcome.device_range_bytes, limits.first_bytes);
}

TEST_F(SchedulerTest, Malicious_HelloThatIsNone) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const wire::Hello honest{wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, {}};
  struct Long {
    wire::Hello hello;
    char more[5000];
  } too_long{honest, {}};
  const wire::Hello wrong_magic{1, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, {}};
  const std::pair<const void*, size_t> hellos[] = {
      {&too_long, sizeof(too_long)}, {&honest, 3}, {&wrong_magic, sizeof(wrong_magic)}};
  for (const auto& [data, size] : hellos) {
    Tenant tenant;
    ASSERT_TRUE(tenant.Connect(directory));
    ASSERT_TRUE(channel::SendMessage(tenant.socket.get(), data, size));
    EXPECT_FALSE(tenant.ReceiveWelcome());
  }
  Tenant with_descriptor;
  ASSERT_TRUE(with_descriptor.Connect(directory));
  const int fd = 2;
  ASSERT_TRUE(channel::SendMessage(with_descriptor.socket.get(), &honest, sizeof(honest), &fd, 1));
  EXPECT_FALSE(with_descriptor.ReceiveWelcome());
  ExpectServed(directory);
}

TEST_F(SchedulerTest, Malicious_TenantSpeaksOutOfTurn) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant, neighbour;
  ASSERT_TRUE(tenant.Attach(directory));
  ASSERT_TRUE(neighbour.Attach(directory));
  EXPECT_EQ(tenant.Order('m'), 0);
  const char noise[100] = {};
  const int fd = 2;
  ASSERT_TRUE(channel::SendMessage(tenant.socket.get(), noise, sizeof(noise), &fd, 1));
  EXPECT_TRUE(tenant.HungUp());
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 1; }));
  EXPECT_EQ(State(&client, "a").memory_used_bytes, 0u);
  EXPECT_EQ(neighbour.Order('m'), 0) << "the neighbour goes on";
  ExpectServed(directory);
}

TEST_F(SchedulerTest, Malicious_BrokenRingEndsThatSessionOnly) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant, neighbour;
  ASSERT_TRUE(tenant.Attach(directory));
  ASSERT_TRUE(neighbour.Attach(directory));
  EXPECT_EQ(tenant.Order('m'), 0);
  tenant.Order('e');
  EXPECT_TRUE(tenant.HungUp());
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.memory_used_bytes == 0; }));
  EXPECT_EQ(neighbour.Order('m'), 0);
  ExpectServed(directory);
}

TEST_F(SchedulerTest, Malicious_EndlessKernelCostsItsDomainTheExecutor) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant culprit, neighbour, other;
  ASSERT_TRUE(culprit.Attach(directory));
  ASSERT_TRUE(neighbour.Attach(directory));
  ASSERT_TRUE(other.Attach(Allocate(&client, "b", "team-b")));
  EXPECT_EQ(culprit.Order('m'), 0);
  const auto pid = static_cast<pid_t>(culprit.OrderForNumber('p'));
  EXPECT_EQ(culprit.Order('u'), 'k');
  culprit.Leave();
  EXPECT_TRUE(neighbour.HungUp());
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.memory_used_bytes == 0; }));
  EXPECT_NE(kill(pid, 0), 0) << "nothing is given back before the executor is gone";
  EXPECT_EQ(other.Order('m'), 0);
  ExpectServed(directory);
}

TEST_F(SchedulerTest, Malicious_ExecutorThatNeverEndsASession) {
  options_.drain_timeout = milliseconds(300);
  options_.drain_grace = milliseconds(200);
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.Order('m'), 0);
  const auto pid = static_cast<pid_t>(tenant.OrderForNumber('p'));
  EXPECT_EQ(tenant.Order('s'), 'k');
  tenant.Leave();
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.memory_used_bytes == 0; }));
  EXPECT_NE(kill(pid, 0), 0) << "no longer charged although it may be mapped";
  ExpectServed(directory);
}

// For longer than an executor that says nothing has, by far.
TEST_F(SchedulerTest, AnExecutorThatSaysWhyItWaitsIsWaitedFor) {
  options_.drain_timeout = seconds(1);
  options_.drain_grace = seconds(1);
  const auto patience = options_.drain_timeout + options_.drain_grace;
  Start();
  control::Client client = Controller();
  // Nothing where this machine stood still for nearly as long as an executor has.
  const auto is_waited_for = [&](const std::string& name) -> std::optional<bool> {
    using Clock = std::chrono::steady_clock;
    const std::string directory = Allocate(&client, name, name);
    Tenant tenant, neighbour;
    EXPECT_TRUE(tenant.Attach(directory));
    EXPECT_TRUE(neighbour.Attach(directory));
    EXPECT_EQ(tenant.Order('m'), 0);
    EXPECT_EQ(tenant.Order('s'), 'k');
    Clock::time_point said = Clock::now();
    tenant.Leave();
    for (const auto end = said + 2 * patience; said < end;) {
      // The scheduler's own answer comes behind what it has heard.
      const bool is_there = neighbour.Order('t') == 'k' && neighbour.Order('m') == 0 &&
                            neighbour.Order('r') == 0 &&
                            State(&client, name).memory_used_bytes == 64 * kMiB;
      const Clock::time_point now = Clock::now();
      if (now - said > patience / 2) return std::nullopt;
      if (!is_there) return false;
      said = now;
      std::this_thread::sleep_for(milliseconds(10));
    }
    EXPECT_EQ(neighbour.Order('T'), 'k');
    EXPECT_TRUE(Becomes(&client, name, [](const auto& s) { return s.memory_used_bytes == 0; }));
    EXPECT_EQ(neighbour.Order('m'), 0);
    return true;
  };
  std::optional<bool> waited;
  for (int i = 0; i < 10 && !waited.has_value(); ++i) {
    waited = is_waited_for("a" + std::to_string(i));
  }
  EXPECT_EQ(waited, true) << "its executor is gone, or what may be mapped is no longer charged";
}

TEST_F(SchedulerTest, Malicious_ExecutorNamesOthersSessions) {
  Start();
  control::Client client = Controller();
  const std::string a = Allocate(&client, "a", "team-a");
  const std::string b = Allocate(&client, "b", "team-b");
  Tenant victim, attacker;
  ASSERT_TRUE(victim.Attach(b));
  EXPECT_EQ(victim.Order('m'), 0);
  ASSERT_TRUE(attacker.Attach(a));
  EXPECT_EQ(attacker.Order('o'), 0) << "memory was granted in another's name";
  EXPECT_EQ(attacker.Order('w'), 0) << "another's memory was taken back";
  const control::AllocationState state = State(&client, "b");
  EXPECT_EQ(state.memory_used_bytes, 64 * kMiB);
  EXPECT_EQ(state.memory_refused_count, 0u);
  EXPECT_EQ(device_.live, 1);
  EXPECT_EQ(victim.Order('r'), 0);
  ExpectServed(b);
}

TEST_F(SchedulerTest, Malicious_ExecutorSaysSomethingUnknown) {
  for (const char order : {'g', 'd'}) {
    SCOPED_TRACE(order);
    if (scheduler_ == nullptr) Start();
    control::Client client = Controller();
    const std::string a = Allocate(&client, "a", "team-a");
    const std::string b = Allocate(&client, "b", "team-b");
    Tenant tenant, other;
    ASSERT_TRUE(tenant.Attach(a));
    ASSERT_TRUE(other.Attach(b));
    EXPECT_EQ(tenant.Order(order), -1);
    EXPECT_TRUE(tenant.HungUp());
    EXPECT_EQ(other.Order('m'), 0);
    ExpectServed(a);
  }
}

TEST_F(SchedulerTest, ExecutorThatFailsToStartIsNamedAndNotAskedAtOnceAgain) {
  Start();
  control::Client client = Controller();
  const std::string a = Allocate(&client, "a", "team-a");
  const std::string b = Allocate(&client, "b", "team-b");
  SetExecutorStart("refuse");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(a));
  EXPECT_EQ(tenant.welcome.admission, wire::Admission::kDeviceLost);
  EXPECT_THAT(tenant.welcome.message, ::testing::HasSubstr("the scripted executor refuses"));
  ASSERT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 0; }));
  // A machine that does other things for longer than the delay asks it again, and waits for longer then.
  const auto is_asked = [](const Tenant& tenant) {
    return std::string_view(tenant.welcome.message).find("failed to start") ==
           std::string_view::npos;
  };
  int failures = 0;
  Tenant again;
  do {
    ++failures;
    again = Tenant();
    ASSERT_TRUE(again.Attach(a));
    EXPECT_EQ(again.welcome.admission, wire::Admission::kDeviceLost);
    ASSERT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 0; }));
  } while (is_asked(again) && failures < 5);
  EXPECT_THAT(again.welcome.message,
              ::testing::HasSubstr("failed to start " + std::to_string(failures) + " times"));
  SetExecutorStart("");
  ExpectServed(b);
  // After the delay it is asked again.
  std::this_thread::sleep_for(StartDelay(failures));
  ExpectServed(a);
}

TEST_F(SchedulerTest, Malicious_TenantsThatComeAgainAndAgainWhereNoProcessCanBeStarted) {
  const std::string program = options_.executor_path;
  options_.executor_path = root_ / "executor";
  Start();
  control::Client client = Controller();
  const std::string a = Allocate(&client, "a", "team-a");
  int failures = 0;
  std::string message;
  do {
    ++failures;
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(a));
    EXPECT_EQ(tenant.welcome.admission, wire::Admission::kDeviceLost);
    message = tenant.welcome.message;
  } while (message.find("failed to start") == std::string::npos && failures < 5);
  EXPECT_THAT(message,
              ::testing::HasSubstr("failed to start " + std::to_string(failures - 1) + " times"));
  std::filesystem::create_symlink(program, options_.executor_path);
  std::this_thread::sleep_for(StartDelay(failures));
  ExpectServed(a);
}

TEST_F(SchedulerTest, Malicious_ExecutorThatDiesOrHangsAtItsStart) {
  options_.start_timeout = seconds(15);  // that of the honest ones here too
  Start();
  control::Client client = Controller();
  for (const std::string mode : {"die", "hang"}) {
    SCOPED_TRACE(mode);
    SetExecutorStart(mode);
    const std::string directory = Allocate(&client, mode, mode);
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(directory));
    EXPECT_EQ(tenant.welcome.admission, wire::Admission::kDeviceLost);
    EXPECT_NE(tenant.welcome.message[0], '\0');
    SetExecutorStart("");
    ExpectServed(Allocate(&client, mode + "-next", mode + "-next"));
    EXPECT_TRUE(Becomes(&client, mode, [](const auto& s) { return s.sessions == 0; }));
  }
}

TEST_F(SchedulerTest, ExecutorThatTakesNoSession) {
  Start();
  control::Client client = Controller();
  SetExecutorStart("no session");
  const std::string a = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(a));
  EXPECT_EQ(tenant.welcome.admission, wire::Admission::kDeviceLost);
  EXPECT_THAT(tenant.welcome.message, ::testing::HasSubstr("takes no session"));
  EXPECT_EQ(State(&client, "a").sessions, 0u);
  SetExecutorStart("");
  ExpectServed(Allocate(&client, "b", "team-b"));
}

TEST_F(SchedulerTest, AProgramThatIsMissingIsNamed) {
  options_.executor_path = "/nowhere/gpuloom-executor";
  Start();
  control::Client client = Controller();
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client, "a", "team-a")));
  EXPECT_EQ(tenant.welcome.admission, wire::Admission::kDeviceLost);
  EXPECT_THAT(tenant.welcome.message, ::testing::HasSubstr("/nowhere/gpuloom-executor"));
}

TEST_F(SchedulerTest, Malicious_TenantLeavesWhileItsExecutorStarts) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, {}};
  for (int i = 0; i < 50; ++i) {
    Tenant tenant;
    ASSERT_TRUE(tenant.Connect(directory));
    ASSERT_TRUE(channel::SendMessage(tenant.socket.get(), &hello, sizeof(hello)));
  }
  ExpectServed(directory);
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 0; }));
}

TEST_F(SchedulerTest, Malicious_ControllerThatSaysNonsense) {
  Start();
  const std::string path = root_ / control::kControlSocketName;
  const channel::UniqueFd socket = channel::ConnectTo(path.c_str());
  const char noise[3000] = {};
  ASSERT_TRUE(channel::SendMessage(socket.get(), noise, sizeof(noise)));
  ASSERT_TRUE(channel::SendMessage(socket.get(), noise, 2));
  control::Connection early(channel::ConnectTo(path.c_str()));
  ASSERT_TRUE(early.Send(1, control::ListAllocations{}));
  control::Incoming in;
  control::Answer answer;
  ASSERT_TRUE(early.Receive(&in));
  ASSERT_TRUE(in.As(&answer));
  EXPECT_EQ(answer.ok, 0u);
  control::Client client = Controller();
  ExpectServed(Allocate(&client, "a", "team-a"));
}

}  // namespace
}  // namespace gpuloom::scheduler
