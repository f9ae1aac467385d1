// SPDX-License-Identifier: Apache-2.0
// Tenants side by side: domains, quotas, usage, and who waits for whom.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "agent/executor/process/sanitized.h"
#include "tests/integration/stack.h"

namespace gpuloom::testing {
namespace {

class Sharing : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(stack_.Ended()) << "a process was left"; }
  Stack stack_;
};

TEST_F(Sharing, DomainsHaveTheirOwnExecutors) {
  const Allocation a = stack_.Allocate({.pod = "a", .domain = "one"});
  const Allocation b = stack_.Allocate({.pod = "b", .domain = "one"});
  const Allocation c = stack_.Allocate({.pod_namespace = "team-b", .pod = "c", .domain = "two"});
  Process first = stack_.Tenant(a, {"hold", "4"});
  Process second = stack_.Tenant(b, {"hold", "6"});
  Process third = stack_.Tenant(c, {"hold", "8"});
  for (Process* tenant : {&first, &second, &third}) ASSERT_TRUE(tenant->ReadLine("ready"));
  const pid_t one = stack_.ExecutorOf("one"), two = stack_.ExecutorOf("two");
  EXPECT_GT(one, 0);
  EXPECT_GT(two, 0);
  EXPECT_NE(one, two);
  EXPECT_EQ(ChildrenOf(stack_.scheduler().pid()).size(), 2u);
  EXPECT_GE(stack_.State(a).memory_used_bytes, 4 * kMiB);
  EXPECT_GE(stack_.State(c).memory_used_bytes, 8 * kMiB);
  EXPECT_EQ(stack_.State(b).sessions, 1u);
  for (Process* tenant : {&first, &second, &third}) {
    tenant->CloseInput();
    EXPECT_EQ(tenant->ExitStatus(), 0);
  }
  for (const Allocation& allocation : {a, b, c}) EXPECT_TRUE(stack_.BackToNothing(allocation));
}

TEST_F(Sharing, KernelsAreCounted) {
  const Allocation a = stack_.Allocate({});
  for (int i = 1; i <= 3; ++i) {
    ASSERT_EQ(stack_.Tenant(a, {"vadd"}).ExitStatus(), 0);
    ASSERT_TRUE(stack_.BackToNothing(a));
    EXPECT_EQ(stack_.State(a).kernels_launched, static_cast<uint64_t>(i));
  }
}

TEST_F(Sharing, QuotaRefusesAndOthersGoOn) {
  const Allocation small = stack_.Allocate({.pod = "small", .quota_bytes = 16 * kMiB});
  const Allocation large = stack_.Allocate({.pod = "large", .quota_bytes = 128 * kMiB});
  Process other = stack_.Tenant(large, {"hold", "100"});
  ASSERT_TRUE(other.ReadLine("ready"));
  Process refused = stack_.Tenant(small, {"refused", "17"});
  EXPECT_EQ(refused.ExitStatus(), 0) << refused.output();
  EXPECT_EQ(stack_.State(small).memory_refused_count, 1u);
  EXPECT_LE(stack_.State(small).memory_peak_bytes, 16 * kMiB);
  EXPECT_EQ(stack_.State(large).memory_refused_count, 0u);
  other.CloseInput();
  EXPECT_EQ(other.ExitStatus(), 0);
}

// Beyond the addresses for allocations, beyond all that the session has, and beyond every size.
TEST_F(Sharing, WhatIsFarBeyondTheQuotaIsCountedAsOneRefusal) {
  const Allocation a = stack_.Allocate({.quota_bytes = 64 * kMiB});
  uint64_t refused = 0;
  const auto expect_one = [&](const char* mib, const char* how) {
    Process tenant = stack_.Tenant(a, {"refused", mib, how});
    EXPECT_EQ(tenant.ExitStatus(), 0) << tenant.output();
    EXPECT_EQ(stack_.State(a).memory_refused_count, ++refused) << mib << " MiB, " << how;
  };
  for (const char* mib : {"100", "8192", "1048576", "17592186044414"}) {
    for (const char* how : {"alloc", "pool", "create"}) expect_one(mib, how);
  }
  expect_one("8192", "pitch");
  expect_one("8192", "overflow");
}

// The library gives back what it keeps and looks for room again; the program has called once.
TEST_F(Sharing, WhatTheQuotaHasNoRoomForIsCountedAsOneRefusal) {
  const Allocation a = stack_.Allocate({.quota_bytes = 64 * kMiB});
  Process holder = stack_.Tenant(a, {"hold", "40"});
  ASSERT_TRUE(holder.ReadLine("ready"));
  uint64_t refused = 0;
  for (const char* how : {"alloc", "pool", "create", "pitch"}) {
    Process tenant = stack_.Tenant(a, {"refused", "40", how});
    EXPECT_EQ(tenant.ExitStatus(), 0) << tenant.output();
    EXPECT_EQ(stack_.State(a).memory_refused_count, ++refused) << how;
  }
  // The rest but for a granule, of which the programs' modules have a part. A small one is asked for once more, because it may fit into
  // a granule that is charged.
  Process other = stack_.Tenant(a, {"hold", "22"});
  ASSERT_TRUE(other.ReadLine("ready"));
  Process tenant = stack_.Tenant(a, {"refused", "1", "small"});
  EXPECT_EQ(tenant.ExitStatus(), 0) << tenant.output();
  EXPECT_EQ(stack_.State(a).memory_refused_count, refused + 2);
}

TEST_F(Sharing, APoolThatWouldGrowFurtherThanItMayIsRefusedNothing) {
  const Allocation a = stack_.Allocate({.quota_bytes = 64 * kMiB});
  Process tenant = stack_.Tenant(a, {"grow", "60"});
  EXPECT_EQ(tenant.ExitStatus(), 0) << tenant.output();
  EXPECT_EQ(stack_.State(a).memory_refused_count, 0u);
}

TEST_F(Sharing, QuotaIsOfTheAllocationNotOfTheProcess) {
  const Allocation a = stack_.Allocate({.quota_bytes = 32 * kMiB});
  Process first = stack_.Tenant(a, {"hold", "20"});
  ASSERT_TRUE(first.ReadLine("ready"));
  Process second = stack_.Tenant(a, {"refused", "20"});
  EXPECT_EQ(second.ExitStatus(), 0) << second.output();
  first.CloseInput();
  EXPECT_EQ(first.ExitStatus(), 0);
  ASSERT_TRUE(stack_.BackToNothing(a));
  Process third = stack_.Tenant(a, {"hold", "28"});
  EXPECT_TRUE(third.ReadLine("ready")) << third.output();
  third.CloseInput();
}

TEST_F(Sharing, QuotaChangesLive) {
  AllocationSpec spec{.quota_bytes = 16 * kMiB};
  const Allocation a = stack_.Allocate(spec);
  EXPECT_EQ(stack_.Tenant(a, {"refused", "24"}).ExitStatus(), 0);
  spec.quota_bytes = 64 * kMiB;
  stack_.Bind(a, spec);
  Process tenant = stack_.Tenant(a, {"hold", "24"});
  EXPECT_TRUE(tenant.ReadLine("ready")) << tenant.output();
  tenant.CloseInput();
}

TEST_F(Sharing, UnboundAndRemovedAllocationsAreRefused) {
  const Allocation a = stack_.Allocate({});
  Process tenant = stack_.Tenant(a, {"watch"});
  ASSERT_TRUE(tenant.ReadLine("ready"));
  tenant.WriteLine("go");
  stack_.Remove(a);
  const auto error = tenant.ReadLine("error");
  ASSERT_TRUE(error) << tenant.output();
  EXPECT_EQ(tenant.ExitStatus(), 0);
  EXPECT_NE(stack_.Tenant(a, {"vadd"}).ExitStatus(), 0);
}

TEST_F(Sharing, MemoryOfTheDeadIsZeroForTheNext) {
  const Allocation a = stack_.Allocate({.pod = "a", .domain = "one", .quota_bytes = 512 * kMiB});
  const Allocation b = stack_.Allocate({.pod = "b", .domain = "one", .quota_bytes = 512 * kMiB});
  const Allocation c = stack_.Allocate({.pod = "c", .domain = "two", .quota_bytes = 512 * kMiB});
  Process first = stack_.Tenant(a, {"hold", "300"});  // written all over, never freed
  ASSERT_TRUE(first.ReadLine("ready")) << first.output();
  first.Signal(SIGKILL);
  ASSERT_TRUE(stack_.BackToNothing(a));
  Process same_domain = stack_.Tenant(b, {"inspect", "100"});
  EXPECT_EQ(same_domain.ExitStatus(), 0) << same_domain.output();
  ASSERT_TRUE(stack_.BackToNothing(b));
  Process other_domain = stack_.Tenant(c, {"inspect", "100"});
  EXPECT_EQ(other_domain.ExitStatus(), 0) << other_domain.output();
}

// A pool of one pod's used by another pod of the domain: charged to its maker, then to who is left.
class SharedPools : public Sharing {
 protected:
  void Start(uint64_t taker_quota_bytes = 64 * kMiB) {
    maker_ = stack_.Allocate({.pod = "maker", .domain = "one"});
    taker_ = stack_.Allocate({.pod = "taker", .domain = "one", .quota_bytes = taker_quota_bytes});
    share_ = stack_.Tenant(maker_, {"share", "20"});
    const auto line = share_.ReadLine("shared");
    ASSERT_TRUE(line) << share_.output();
    std::istringstream words(*line);
    words >> take_arguments_[0] >> take_arguments_[1] >> take_arguments_[2] >> take_arguments_[3];
    take_arguments_[0] = "take";
  }
  void StartBoth() {
    ASSERT_NO_FATAL_FAILURE(Start());
    take_ = stack_.Tenant(taker_, take_arguments_);
    ASSERT_TRUE(take_.ReadLine("taken")) << take_.output();
    EXPECT_GE(stack_.State(maker_).memory_used_bytes, 20 * kMiB);
    EXPECT_LT(stack_.State(taker_).memory_used_bytes, 20 * kMiB) << "charged twice";
  }
  bool Writes() {
    take_.WriteLine("write");
    return take_.ReadLine("written").has_value();
  }

  Allocation maker_, taker_;
  std::vector<std::string> take_arguments_ = std::vector<std::string>(4);
  Process share_, take_;
};

TEST_F(SharedPools, BothFreeAndEnd) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  EXPECT_TRUE(Writes());
  take_.WriteLine("free");
  ASSERT_TRUE(take_.ReadLine("freed")) << take_.output();
  share_.WriteLine("free");
  ASSERT_TRUE(share_.ReadLine("freed")) << share_.output();
  for (Process* tenant : {&take_, &share_}) {
    tenant->CloseInput();
    EXPECT_EQ(tenant->ExitStatus(), 0) << tenant->output();
  }
  EXPECT_TRUE(stack_.BackToNothing(maker_));
  EXPECT_TRUE(stack_.BackToNothing(taker_));
}

TEST_F(SharedPools, TheMakerIsKilled) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  share_.Signal(SIGKILL);
  EXPECT_TRUE(stack_.BackToNothing(maker_));
  EXPECT_TRUE(Writes()) << take_.output();
  EXPECT_GE(stack_.State(taker_).memory_used_bytes, 20 * kMiB) << "nobody is charged";
  take_.WriteLine("free");
  ASSERT_TRUE(take_.ReadLine("freed")) << take_.output();
  take_.CloseInput();
  EXPECT_EQ(take_.ExitStatus(), 0);
  EXPECT_TRUE(stack_.BackToNothing(taker_));
}

TEST_F(SharedPools, TheTakerIsKilled) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  take_.WriteLine("write");
  take_.Signal(SIGKILL);
  EXPECT_TRUE(stack_.BackToNothing(taker_));
  EXPECT_GE(stack_.State(maker_).memory_used_bytes, 20 * kMiB);
  // The maker is as it was: another may have what it shares.
  Process again = stack_.Tenant(taker_, take_arguments_);
  EXPECT_TRUE(again.ReadLine("taken")) << again.output();
  again.CloseInput();
  EXPECT_EQ(again.ExitStatus(), 0);
  share_.WriteLine("free");
  ASSERT_TRUE(share_.ReadLine("freed")) << share_.output();
  share_.CloseInput();
  EXPECT_EQ(share_.ExitStatus(), 0);
  EXPECT_TRUE(stack_.BackToNothing(maker_));
}

TEST_F(SharedPools, AnotherDomainIsRefused) {
  ASSERT_NO_FATAL_FAILURE(Start());
  const Allocation other =
      stack_.Allocate({.pod_namespace = "team-b", .pod = "other", .domain = "two"});
  Process refused = stack_.Tenant(other, take_arguments_);
  EXPECT_EQ(refused.ReadLine("refused"), "refused 999") << refused.output();
  EXPECT_EQ(refused.ExitStatus(), 0) << refused.output();
  share_.CloseInput();
  EXPECT_EQ(share_.ExitStatus(), 0);
}

// A's kernel runs until it is told to end; B of the same domain allocates, copies, loads a program that the domain has
// loaded before, launches, synchronises, frees and exits meanwhile. What waited for A would never end.
TEST_F(Sharing, NobodyWaitsForAnothersKernel) {
  const Allocation a = stack_.Allocate({.pod = "a"});
  const Allocation b = stack_.Allocate({.pod = "b"});
  Process quick = stack_.Tenant(b, {"bystander"});
  ASSERT_TRUE(quick.ReadLine("ready"));
  quick.WriteLine("so that the domain knows the program");
  ASSERT_TRUE(quick.ReadLine("slowest"));

  Process busy = stack_.Tenant(a, {"busy"});
  ASSERT_TRUE(busy.ReadLine("running"));
  for (int round = 0; round < 3; ++round) {
    quick.WriteLine("go");
    ASSERT_TRUE(quick.ReadLine("slowest")) << quick.output();
  }
  // Exit too: until the process is gone and the scheduler has its memory back, but for the variables of
  // its program, which the driver unloads when the device is idle.
  quick.CloseInput();
  EXPECT_EQ(quick.ExitStatus(), 0);
  EXPECT_TRUE(Eventually([&] {
    const control::AllocationState state = stack_.State(b);
    return state.sessions == 0 && state.memory_used_bytes < 2 * kMiB;
  }));
  busy.WriteLine("end");
  EXPECT_TRUE(busy.ReadLine("done")) << busy.output();
  EXPECT_EQ(busy.ExitStatus(), 0);
  EXPECT_TRUE(stack_.BackToNothing(b));
}

// Each of several graphs waits for a host function, and of them only some at the device: it has 16 queues.
TEST_F(Sharing, NobodyWaitsForAnothersHostFunctions) {
  const Allocation a = stack_.Allocate({.pod = "a"});
  const Allocation b = stack_.Allocate({.pod = "b"});
  Process quick = stack_.Tenant(b, {"bystander"});
  ASSERT_TRUE(quick.ReadLine("ready"));
  quick.WriteLine("so that the domain knows the program");
  ASSERT_TRUE(quick.ReadLine("slowest"));

  Process waiting = stack_.Tenant(a, {"waiting", "6", "8"});
  ASSERT_TRUE(waiting.ReadLine("running")) << waiting.output();
  for (int round = 0; round < 3; ++round) {
    quick.WriteLine("go");
    ASSERT_TRUE(quick.ReadLine("slowest")) << quick.output();
  }
  waiting.WriteLine("end");
  EXPECT_TRUE(waiting.ReadLine("done")) << waiting.output();
  EXPECT_EQ(waiting.ExitStatus(), 0);
  quick.CloseInput();
  EXPECT_EQ(quick.ExitStatus(), 0);
}

// Tenants' kernels run in the executor's address space, so it has nothing that would be worth
// having.
TEST_F(Sharing, TheExecutorIsConfined) {
  const Allocation a = stack_.Allocate({});
  Process tenant = stack_.Tenant(a, {"hold", "2"});
  ASSERT_TRUE(tenant.ReadLine("ready"));
  const pid_t executor = stack_.ExecutorOf("team-a");
  EXPECT_EQ(StatusOf(executor, "CapEff"), "0000000000000000");
  EXPECT_EQ(StatusOf(executor, "CapPrm"), "0000000000000000");
  if (getuid() == 0) {
    EXPECT_EQ(StatusOf(executor, "CapBnd"), "0000000000000000");
  }
  EXPECT_EQ(StatusOf(executor, "NoNewPrivs"), "1");
  if (!executor::
          kSanitized) {  // sanitizers' run-time libraries trace themselves, so no filter there
    EXPECT_EQ(StatusOf(executor, "Seccomp"), "2");
  }
  const std::string folder = "/proc/" + std::to_string(executor);
  std::string score;
  std::ifstream(folder + "/oom_score_adj") >> score;
  EXPECT_EQ(score, "1000") << "it goes before other pods' processes";
  std::ifstream environment(folder + "/environ", std::ios::binary);
  for (std::string entry; std::getline(environment, entry, '\0');) {
    EXPECT_NE(entry.rfind("LD_PRELOAD=", 0), 0u) << entry;
  }
  std::ifstream arguments(folder + "/cmdline", std::ios::binary);
  for (std::string argument; std::getline(arguments, argument, '\0');) {
    EXPECT_NE(argument, "--lenient") << "the driver does not start fully confined";
  }
  tenant.CloseInput();
}

TEST_F(Sharing, EachExecutorIsAUserOfItsOwnWithAFolderOfItsOwn) {
  if (getuid() != 0) GTEST_SKIP() << "only root has other users";
  pid_t executors[2];
  std::string folders[2];
  for (int i = 0; i < 2; ++i) {
    const std::string domain = "domain-" + std::to_string(i);
    const Allocation a = stack_.Allocate({.pod = domain, .domain = domain});
    Process tenant = stack_.Tenant(a, {"vadd"});
    ASSERT_EQ(tenant.ExitStatus(), 0) << tenant.output();
    executors[i] = stack_.ExecutorOf(domain);
    const uint32_t user = UserOf(executors[i]);
    EXPECT_GE(user, 2'000'000'000u);
    const std::string three =
        "\t" + std::to_string(user) + "\t" + std::to_string(user) + "\t" + std::to_string(user);
    EXPECT_EQ(StatusOf(executors[i], "Uid"), std::to_string(user) + three);
    EXPECT_EQ(StatusOf(executors[i], "Gid"), std::to_string(user) + three);
    const std::vector<std::string> words = CommandLineOf(executors[i]);
    folders[i] = *(std::find(words.begin(), words.end(), "--folder") + 1);
    struct stat status;
    ASSERT_EQ(stat(folders[i].c_str(), &status), 0) << folders[i];
    EXPECT_EQ(status.st_uid, user);
    EXPECT_EQ(status.st_mode & 07777, 0700u);
    stack_.Remove(a);  // and with it, the domain's executor
  }
  EXPECT_NE(folders[0], folders[1]);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(Eventually([&] { return access(folders[i].c_str(), F_OK) != 0; })) << folders[i];
  }
}

TEST_F(Sharing, ManyProcessesOfOneAllocation) {
  const Allocation a = stack_.Allocate({.quota_bytes = 256 * kMiB});
  std::vector<Process> tenants;
  for (int i = 0; i < 8; ++i) tenants.push_back(stack_.Tenant(a, {"vadd"}));
  for (Process& tenant : tenants) EXPECT_EQ(tenant.ExitStatus(), 0) << tenant.output();
  EXPECT_TRUE(stack_.BackToNothing(a));
  EXPECT_EQ(stack_.State(a).kernels_launched, 8u);
}

TEST(IdleExecutor, EndsAfterItsTimeAndComesBack) {
  Stack stack({.idle_timeout = "300ms"});
  const Allocation a = stack.Allocate({});
  ASSERT_EQ(stack.Tenant(a, {"vadd"}).ExitStatus(), 0);
  EXPECT_TRUE(Eventually([&] { return stack.ExecutorOf("team-a") == -1; }));
  EXPECT_EQ(stack.Tenant(a, {"vadd"}).ExitStatus(), 0);
  EXPECT_TRUE(stack.Ended());
}

TEST_F(Sharing, WhatKernelsPrintReachesTheirOwnTenantBeforeItsCallReturns) {
  Process tenants[3];
  for (int i = 0; i < 3; ++i) {
    const Allocation a = stack_.Allocate({.pod = "pod" + std::to_string(i)});
    tenants[i] = stack_.Tenant(a, {"print", std::to_string(i)});
  }
  for (Process& tenant : tenants) ASSERT_TRUE(tenant.ReadLine("ready"));
  for (Process& tenant : tenants) tenant.WriteLine("go");
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(tenants[i].ExitStatus(), 0) << tenants[i].output();
    std::istringstream lines(tenants[i].output());
    std::string line;
    std::getline(lines, line);
    EXPECT_EQ(line, "ready");
    // Twenty lines of its own, in any order between its two streams, before each synchronisation.
    for (int round = 0; round < 10; ++round) {
      std::set<std::string> printed, expected;
      for (int n = round * 20; n < round * 20 + 20; ++n) {
        expected.insert("tenant " + std::to_string(i) + " line " + std::to_string(n));
        std::getline(lines, line);
        printed.insert(line);
      }
      EXPECT_EQ(printed, expected);
      std::getline(lines, line);
      EXPECT_EQ(line, "synchronised " + std::to_string(round * 20 + 19));
    }
    EXPECT_FALSE(std::getline(lines, line)) << line;
  }
}

TEST_F(Sharing, WhatIsNotSupportedIsToldByAllocation) {
  const Allocation a = stack_.Allocate({.pod = "a"});
  const Allocation b = stack_.Allocate({.pod = "b"});
  for (int i = 0; i < 2; ++i) {
    Process tenant = stack_.Tenant(a, {"unsupported"});
    ASSERT_EQ(tenant.ExitStatus(), 0) << tenant.output();
    ASSERT_TRUE(stack_.BackToNothing(a));
    EXPECT_EQ(stack_.State(a).unsupported_count, 2u);
    EXPECT_STREQ(stack_.State(a).unsupported, "cuFly?Away\ncuGraphicsUnregisterResource\n");
  }
  EXPECT_EQ(stack_.State(b).unsupported_count, 0u);
}

}  // namespace
}  // namespace gpuloom::testing
