// SPDX-License-Identifier: Apache-2.0
// What honest tenants, agents and executors get from a scheduler.
#include "agent/scheduler/scheduler.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/channel/region.h"
#include "proto/sync/testing/wait_for.h"
#include "proto/wire/regions.h"

namespace gpuloom::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(SchedulerTest, WelcomesATenant) {
  Start();
  control::Client client = Controller();
  EXPECT_EQ(client.device_memory_bytes(), 16 * kGiB);
  const std::string directory = Allocate(&client, "a", "team-a", 3 * kGiB + kMiB);
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  ASSERT_TRUE(tenant.accepted()) << tenant.welcome.message;
  const wire::Welcome& welcome = tenant.welcome;
  EXPECT_EQ(welcome.major, wire::kWireMajor);
  EXPECT_EQ(welcome.device.total_memory_bytes, 3 * kGiB) << "rounded down to 2 MiB";
  EXPECT_EQ(welcome.device.stream_priority_greatest, -5);
  EXPECT_STREQ(welcome.device.name, "fake device");
  EXPECT_TRUE(kDeviceWindow.Contains(welcome.device_range_begin, welcome.device_range_bytes));
  EXPECT_TRUE(kHostWindow.Contains(welcome.host_range_begin, welcome.host_range_bytes));
  EXPECT_EQ(welcome.device_range_bytes, (256 + 8) * kGiB);
  EXPECT_EQ(welcome.host_range_bytes, 4 * kGiB);
  EXPECT_EQ(welcome.pinned_limit_bytes, kGiB);
  ASSERT_EQ(tenant.fd_count, wire::kWelcomeFds);
  EXPECT_TRUE(channel::IsSealedMemory(tenant.fds[wire::kCommandRegionFd].get(),
                                      sizeof(wire::CommandRegion)));
  EXPECT_TRUE(channel::IsSealedMemory(tenant.fds[wire::kArenaFd].get(), welcome.host_range_bytes));
  EXPECT_GT(tenant.OrderForNumber('p'), 1u) << "the doorbell leads to an executor";
}

TEST_F(SchedulerTest, ATenantCannotWriteItsCompletions) {
  Start();
  control::Client client = Controller();
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client, "a", "team-a")));
  const int completion = tenant.fds[wire::kCompletionRegionFd].get();
  channel::Mapping mapping;
  EXPECT_TRUE(mapping.Map(completion, 4096, channel::Mapping::Access::kReadOnly));
  EXPECT_NE(mprotect(mapping.data(), 4096, PROT_READ | PROT_WRITE), 0);
  EXPECT_FALSE(mapping.Map(completion, 4096, channel::Mapping::Access::kReadWrite));
  // Not by opening it again either, which the mode of a memfd would allow.
  const std::string path = "/proc/self/fd/" + std::to_string(completion);
  const channel::UniqueFd again(open(path.c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_FALSE(again.valid() &&
               mapping.Map(again.get(), 4096, channel::Mapping::Access::kReadWrite));
}

TEST_F(SchedulerTest, RefusesUntilTheAllocationIsBound) {
  Start();
  control::Client client = Controller();
  const std::string directory = Add(&client, "a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.welcome.admission, wire::Admission::kRefused);
  EXPECT_THAT(tenant.welcome.message, ::testing::HasSubstr("not resolved yet"));
  EXPECT_EQ(tenant.fd_count, 0u);
  EXPECT_TRUE(tenant.HungUp());
  std::string error;
  ASSERT_TRUE(client.BindAllocation(BindMessage("a", "team-a", kGiB), &error)) << error;
  ExpectServed(directory);
}

TEST_F(SchedulerTest, RefusesAnotherMajorAndNamesBoth) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory, wire::kWireMajor + 7, 3));
  EXPECT_EQ(tenant.welcome.admission, wire::Admission::kWrongVersion);
  EXPECT_THAT(tenant.welcome.message,
              ::testing::HasSubstr(std::to_string(wire::kWireMajor + 7) + ".3"));
  EXPECT_THAT(tenant.welcome.message,
              ::testing::HasSubstr("scheduler " + std::to_string(wire::kWireMajor)));
  ExpectServed(directory);
}

TEST_F(SchedulerTest, AnotherIdentityUnderABoundNameIsRefused) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  control::BindAllocation other = BindMessage("a", "team-b", 2 * kGiB);
  control::SetText(other.pod_namespace, "team-b");
  std::string error;
  EXPECT_FALSE(client.BindAllocation(other, &error));
  EXPECT_THAT(error, ::testing::HasSubstr("team-a/a/main"));
  EXPECT_TRUE(client.connected());
  EXPECT_EQ(State(&client, "a").memory_quota_bytes, kGiB);
  ExpectServed(directory);
}

TEST_F(SchedulerTest, TheSameIdentityUpdatesTheQuotaLive) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a", 128 * kMiB);
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(tenant.Order('m'), 2) << "CUDA_ERROR_OUT_OF_MEMORY";
  std::string error;
  ASSERT_TRUE(client.BindAllocation(BindMessage("a", "team-a", 256 * kMiB), &error)) << error;
  EXPECT_EQ(tenant.OrderForNumber('i'), 128u);
  EXPECT_EQ(tenant.Order('m'), 0);
}

TEST_F(SchedulerTest, MemoryIsCountedPerAllocationAndGivenBackToTheByte) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a", 192 * kMiB);
  Tenant first, second;
  ASSERT_TRUE(first.Attach(directory));
  ASSERT_TRUE(second.Attach(directory));
  EXPECT_EQ(first.Order('m'), 0);
  EXPECT_EQ(second.Order('m'), 0);
  EXPECT_EQ(first.Order('m'), 0);
  EXPECT_EQ(second.Order('m'), 2) << "the quota is the allocation's, not the session's";
  control::AllocationState state = State(&client, "a");
  EXPECT_EQ(state.sessions, 2u);
  EXPECT_EQ(state.memory_used_bytes, 192 * kMiB);
  EXPECT_EQ(state.memory_peak_bytes, 192 * kMiB);
  EXPECT_EQ(state.memory_refused_count, 1u);
  EXPECT_EQ(device_.live, 3);

  EXPECT_EQ(first.Order('r'), 0);
  state = State(&client, "a");
  EXPECT_EQ(state.memory_used_bytes, 64 * kMiB);
  EXPECT_EQ(state.memory_peak_bytes, 192 * kMiB);

  first.Leave();
  second.Leave();
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 0; }));
  EXPECT_EQ(State(&client, "a").memory_used_bytes, 0u);
  EXPECT_EQ(device_.live, 0);
}

TEST_F(SchedulerTest, WhatOneSessionKeepsGoesToAnotherThatNeedsIt) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a", 128 * kMiB);
  Tenant keeper, other, stranger;
  ASSERT_TRUE(keeper.Attach(directory));
  ASSERT_TRUE(other.Attach(directory));
  ASSERT_TRUE(stranger.Attach(Allocate(&client, "b", "team-b", 128 * kMiB)));
  EXPECT_EQ(keeper.Order('m'), 0);
  EXPECT_EQ(keeper.Order('q'), 0);
  EXPECT_EQ(keeper.Order('k'), 'k');
  EXPECT_EQ(stranger.Order('m'), 0);
  EXPECT_EQ(stranger.Order('k'), 'k');
  EXPECT_EQ(other.Order('m'), 0) << "asked back and granted";
  EXPECT_EQ(State(&client, "a").memory_used_bytes, 64 * kMiB);
  EXPECT_EQ(State(&client, "a").memory_refused_count, 0u);
  EXPECT_EQ(State(&client, "b").memory_used_bytes, 64 * kMiB) << "another allocation's";

  // The device itself has no room: whoever keeps memory of it gives it back.
  device_.result = 2;
  EXPECT_EQ(other.Order('m'), 2);
  EXPECT_EQ(State(&client, "b").memory_used_bytes, 0u);
  device_.result = 0;
  EXPECT_EQ(other.Order('m'), 0);
  EXPECT_EQ(other.Order('q'), 2);
  EXPECT_EQ(State(&client, "a").memory_refused_count, 1u);
}

TEST_F(SchedulerTest, WhoNeedsItsOwnKeptMemoryAndOthersGetsBoth) {
  Start();
  control::Client client = Controller();
  device_.room_bytes = 384 * kMiB;
  const std::string directory = Allocate(&client, "a", "team-a", 384 * kMiB);
  Tenant asks, keeper, neighbour;
  ASSERT_TRUE(asks.Attach(directory));
  ASSERT_TRUE(keeper.Attach(directory));
  ASSERT_TRUE(neighbour.Attach(Allocate(&client, "b", "team-b", 384 * kMiB)));
  EXPECT_EQ(asks.Order('m'), 0);
  EXPECT_EQ(asks.Order('m'), 0);
  EXPECT_EQ(keeper.Order('m'), 0);
  EXPECT_EQ(keeper.Order('k'), 'k');
  for (int i = 0; i < 3; ++i) EXPECT_EQ(neighbour.Order('m'), 0);
  EXPECT_EQ(neighbour.Order('k'), 'k');
  // Without what its other session keeps the quota has no room for 256 MiB, and with it the device has none.
  asks.SendByte('G');
  EXPECT_EQ(asks.Answer(), 0);
  EXPECT_EQ(State(&client, "a").memory_used_bytes, 384 * kMiB);
  EXPECT_EQ(State(&client, "a").memory_refused_count, 0u);
  EXPECT_EQ(State(&client, "b").memory_used_bytes, 0u);
}

TEST_F(SchedulerTest, MemoryIsMadeAheadForWhoAsksAgainAndAgain) {
  options_.make_spare_memory = true;
  Start();
  control::Client client = Controller();
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client, "a", "team-a", 192 * kMiB)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(State(&client, "a").memory_used_bytes, 192 * kMiB) << "the spare is nobody's";
  EXPECT_EQ(tenant.Order('m'), 2);
  EXPECT_EQ(tenant.Order('r'), 0);
  EXPECT_TRUE(Becomes(&client, "a", [this](const auto&) { return device_.live == 0; }))
      << "what is not wanted goes";
}

TEST_F(SchedulerTest, Malicious_AnExecutorThatDoesNotGiveBackMakesOthersFailAndNoMore) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a", 128 * kMiB);
  Tenant keeper, other;
  ASSERT_TRUE(keeper.Attach(directory));
  ASSERT_TRUE(other.Attach(directory));
  EXPECT_EQ(keeper.Order('m'), 0);
  EXPECT_EQ(keeper.Order('m'), 0);
  EXPECT_EQ(keeper.Order('l'), 'k');
  EXPECT_EQ(other.Order('m'), 2);
  EXPECT_EQ(keeper.Order('r'), 0);
  EXPECT_EQ(other.Order('m'), 0);
}

TEST_F(SchedulerTest, AnEndingSessionsMemoryIsWaitedFor) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a", 64 * kMiB);
  Tenant first, second;
  ASSERT_TRUE(first.Attach(directory));
  ASSERT_TRUE(second.Attach(directory));
  EXPECT_EQ(first.Order('m'), 0);
  first.Leave();
  EXPECT_EQ(second.Order('m'), 0);
}

TEST_F(SchedulerTest, WhatTheExecutorsDriverTakesIsCountedWithoutMemory) {
  Start();
  control::Client client = Controller();
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client, "a", "team-a", 192 * kMiB)));
  EXPECT_EQ(tenant.Order('q'), 0);
  EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(tenant.Order('q'), 0);
  EXPECT_EQ(tenant.Order('q'), 2) << "CUDA_ERROR_OUT_OF_MEMORY";
  EXPECT_EQ(State(&client, "a").memory_used_bytes, 192 * kMiB);
  EXPECT_EQ(device_.live, 1);
  EXPECT_EQ(tenant.Order('r'), 0);
  EXPECT_EQ(State(&client, "a").memory_used_bytes, 0u);
  EXPECT_EQ(tenant.Order('q'), 0);
  tenant.Leave();
  EXPECT_TRUE(Becomes(&client, "a",
                      [](const auto& s) { return s.sessions == 0 && s.memory_used_bytes == 0; }));
}

// Code that cannot be unloaded before others' kernels have ended, say.
TEST_F(SchedulerTest, WhatTheDriverHoldsBeyondASessionStaysOnTheAccount) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a", 192 * kMiB);
  Tenant tenant, neighbour;
  ASSERT_TRUE(neighbour.Attach(Allocate(&client, "b", "team-a")));
  EXPECT_EQ(neighbour.Order('h'), 'k');
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(tenant.Attach(directory));
    EXPECT_EQ(tenant.Order('q'), 0);
    EXPECT_EQ(tenant.Order('m'), 0);
    tenant.Leave();
    EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 0; }));
    EXPECT_EQ(State(&client, "a").memory_used_bytes, (round + 1) * 64 * kMiB);
  }
  EXPECT_EQ(neighbour.Order('a'), 'k');
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.memory_used_bytes == 0; }));
  // Or its executor is gone.
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.Order('q'), 0);
  tenant.Leave();
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 0; }));
  EXPECT_EQ(State(&client, "a").memory_used_bytes, 64 * kMiB);
  EXPECT_EQ(neighbour.Order('x'), -1);
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.memory_used_bytes == 0; }));
}

TEST_F(SchedulerTest, ADeviceWithoutRoomIsNoRefusalOfTheQuota) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  device_.result = 2;
  EXPECT_EQ(tenant.Order('m'), 2);
  device_.result = 0;
  const control::AllocationState state = State(&client, "a");
  EXPECT_EQ(state.memory_refused_count, 0u);
  EXPECT_EQ(state.memory_used_bytes, 0u);
  EXPECT_EQ(state.memory_peak_bytes, 0u);
  EXPECT_EQ(tenant.Order('m'), 0);
}

TEST_F(SchedulerTest, KernelsAreCountedWhileTheyRunAndAfter) {
  Start();
  control::Client client = Controller();
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client, "a", "team-a")));
  EXPECT_EQ(tenant.Order('c'), 'k');
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.kernels_launched == 42; }));
  tenant.Leave();
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 0; }));
  EXPECT_EQ(State(&client, "a").kernels_launched, 42u);
}

TEST(Allocation, Malicious_UnsupportedNamesAreFewAndPlain) {
  Allocation allocation;
  EXPECT_TRUE(allocation.NoteUnsupported("cuA\x1b[31m\nforged"));
  EXPECT_EQ(allocation.unsupported.back(), "cuA??31m?forged");
  EXPECT_FALSE(allocation.NoteUnsupported("cuA\x1b[31m\nforged"));
  EXPECT_FALSE(allocation.NoteUnsupported(""));
  for (int i = 0; i < 1000; ++i) (void)allocation.NoteUnsupported("cu" + std::to_string(i));
  EXPECT_EQ(allocation.unsupported.size(), 64u);
}

TEST_F(SchedulerTest, SessionsGetDisjointAddresses) {
  Start();
  control::Client client = Controller();
  const std::string a = Allocate(&client, "a", "team-a");
  const std::string b = Allocate(&client, "b", "team-b");
  std::vector<Tenant> tenants(6);
  std::vector<channel::Range> ranges;
  for (size_t i = 0; i < tenants.size(); ++i) {
    ASSERT_TRUE(tenants[i].Attach(i % 2 == 0 ? a : b));
    ASSERT_TRUE(tenants[i].accepted());
    const wire::Welcome& welcome = tenants[i].welcome;
    for (const channel::Range range :
         {channel::Range{welcome.device_range_begin, welcome.device_range_bytes},
          channel::Range{welcome.host_range_begin, welcome.host_range_bytes}}) {
      for (const channel::Range& other : ranges) {
        EXPECT_TRUE(range.begin >= other.begin + other.size_bytes ||
                    other.begin >= range.begin + range.size_bytes);
      }
      ranges.push_back(range);
    }
  }
}

TEST_F(SchedulerTest, HostAddressesAreGivenAgainOnlyWhenTheArenaIsUnmapped) {
  Start();
  control::Client client = Controller();
  const std::string directory = Add(&client, "a");
  control::BindAllocation bind = BindMessage("a", "team-a", kGiB);
  bind.pinned_limit_bytes = kMaxHostRangeBytes;
  std::string error;
  ASSERT_TRUE(client.BindAllocation(bind, &error)) << error;
  const std::string elsewhere = Allocate(&client, "b", "team-b");
  const AddressLimits limits = HostAddressLimits(kMaxHostRangeBytes);

  Tenant last, refused, other;
  ASSERT_TRUE(last.Attach(directory));
  EXPECT_EQ(last.welcome.host_range_bytes, limits.first_bytes);
  EXPECT_EQ(last.Order('h'), 'k');
  std::vector<channel::Range> taken;
  const auto may_attach = [&] {
    Tenant tenant;
    if (!tenant.Attach(directory) || !tenant.accepted()) {
      refused = std::move(tenant);
      return false;
    }
    taken.push_back({tenant.welcome.host_range_begin, tenant.welcome.host_range_bytes});
    tenant.Leave();
    return Becomes(&client, "a", [](const auto& state) { return state.sessions == 1; });
  };
  ::testing::internal::CaptureStderr();
  while (may_attach()) {
  }
  // Not lost among the lines of those that came and went.
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("team-a/a/main: refused "));
  EXPECT_THAT(refused.welcome.message,
              ::testing::AllOf(::testing::HasSubstr("team-a/a/main holds"),
                               ::testing::HasSubstr("host addresses"),
                               ::testing::HasSubstr("of them ended"),
                               ::testing::HasSubstr("the limit is 256 GiB")));
  uint64_t held_bytes = limits.first_bytes;
  for (const channel::Range& range : taken) {
    held_bytes += range.size_bytes;
    EXPECT_FALSE(range.Contains(last.welcome.host_range_begin, 1));
  }
  EXPECT_EQ(held_bytes, limits.most_bytes);
  // Another's are its own.
  ASSERT_TRUE(other.Attach(elsewhere));
  EXPECT_EQ(other.welcome.host_range_bytes, HostAddressLimits(kGiB).first_bytes);

  last.Order('a');
  last.OrderForNumber('i');  // a question behind it: the scheduler has read what came before
  ExpectServed(directory);
}

TEST_F(SchedulerTest, ADeadExecutorIsNoticedAtOnceAndReplaced) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  const std::string elsewhere = Allocate(&client, "b", "team-b");
  Tenant tenant, neighbour, other;
  ASSERT_TRUE(tenant.Attach(directory));
  ASSERT_TRUE(neighbour.Attach(directory));
  ASSERT_TRUE(other.Attach(elsewhere));
  EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(other.Order('m'), 0);
  EXPECT_EQ(tenant.Order('x'), -1);
  for (const Tenant* lost : {&tenant, &neighbour}) {
    EXPECT_TRUE(lost->HungUp());
    EXPECT_TRUE(lost->DoorbellHungUp());
  }
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.memory_used_bytes == 0; }));
  EXPECT_EQ(State(&client, "a").sessions, 0u);
  ExpectServed(directory);
  EXPECT_FALSE(other.HungUp(milliseconds(0)));
  EXPECT_EQ(State(&client, "b").memory_used_bytes, 64 * kMiB);
}

TEST_F(SchedulerTest, AFaultEndsItsDomainOnly) {
  Start();
  control::Client client = Controller();
  const std::string a = Allocate(&client, "a", "team-a");
  Tenant tenant, other;
  ASSERT_TRUE(tenant.Attach(a));
  ASSERT_TRUE(other.Attach(Allocate(&client, "b", "team-b")));
  EXPECT_EQ(tenant.Order('F'), -1);
  EXPECT_TRUE(tenant.HungUp());
  EXPECT_EQ(other.Order('m'), 0);
  ExpectServed(a);
}

TEST_F(SchedulerTest, RemovingAnAllocationEndsItsSessions) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.Order('m'), 0);
  std::string error;
  ASSERT_TRUE(client.RemoveAllocation("a", &error)) << error;
  EXPECT_TRUE(tenant.HungUp());
  EXPECT_FALSE(Tenant().Connect(directory));
  EXPECT_TRUE(client.RemoveAllocation("a", &error)) << "unknown names are no error";
  ExpectServed(Allocate(&client, "a", "team-a"));
}

TEST_F(SchedulerTest, AddingAgainIsNoErrorAndMendsTheSocket) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  std::filesystem::remove(directory + "/" + wire::kSocketName);
  EXPECT_EQ(Add(&client, "a"), directory);
  ExpectServed(directory);
}

TEST_F(SchedulerTest, AnAllocationOutlivesItsAgentUnlessItSaidOtherwise) {
  Start();
  control::Client client = Controller();
  std::string owned, kept;
  {
    control::Client agent = Controller();
    kept = Add(&agent, "kept");
    owned = Add(&agent, "owned", true);
    EXPECT_EQ(State(&client, "owned").slots, 1u);
  }
  EXPECT_TRUE(Becomes(&client, "owned", [](const auto& s) { return s.slots == 0; }));
  EXPECT_EQ(State(&client, "kept").slots, 1u);
  EXPECT_FALSE(Tenant().Connect(owned));
  EXPECT_TRUE(Tenant().Connect(kept));
}

TEST_F(SchedulerTest, EndsWhenUnused) {
  options_.exit_when_unused = true;
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  const auto pid = static_cast<pid_t>(tenant.OrderForNumber('p'));
  tenant.Leave();
  std::string error;
  ASSERT_TRUE(client.RemoveAllocation("a", &error));
  EXPECT_TRUE(WaitFor([&] { return kill(pid, 0) != 0; })) << "its executor is still there";
  // Whatever it does when that has ended, it has done before it answers.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(State(&client, "a").slots, 0u);
  EXPECT_FALSE(EndsWithin(milliseconds(0))) << "a control connection is left";
  client.Close();
  EXPECT_TRUE(EndsWithin(seconds(60)));
  EXPECT_FALSE(std::filesystem::exists(root_ / control::kControlSocketName));
}

TEST_F(SchedulerTest, ADirectoryThatDoesNotExistIsNamed) {
  Start();
  control::Client client = Controller();
  control::AddAllocation add{};
  control::SetText(add.name, "a");
  control::SetText(add.directory, "/nowhere/at/all");
  std::string error;
  EXPECT_FALSE(client.AddAllocation(add, &error));
  EXPECT_THAT(error, ::testing::HasSubstr("/nowhere/at/all"));
  EXPECT_TRUE(client.connected());
}

TEST_F(SchedulerTest, ALongPathIsServed) {
  Start();
  control::Client client = Controller();
  const std::string name = "d/" + std::string(200, 'x') + "/" + std::string(200, 'y');
  const std::filesystem::path directory = root_ / name;
  std::filesystem::create_directories(directory);
  control::AddAllocation add{};
  control::SetText(add.name, "long");
  control::SetText(add.directory, directory.c_str());
  std::string error;
  ASSERT_TRUE(client.AddAllocation(add, &error)) << error;
  ASSERT_TRUE(client.BindAllocation(BindMessage("long", "team-a", kGiB), &error)) << error;
  ExpectServed(directory);
}

TEST_F(SchedulerTest, SessionsBeyondTheCapAreRefusedUntilOneEnds) {
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  std::vector<Tenant> tenants(kMaxSessionsPerAllocation);
  for (Tenant& tenant : tenants) {
    ASSERT_TRUE(tenant.Attach(directory));
    ASSERT_TRUE(tenant.accepted()) << tenant.welcome.message;
  }
  Tenant surplus;
  ASSERT_TRUE(surplus.Attach(directory));
  EXPECT_EQ(surplus.welcome.admission, wire::Admission::kRefused);
  EXPECT_THAT(surplus.welcome.message, ::testing::HasSubstr("64 processes"));
  // Another allocation is not concerned, and this one is served again when there is room.
  ExpectServed(Allocate(&client, "b", "team-a"));
  tenants.back().Leave();
  EXPECT_TRUE(Becomes(&client, "a", [](const auto& s) { return s.sessions == 63; }));
  ExpectServed(directory);
}

}  // namespace
}  // namespace gpuloom::scheduler
