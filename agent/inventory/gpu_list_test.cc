// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/gpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "agent/inventory/inventory_watch.h"
#include "agent/node/gpu_standing.h"
#include "agent/testing/clock.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

const char kOneGpu[] = "GPU-00000000-0000-0000-0000-000000000001";
const char kOtherGpu[] = "GPU-00000000-0000-0000-0000-000000000002";

std::string Fixture(const std::string& name) { return GPULOOM_FIXTURES "/libnvml_" + name + ".so"; }

TEST(ListGpus, AsksNvmlUnlessACudaLibraryIsNamed) {
  const auto gpus = ListGpus("", Fixture("two"));
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_THAT(gpus->usable, SizeIs(2));
  EXPECT_THAT(std::string(ListGpus("libabsent-cuda.so", Fixture("two")).status().message()),
              HasSubstr("libabsent-cuda.so"));
}

TEST(ListGpus, ANodeWithoutGpuIsSaidToBeOne) {
  const auto gpus = ListGpus("", Fixture("none"));
  EXPECT_TRUE(absl::IsNotFound(gpus.status()));
  EXPECT_EQ(gpus.status().message(), "nvml: this node has no GPU");
}

class InventoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "pciXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    pci_ = name + "/pci";
    state_ = name + "/state";
    std::filesystem::create_directory(pci_);
    AddDevice("0000:00:01.0", "0x1234", "0x030000");  // somebody else's display
    AddDevice("0000:00:02.0", "0x10de", "0x040300");  // the sound device of a graphics card
  }
  void TearDown() override {
    std::filesystem::remove_all(std::filesystem::path(state_).parent_path());
  }
  absl::StatusOr<Inventory> Take(const std::string& nvml) const {
    return TakeInventory({"", state_, held_, Fixture(nvml), pci_});
  }
  // As an agent that has seen it here.
  void Know(const char* uuid, int index, const char* sickness = "") const {
    const std::string folder = FolderOfGpu(state_, uuid);
    std::filesystem::create_directories(folder);
    GpuStanding standing;
    standing.state = GpuState::kHealthy;
    standing.index = index;
    standing.sickness = sickness;
    standing.name = "NVIDIA Fixture";
    standing.memory_bytes = uint64_t{1} << 37;
    std::ofstream(StandingPath(folder)) << FormatStanding(standing);
  }
  void AddDevice(const std::string& address, const char* vendor, const char* device_class) {
    std::filesystem::create_directory(pci_ + "/" + address);
    std::ofstream(pci_ + "/" + address + "/vendor") << vendor << "\n";
    std::ofstream(pci_ + "/" + address + "/class") << device_class << "\n";
  }
  std::string pci_, state_;
  std::set<std::string> held_;
};

TEST_F(InventoryTest, ANodeWithoutGpuHasNothingToMend) {
  for (const char* fixture : {"none", "driver_missing", "no_such_library"}) {
    const auto inventory = Take(fixture);
    ASSERT_TRUE(inventory.ok()) << inventory.status();
    EXPECT_THAT(inventory->gpus, SizeIs(0));
    EXPECT_FALSE(inventory->is_unusable);
    EXPECT_THAT(inventory->trouble, HasSubstr("this node has no NVIDIA GPU (nvml: "));
  }
  EXPECT_FALSE(TakeInventory({"", state_, {}, Fixture("none"), pci_ + "/missing"})->is_unusable);
}

TEST_F(InventoryTest, AGpuThatCannotBeUsedIsToldFromNone) {
  AddDevice("0000:00:03.0", "0x10de", "0x030200");
  const auto inventory = Take("driver_missing");
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  EXPECT_TRUE(inventory->is_unusable);
  EXPECT_THAT(inventory->trouble, HasSubstr("cannot be used: nvml: init: Driver Not Loaded"));
  const auto usable = Take("two");
  EXPECT_THAT(usable->gpus, SizeIs(2));
  EXPECT_EQ(usable->trouble, "");
  EXPECT_FALSE(usable->is_unusable);
}

TEST_F(InventoryTest, OneGpuThatIsLostKeepsItsPlaceAndTakesNothingFromTheOthers) {
  const std::string events = state_ + "-events";
  ASSERT_EQ(setenv("GPULOOM_NVML_FIXTURE", events.c_str(), 1), 0);
  std::ofstream(events) << "";
  const auto well = Take("faults");
  Know(kOneGpu, 0);
  Know(kOtherGpu, 1);
  std::ofstream(events) << "lost 0\n";
  const auto inventory = Take("faults");
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  EXPECT_EQ(inventory->gpus, well->gpus) << "with all that is known of it";
  EXPECT_THAT(inventory->faults,
              ElementsAre(Pair(kOneGpu, HasSubstr("nvml: GPU 0: memory: GPU is lost"))));
  EXPECT_EQ(inventory->trouble, "");
  EXPECT_FALSE(inventory->is_unusable);
}

// A disk that fails for a moment must not have a GPU forgotten that has fallen off the bus.
TEST_F(InventoryTest, AGpuWhoseStandingCannotBeReadIsMissed) {
  Know("GPU-00000000-0000-0000-0000-000000000009", 9);
  const std::string folder = FolderOfGpu(state_, "GPU-00000000-0000-0000-0000-000000000009");
  EXPECT_THAT(Take("two")->gpus, SizeIs(2)) << "taken out";
  std::filesystem::remove(StandingPath(folder));
  std::filesystem::create_symlink(StandingPath(folder), StandingPath(folder));
  EXPECT_THAT(Take("two")->faults,
              ElementsAre(Pair("GPU-00000000-0000-0000-0000-000000000009", HasSubstr("dmesg"))));
  std::filesystem::remove(StandingPath(folder));
  EXPECT_THAT(Take("two")->gpus, SizeIs(2));
}

TEST_F(InventoryTest, ALostGpuThatHasNoNameLeftIsKnownByItsNumber) {
  Know(kOneGpu, 0);
  Know(kOtherGpu, 1);
  const auto inventory = Take("gpu_nameless");
  ASSERT_THAT(inventory->gpus, SizeIs(2));
  EXPECT_THAT(inventory->faults, ElementsAre(Pair(kOtherGpu, HasSubstr("handle: GPU is lost"))));
  EXPECT_EQ(inventory->trouble, "");
}

TEST_F(InventoryTest, WhatNobodyKnowsIsATroubleOfTheNode) {
  Know(kOneGpu, 0);
  const auto nameless = Take("gpu_nameless");
  EXPECT_THAT(nameless->gpus, SizeIs(1));
  EXPECT_THAT(nameless->faults, IsEmpty());
  EXPECT_TRUE(nameless->is_unusable);
  EXPECT_THAT(nameless->trouble, HasSubstr("cannot be used: nvml: GPU 1: handle: GPU is lost"));
  // One is known, the other has never been shared.
  const auto mig = Take("mig");
  EXPECT_THAT(mig->faults, ElementsAre(Pair(kOneGpu, HasSubstr("is in MIG mode"))));
  EXPECT_TRUE(mig->is_unusable);
  EXPECT_THAT(mig->trouble, AllOf(HasSubstr(kOtherGpu), HasSubstr("-i 1 -mig 0")));
}

TEST_F(InventoryTest, WhereTheDriverFailsAllThatIsKnownKeepsItsPlace) {
  AddDevice("0000:00:03.0", "0x10de", "0x030200");
  Know(kOneGpu, 0);
  Know(kOtherGpu, 1);
  const auto inventory = Take("driver_missing");
  EXPECT_THAT(inventory->gpus, SizeIs(2));
  EXPECT_THAT(inventory->faults, ElementsAre(Pair(kOneGpu, HasSubstr("Driver Not Loaded")),
                                             Pair(kOtherGpu, HasSubstr("Driver Not Loaded"))));
  EXPECT_TRUE(inventory->is_unusable);
}

TEST_F(InventoryTest, WhatTheDriverDoesNotListIsKeptForWhoeverHoldsIt) {
  const char* const kGone = "GPU-00000000-0000-0000-0000-00000000000f";
  Know(kGone, 2);
  EXPECT_THAT(Take("two")->gpus, SizeIs(2));
  held_ = {kGone, kOneGpu};
  const auto inventory = Take("two");
  ASSERT_THAT(inventory->gpus, SizeIs(3));
  EXPECT_EQ(inventory->gpus[2].uuid, kGone);
  EXPECT_THAT(inventory->faults, ElementsAre(Pair(kGone, HasSubstr("fallen off the bus"))));
}

TEST_F(InventoryTest, OneThatWasSickIsMissedUntilItIsDrainedOrReplaced) {
  Know(kOneGpu, 0);
  const char* const kGone = "GPU-00000000-0000-0000-0000-00000000000f";
  Know(kGone, 1, "Xid 79");
  Know(kOtherGpu, 2);
  // The driver counts anew.
  EXPECT_THAT(Take("two")->faults, ElementsAre(Pair(kGone, HasSubstr("does not list it"))));
  std::string error;
  ASSERT_TRUE(WriteDrainOrder(FolderOfGpu(state_, kGone), {1, "swapped"}, &error)) << error;
  EXPECT_THAT(Take("two")->gpus, SizeIs(2));
  ASSERT_TRUE(RemoveDrainOrder(FolderOfGpu(state_, kGone), &error)) << error;
  EXPECT_THAT(Take("two")->gpus, SizeIs(3));
  std::filesystem::remove_all(FolderOfGpu(state_, kOtherGpu));
  EXPECT_THAT(Take("two")->gpus, SizeIs(2)) << "a new one is in its place";
}

// Written down by an agent of 0.1: only how much of the GPU is for slots.
TEST_F(InventoryTest, AnOlderAgentsGpuIsAsLargeAsItsSlots) {
  Know(kOtherGpu, 1);
  std::ofstream(StandingPath(FolderOfGpu(state_, kOtherGpu)))
      << R"({"state": "healthy", "slots": 10, "slot_memory_bytes": 4096, "index": 1})";
  const auto inventory = Take("gpu_nameless");
  ASSERT_THAT(inventory->gpus, SizeIs(2));
  EXPECT_EQ(inventory->gpus[1].total_bytes, 4096u);
}

TEST_F(InventoryTest, ACudaLibraryThatIsNamedMustWork) {
  EXPECT_THAT(std::string(TakeInventory({"libabsent-cuda.so", state_, {}, Fixture("two"), pci_})
                              .status()
                              .message()),
              HasSubstr("libabsent-cuda.so"));
}

class InventoryWatchTest : public ::testing::Test {
 protected:
  InventoryWatch MakeWatch() {
    looks_ = 0;
    return {now_,
            [this]() -> absl::StatusOr<Inventory> {
              ++looks_;
              return now_;
            },
            &clock_,
            [this](const std::function<void()>& look) {
              if (hangs_) {
                late_ = look;
              } else {
                look();
              }
            }};
  }
  static Gpu GpuOf(const char* uuid) {
    Gpu gpu;
    gpu.uuid = uuid;
    return gpu;
  }

  TestingClock clock_;
  Inventory now_;
  int looks_ = 0;
  bool hangs_ = false;
  std::function<void()> late_;
};

TEST_F(InventoryWatchTest, ADriverThatHangsHoldsUpNobody) {
  now_.gpus = {GpuOf(kOneGpu)};
  now_.trouble = "GPU 1: lost";
  InventoryWatch watch = MakeWatch();
  hangs_ = true;
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(InventoryWatch::kPause);
    EXPECT_FALSE(watch.Change().has_value());
    EXPECT_EQ(looks_, 0) << "and it is asked once";
  }
  now_.trouble.clear();
  late_();
  EXPECT_TRUE(watch.Change().has_value());
  EXPECT_EQ(looks_, 1);
}

// The thread that the product uses.
TEST_F(InventoryWatchTest, LooksBesideWhoAsks) {
  now_.trouble = "no driver";
  Inventory then;
  then.trouble = "MIG mode";
  InventoryWatch watch(
      now_, [then] { return then; }, &clock_);
  clock_.Advance(InventoryWatch::kPause);
  std::optional<Inventory> change;
  while (!change.has_value()) {
    change = watch.Change();
    std::this_thread::yield();
  }
  EXPECT_EQ(change->trouble, "MIG mode");
}

TEST_F(InventoryWatchTest, LooksAgainWhereThereWasNothing) {
  now_.trouble = "no driver";
  InventoryWatch watch = MakeWatch();
  EXPECT_FALSE(watch.Change().has_value());
  EXPECT_EQ(looks_, 0);
  clock_.Advance(InventoryWatch::kPause);
  EXPECT_FALSE(watch.Change().has_value());
  EXPECT_FALSE(watch.Change().has_value());
  EXPECT_EQ(looks_, 1);
  now_.trouble = "MIG mode";
  clock_.Advance(InventoryWatch::kPause);
  ASSERT_TRUE(watch.Change().has_value());
  clock_.Advance(InventoryWatch::kPause);
  EXPECT_FALSE(watch.Change().has_value()) << "said once";
}

TEST_F(InventoryWatchTest, OtherWordsForTheSameTroubleDisturbNobody) {
  now_.gpus = {GpuOf(kOneGpu)};
  now_.trouble = "GPU 1: lost";
  InventoryWatch watch = MakeWatch();
  now_.trouble = "GPU 1: unknown error";
  clock_.Advance(InventoryWatch::kPause);
  EXPECT_FALSE(watch.Change().has_value());
  now_.trouble.clear();
  clock_.Advance(InventoryWatch::kPause);
  EXPECT_TRUE(watch.Change().has_value());
}

TEST_F(InventoryWatchTest, LooksAtNothingWhereAllIsWell) {
  now_.gpus = {GpuOf(kOneGpu)};
  InventoryWatch watch = MakeWatch();
  clock_.Advance(InventoryWatch::kPause);
  EXPECT_FALSE(watch.Change().has_value());
  EXPECT_EQ(looks_, 0);
}

TEST_F(InventoryWatchTest, LooksAgainWhileAGpuIsLostUntilItIsBack) {
  now_.gpus = {GpuOf(kOneGpu), GpuOf(kOtherGpu)};
  now_.faults[kOtherGpu] = "lost";
  InventoryWatch watch = MakeWatch();
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(InventoryWatch::kPause);
    EXPECT_FALSE(watch.Change().has_value());
  }
  EXPECT_EQ(looks_, 2);
  now_.faults.clear();
  for (int i = 0; i < 2; ++i) {
    clock_.Advance(InventoryWatch::kPause);
    EXPECT_FALSE(watch.Change().has_value()) << "nobody is disturbed for it";
  }
  EXPECT_EQ(looks_, 3);
}

TEST_F(InventoryWatchTest, OneThatHadNoNameIsTakenInWhenItHas) {
  now_.gpus = {GpuOf(kOneGpu)};
  now_.trouble = "GPU 1: lost";
  InventoryWatch watch = MakeWatch();
  now_.gpus.push_back(GpuOf(kOtherGpu));
  now_.trouble.clear();
  clock_.Advance(InventoryWatch::kPause);
  const auto change = watch.Change();
  ASSERT_TRUE(change.has_value());
  EXPECT_THAT(change->gpus, SizeIs(2));
}

TEST(ListGpus, AFailureIsNotAnEmptyNode) {
  EXPECT_THAT(std::string(ListGpus("", Fixture("driver_missing")).status().message()),
              HasSubstr("nvml: init: Driver Not Loaded"));
}

}  // namespace
}  // namespace gpuloom
