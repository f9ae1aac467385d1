// SPDX-License-Identifier: Apache-2.0
// A command that waits for another's memory, on a software GPU that has not enough for both.
#include <fstream>
#include <sstream>

#include "agent/run/testing/run_fixture.h"
#include "proto/control/client.h"

namespace gpuloom::run {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class RunMemoryWait : public GpuloomRun {
 protected:
  // Takes 300 of the GPU's 512 MiB, and keeps them until the file NAME.stop is there.
  pid_t Tenant(const std::string& name, const char* memory_wait) {
    setenv("GPULOOM_SOFTGPU_MEMORY", "512MiB", 1);
    const pid_t pid = Start(
        {GPULOOM_PYTHON, GPULOOM_COUNTING_TENANT, "take", root_ / name, root_ / (name + ".stop")},
        {"--memory", "400MiB", "--memory-wait", memory_wait});
    unsetenv("GPULOOM_SOFTGPU_MEMORY");
    return pid;
  }
  bool HasMemory(const std::string& name) const { return Read(root_ / name).ends_with(" 1\n"); }
  void Stop(const std::string& name) const { std::ofstream(root_ / (name + ".stop")) << "now"; }
  bool AnyRequestWaits() const {
    control::Client client;
    std::string error;
    std::vector<control::AllocationState> states;
    if (!client.Connect(state_, control::Client::kDefaultTimeout, &error) ||
        !client.ListAllocations(&states, &error)) {
      return false;
    }
    for (const control::AllocationState& state : states) {
      if (state.memory_waiting != 0) return true;
    }
    return false;
  }
};

TEST_F(RunMemoryWait, ACommandGetsTheMemoryThatAnotherLeaves) {
  const pid_t holder = Tenant("holder", "0s");
  ASSERT_TRUE(Within(seconds(60), [&] { return HasMemory("holder"); })) << Errors();
  const pid_t impatient = Tenant("impatient", "0s");
  EXPECT_NE(Wait(impatient), 0);
  EXPECT_THAT(Errors(), HasSubstr("cuMemAlloc_v2: 2")) << "out of memory";
  const pid_t patient = Tenant("patient", "10m");
  EXPECT_TRUE(Within(seconds(60), [&] { return AnyRequestWaits(); })) << Errors();
  EXPECT_FALSE(HasMemory("patient"));
  Stop("holder");
  EXPECT_EQ(Wait(holder), 0);
  EXPECT_TRUE(Within(seconds(60), [&] { return HasMemory("patient"); })) << Errors();
  Stop("patient");
  EXPECT_EQ(Wait(patient), 0);
}

}  // namespace
}  // namespace gpuloom::run
