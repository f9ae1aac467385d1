// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/stack.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "proto/wire/session.h"

namespace gpuloom::testing {
namespace {

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "test harness: %s\n", what.c_str());
  std::abort();
}

// Where a built file lies: in the build, or in the pack named by GPULOOM_PACK (tests/bench/pack.sh),
// on a machine where nothing was built.
std::string Built(const char* in_build, const char* in_pack) {
  const char* pack = getenv("GPULOOM_PACK");
  return pack == nullptr ? in_build : std::string(pack) + "/" + in_pack;
}

// The driver under the stack: softgpu, or the one that GPULOOM_TEST_DRIVER names.
std::string DriverLibrary() {
  const char* library = getenv("GPULOOM_TEST_DRIVER");
  return library != nullptr ? library : Built(GPULOOM_SOFTGPU, "lib/softgpu/libcuda.so.1");
}

}  // namespace

Stack::Stack(Options options) : options_(std::move(options)) {
  InheritOrphans();
  char folder[] = "/tmp/gpuloom-test-XXXXXX";
  if (mkdtemp(folder) == nullptr) Die(std::string("mkdtemp: ") + strerror(errno));
  folder_ = folder;
  Give(folder_);
  StartScheduler();
}

Stack::~Stack() {
  Ended();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Stack::Give(const std::string& folder) const {
  if (options_.user != 0 && chown(folder.c_str(), options_.user, options_.user) != 0) {
    Die("chown " + folder + ": " + strerror(errno));
  }
}

void Stack::StartScheduler() {
  client_.Close();
  std::vector<std::string> command;
  if (options_.user != 0) {
    const std::string user = std::to_string(options_.user);
    command = {"/usr/bin/setpriv", "--reuid", user, "--regid", user, "--clear-groups"};
  } else if (options_.has_charts_rights) {
    command = {"/usr/bin/setpriv", "--bounding-set=-all,+setuid,+setgid,+kill", "--no-new-privs"};
  }
  const std::vector<std::string> scheduler = {
      Built(GPULOOM_SCHEDULER, "bin/gpuloom-scheduler"), "--gpu", "0", "--state-dir", StateFolder(),
      "--cuda-library", options_.library.empty() ? DriverLibrary() : options_.library,
      "--drain-timeout", options_.drain_timeout, "--executor-memory", options_.executor_memory,
      "--idle-timeout", options_.idle_timeout,
      // Ends with the test, also with one that crashes.
      "--exit-when-unused", "--log-level",
      getenv("GPULOOM_TEST_VERBOSE") != nullptr ? "debug" : "error"};
  command.insert(command.end(), options_.wrapper.begin(), options_.wrapper.end());
  command.insert(command.end(), scheduler.begin(), scheduler.end());
  std::vector<std::string> environment = {
      "GPULOOM_SOFTGPU_MEMORY=" + options_.device_memory,
      std::string("GPULOOM_SOFTGPU_QUIET=") + (options_.tells_faults ? "0" : "1"),
      "GPULOOM_SOFTGPU_COMPILE=" + options_.compile_seconds_per_mib};
  environment.insert(environment.end(), options_.environment.begin(), options_.environment.end());
  scheduler_ = Process(std::move(command), environment);
  std::string error;
  if (!Eventually([&] {
        return client_.Connect(StateFolder(), control::Client::kDefaultTimeout, &error);
      })) {
    Die("the scheduler does not answer: " + error);
  }
}

Allocation Stack::Allocate(const AllocationSpec& spec) {
  Allocation allocation;
  allocation.name = "allocation-" + std::to_string(++allocation_count_);
  allocation.directory = folder_ + "/" + allocation.name;
  mkdir(allocation.directory.c_str(), 0755);
  Give(allocation.directory);
  control::AddAllocation add{};
  control::SetText(add.name, allocation.name.c_str());
  control::SetText(add.directory, allocation.directory.c_str());
  add.slots = spec.slots;
  add.ends_with_connection = 1;
  std::string error;
  if (!client_.AddAllocation(add, &error)) Die("AddAllocation: " + error);
  Bind(allocation, spec);
  return allocation;
}

void Stack::Bind(const Allocation& allocation, const AllocationSpec& spec) {
  control::BindAllocation bind{};
  control::SetText(bind.name, allocation.name.c_str());
  control::SetText(bind.pod_namespace, spec.pod_namespace.c_str());
  control::SetText(bind.pod, spec.pod.c_str());
  control::SetText(bind.pod_uid, allocation.name.c_str());
  control::SetText(bind.container, "main");
  control::SetText(bind.trust_domain, spec.domain.c_str());
  bind.memory_quota_bytes = spec.quota_bytes;
  bind.pinned_limit_bytes = spec.pinned_limit_bytes;
  bind.shares = spec.shares;
  bind.kernels = spec.kernels;
  std::string error;
  if (!client_.BindAllocation(bind, &error)) Die("BindAllocation: " + error);
}

void Stack::Remove(const Allocation& allocation) {
  std::string error;
  if (!client_.RemoveAllocation(allocation.name, &error)) Die("RemoveAllocation: " + error);
}

control::AllocationState Stack::State(const Allocation& allocation) {
  std::vector<control::AllocationState> states;
  std::string error;
  if (!client_.ListAllocations(&states, &error)) Die("ListAllocations: " + error);
  for (const control::AllocationState& state : states) {
    if (allocation.name == state.name) return state;
  }
  Die("the scheduler does not know " + allocation.name);
}

Process Stack::Tenant(const Allocation& allocation, std::vector<std::string> arguments) {
  if (arguments[0].find('/') == std::string::npos) {
    arguments.insert(arguments.begin(), Built(GPULOOM_TENANT, "tests/gpuloom-tenant"));
  }
  return Process(
      std::move(arguments),
      {"LD_PRELOAD=" + Built(GPULOOM_SHIM, "lib/libgpuloom.so"),
       std::string(wire::kSocketDirVariable) + "=" + allocation.directory, "GPULOOM_LOG=off",
       // In such builds the shim comes before ASan's library, and keeps its objects in memory of its
       // own, where leaks are not looked for.
       "ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0"});
}

pid_t Stack::ExecutorOf(const std::string& domain) {
  for (const pid_t child : ChildrenOf(scheduler_.pid())) {
    const std::vector<std::string> words = CommandLineOf(child);
    for (size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == "--domain" && words[i + 1] == domain) return child;
    }
  }
  return -1;
}

bool Stack::BackToNothing(const Allocation& allocation, Milliseconds patience) {
  return Eventually(
      [&] {
        const control::AllocationState state = State(allocation);
        return state.sessions == 0 && state.memory_used_bytes == 0;
      },
      patience);
}

bool Stack::Ended() {
  client_.Close();
  if (scheduler_.pid() > 0) scheduler_.Signal(SIGTERM);
  return scheduler_.ExitStatus() == 0 && NoChildrenLeft(kPatience);
}

}  // namespace gpuloom::testing
