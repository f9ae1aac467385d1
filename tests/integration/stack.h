// SPDX-License-Identifier: Apache-2.0
// The real processes of one software GPU: a scheduler with its executors, told by the test what the
// agent would tell it, and tenants that see the shim.
//
//   Stack stack;
//   const Allocation a = stack.Allocate({.domain = "team-a", .quota_bytes = 64 << 20});
//   Process tenant = stack.Tenant(a, {"vadd"});
//   EXPECT_EQ(tenant.ExitStatus(), 0);
//   EXPECT_TRUE(stack.BackToNothing(a));
//
// GPULOOM_TEST_DRIVER=libcuda.so.1 puts the machine's own GPU under the stack instead; GPULOOM_PACK names a pack
// (tests/bench/pack.sh) where the tests run without a build.
//
// Used from one thread. The destructor ends everything; Ended() says whether anything was left.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "proto/control/client.h"
#include "tests/integration/process.h"

namespace gpuloom::testing {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

struct AllocationSpec {
  std::string pod_namespace = "team-a";
  std::string pod = "pod";
  std::string domain = "team-a";
  uint64_t quota_bytes = 64 * kMiB;
  uint32_t slots = 1;
  uint64_t pinned_limit_bytes = 256 * kMiB;
  control::ShareTerms shares = {};
  control::KernelTerms kernels = {};
};

struct Allocation {
  std::string name;
  std::string directory;  // what GPULOOM_SOCKET_DIR names
};

class Stack {
 public:
  struct Options {
    std::string drain_timeout = "60s";
    std::string idle_timeout = "60s";
    std::string device_memory = "1GiB";
    std::string compile_seconds_per_mib = "0";  // of PTX; the software GPU's
    std::string executor_memory = "16GiB";
    bool tells_faults = false;  // on standard error; the software GPU
    std::string library = "";   // instead of the driver that the tests run on
    // The scheduler's user; 0: the test's own. Its folder and the allocations' then belong to it.
    uint32_t user = 0;
    // The scheduler is root with no other capabilities than the chart gives it, and gains none.
    bool has_charts_rights = false;
    std::vector<std::string> wrapper = {};      // a program that runs the scheduler, and its words
    std::vector<std::string> environment = {};  // of the scheduler, NAME=value
  };

  Stack() : Stack(Options{}) {}
  explicit Stack(Options options);
  ~Stack();

  // Starts a scheduler (again) and connects to it. Aborts the test when that fails.
  void StartScheduler();
  Process& scheduler() { return scheduler_; }
  control::Client& client() { return client_; }
  std::string StateFolder() const { return folder_ + "/state"; }

  // Adds and binds an allocation; the first form invents the name.
  Allocation Allocate(const AllocationSpec& spec);
  void Bind(const Allocation& allocation, const AllocationSpec& spec);
  void Remove(const Allocation& allocation);
  control::AllocationState State(const Allocation& allocation);

  // Runs the tenant program (tenant_main.cc) or, with a path, any program, as a tenant.
  Process Tenant(const Allocation& allocation, std::vector<std::string> arguments);

  // Of the trust domain; -1 when it has no executor.
  pid_t ExecutorOf(const std::string& domain);

  // True when the allocation has no session and no memory (waits for it).
  bool BackToNothing(const Allocation& allocation, Milliseconds patience = kPatience);

  // Ends the scheduler as a service manager would; true when no process is left of all this.
  bool Ended();

 private:
  // To the scheduler's user.
  void Give(const std::string& folder) const;

  Options options_;
  std::string folder_;
  Process scheduler_;
  control::Client client_;
  int allocation_count_ = 0;
};

}  // namespace gpuloom::testing
