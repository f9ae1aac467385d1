// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/fault_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const char kFirst[] = "GPU-00000000-0000-0000-0000-000000000001";
const char kSecond[] = "GPU-00000000-0000-0000-0000-000000000002";

auto Is(const char* uuid, const char* reason) {
  return AllOf(Field(&GpuFault::gpu_uuid, uuid), Field(&GpuFault::reason, HasSubstr(reason)));
}

class FaultWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Say("");
    ASSERT_EQ(setenv("GPULOOM_NVML_FIXTURE", path_.c_str(), 1), 0);
  }
  void Say(const std::string& text) { std::ofstream(path_) << text; }

  const std::string path_ = ::testing::TempDir() + "fault_watch_events_" + std::to_string(getpid());
  FaultWatch watch_{{kFirst, kSecond}, GPULOOM_FIXTURES "/libnvml_faults.so"};
};

TEST_F(FaultWatchTest, AnXidIsToldOnceOfTheGpuThatHadIt) {
  EXPECT_THAT(watch_.Look(), IsEmpty());
  Say("xid 0 48\nxid 1 62\n");
  EXPECT_THAT(watch_.Look(),
              ElementsAre(Is(kFirst, "Xid 48 (double bit ECC error)"), Is(kSecond, "Xid 62")));
  EXPECT_THAT(watch_.Look(), IsEmpty());
}

// Whoever may run a kernel makes these, as often as wanted.
TEST_F(FaultWatchTest, Malicious_XidsOfApplicationsAreNoFaultOfTheGpu) {
  std::string flood;
  for (int i = 0; i < 20; ++i) flood += "xid 0 13\nxid 0 31\nxid 1 43\nxid 1 45\n";
  (void)watch_.Look();
  Say(flood);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(watch_.Look(), IsEmpty());
  // The next honest one is heard.
  Say("xid 0 79\n");
  EXPECT_THAT(watch_.Look(),
              ElementsAre(AllOf(Is(kFirst, "Xid 79"), Field(&GpuFault::is_event, true))));
}

TEST_F(FaultWatchTest, AGpuThatIsLostIsToldAsLongAsItIs) {
  EXPECT_THAT(watch_.Look(), IsEmpty());
  Say("lost 1\n");
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(watch_.Look(), ElementsAre(AllOf(Is(kSecond, "nvml: GPU is lost"),
                                                 Field(&GpuFault::is_event, false))));
  }
  Say("");
  // NVML is opened anew for it now and then, not at each look.
  int looks = 0;
  while (looks < 100 && !watch_.Look().empty()) ++looks;
  EXPECT_GT(looks, 1);
  EXPECT_LT(looks, 100);
}

// For hours, maybe: a second GPU that fails meanwhile is not to be missed.
TEST_F(FaultWatchTest, WhileOneIsLostTheOthersAreHeardAndNotTakenForLost) {
  for (const bool is_lost_from_the_start : {false, true}) {
    FaultWatch watch({kFirst, kSecond}, GPULOOM_FIXTURES "/libnvml_faults.so");
    Say("");
    if (!is_lost_from_the_start) {
      EXPECT_THAT(watch.Look(), IsEmpty());
    }
    Say("lost 1\n");
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(watch.Look(), ElementsAre(Is(kSecond, "nvml: GPU is lost")));
    }
    Say("lost 1\nxid 0 48\n");
    EXPECT_THAT(watch.Look(),
                UnorderedElementsAre(Is(kFirst, "Xid 48"), Is(kSecond, "nvml: GPU is lost")));
    // It is watched again when it is back.
    Say("xid 0 48\n");
    EXPECT_THAT(watch.Look(), IsEmpty());
    Say("xid 0 48\nxid 1 79\n");
    EXPECT_THAT(watch.Look(), ElementsAre(Is(kSecond, "Xid 79")));
  }
}

TEST_F(FaultWatchTest, ADriverThatCannotBeAskedIsTheTroubleOfAllGpus) {
  FaultWatch missing({kFirst, kSecond}, GPULOOM_FIXTURES "/libnvml_driver_missing.so");
  EXPECT_THAT(missing.Look(),
              ElementsAre(Is(kFirst, "Driver Not Loaded"), Is(kSecond, "Driver Not Loaded")));
  FaultWatch absent({kFirst}, "libabsent-ml.so.1");
  EXPECT_THAT(absent.Look(), SizeIs(1));
}

TEST_F(FaultWatchTest, ALibraryWithoutEventsTellsWhatItCan) {
  FaultWatch old({kFirst}, GPULOOM_FIXTURES "/libnvml_two.so");
  EXPECT_THAT(old.Look(), IsEmpty());
}

}  // namespace
}  // namespace gpuloom
