// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/gpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "agent/inventory/inventory_watch.h"
#include "agent/testing_clock.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Fixture(const std::string& name) { return GPULOOM_FIXTURES "/libnvml_" + name + ".so"; }

TEST(ListGpus, AsksNvmlUnlessACudaLibraryIsNamed) {
  const auto gpus = ListGpus("", Fixture("two"));
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_THAT(*gpus, SizeIs(2));
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
    pci_ = name;
    AddDevice("0000:00:01.0", "0x1234", "0x030000");  // somebody else's display
    AddDevice("0000:00:02.0", "0x10de", "0x040300");  // the sound device of a graphics card
  }
  void TearDown() override { std::filesystem::remove_all(pci_); }
  void AddDevice(const std::string& address, const char* vendor, const char* device_class) {
    std::filesystem::create_directory(pci_ + "/" + address);
    std::ofstream(pci_ + "/" + address + "/vendor") << vendor << "\n";
    std::ofstream(pci_ + "/" + address + "/class") << device_class << "\n";
  }
  std::string pci_;
};

TEST_F(InventoryTest, ANodeWithoutGpuHasNothingToMend) {
  for (const char* fixture : {"none", "driver_missing", "no_such_library"}) {
    const auto inventory = TakeInventory("", Fixture(fixture), pci_);
    ASSERT_TRUE(inventory.ok()) << inventory.status();
    EXPECT_THAT(inventory->gpus, SizeIs(0));
    EXPECT_FALSE(inventory->is_unusable);
    EXPECT_THAT(inventory->none_because, HasSubstr("this node has no NVIDIA GPU (nvml: "));
  }
  EXPECT_FALSE(TakeInventory("", Fixture("none"), pci_ + "/missing")->is_unusable);
}

TEST_F(InventoryTest, AGpuThatCannotBeUsedIsToldFromNone) {
  AddDevice("0000:00:03.0", "0x10de", "0x030200");
  const auto inventory = TakeInventory("", Fixture("driver_missing"), pci_);
  ASSERT_TRUE(inventory.ok()) << inventory.status();
  EXPECT_TRUE(inventory->is_unusable);
  EXPECT_THAT(inventory->none_because, HasSubstr("cannot be used: nvml: init: Driver Not Loaded"));
  const auto usable = TakeInventory("", Fixture("two"), pci_);
  EXPECT_THAT(usable->gpus, SizeIs(2));
  EXPECT_EQ(usable->none_because, "");
}

TEST_F(InventoryTest, ACudaLibraryThatIsNamedMustWork) {
  EXPECT_THAT(std::string(TakeInventory("libabsent-cuda.so", Fixture("two")).status().message()),
              HasSubstr("libabsent-cuda.so"));
}

TEST(InventoryWatch, LooksAgainWhereThereWasNothing) {
  TestingClock clock;
  Inventory now{{}, "no driver", true};
  int looks = 0;
  const auto take = [&]() -> absl::StatusOr<Inventory> {
    ++looks;
    return now;
  };
  InventoryWatch watch(now, take, &clock);
  EXPECT_FALSE(watch.IsOutdated());
  EXPECT_EQ(looks, 0);
  clock.Advance(InventoryWatch::kPause);
  EXPECT_FALSE(watch.IsOutdated());
  EXPECT_FALSE(watch.IsOutdated());
  EXPECT_EQ(looks, 1);
  now.none_because = "MIG mode";
  clock.Advance(InventoryWatch::kPause);
  EXPECT_TRUE(watch.IsOutdated());

  now = Inventory{{Gpu()}, "", false};
  InventoryWatch full(now, take, &clock);
  looks = 0;
  clock.Advance(InventoryWatch::kPause);
  EXPECT_FALSE(full.IsOutdated());
  EXPECT_EQ(looks, 0);
}

TEST(ListGpus, AFailureIsNotAnEmptyNode) {
  EXPECT_THAT(std::string(ListGpus("", Fixture("driver_missing")).status().message()),
              HasSubstr("nvml: init: Driver Not Loaded"));
}

}  // namespace
}  // namespace gpuloom
