// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/inventory_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "agent/node/gpu_standing.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Inventory Some() {
  Inventory inventory;
  inventory.gpus = {{"GPU-1", "NVIDIA \"X\"", 0, 1ULL << 37, -1}, {"GPU-2", "", 3, 0, 1}};
  inventory.faults = {{"GPU-2", "nvml: GPU is lost"}};
  inventory.trouble = "inventory: this node has an NVIDIA GPU that cannot be used";
  inventory.is_unusable = true;
  return inventory;
}

void ExpectSome(const absl::StatusOr<Inventory>& read) {
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->gpus, Some().gpus);
  EXPECT_EQ(read->faults, Some().faults);
  EXPECT_EQ(read->trouble, Some().trouble);
  EXPECT_TRUE(read->is_unusable);
}

TEST(InventoryProcess, WhatIsPrintedIsReadBehindWhateverADriverSays) {
  ExpectSome(ReadInventory("noise of a driver\n" + PrintInventory(Some())));
  Inventory odd;
  odd.trouble = "no \xff UTF-8";
  EXPECT_TRUE(ReadInventory(PrintInventory(odd)).ok());
}

TEST(InventoryProcess, AnythingElseIsAnErrorThatQuotesIt) {
  for (const char* said : {"", "segmentation fault\n", "{}", "[1]", "{\"gpus\":[{}]}"}) {
    const absl::StatusOr<Inventory> read = ReadInventory(said);
    ASSERT_FALSE(read.ok()) << said;
    EXPECT_THAT(read.status().message(), HasSubstr("looking for GPUs printed no inventory"));
  }
}

TEST(InventoryProcess, TheProgramIsRun) {
  ExpectSome(RunForInventory({"/bin/sh", "-c", "cat <<'END'\n" + PrintInventory(Some()) + "END"}));
  EXPECT_THAT(RunForInventory({"/bin/sh", "-c", "echo cuda: no; exit 1"}).status().message(),
              HasSubstr("cuda: no"));
  EXPECT_THAT(RunForInventory({"/nowhere/at/all"}).status().message(),
              HasSubstr("inventory: /nowhere/at/all: "));
}

// A node that an agent has shared, whose driver says nothing now.
class FirstInventory : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "inventoryXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    sources_.state_directory = name;
    sources_.pci_devices = name + "/pci";
    for (const char* folder : {"/pci/0000:00:03.0", "/gpus/GPU-1"}) {
      std::filesystem::create_directories(name + folder);
    }
    std::ofstream(name + "/pci/0000:00:03.0/vendor") << "0x10de\n";
    std::ofstream(name + "/pci/0000:00:03.0/class") << "0x030200\n";
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void KnowGpu() const {
    GpuStanding standing;
    standing.state = GpuState::kHealthy;
    standing.index = 0;
    standing.memory_bytes = 1ULL << 37;
    std::ofstream(StandingPath(FolderOfGpu(root_, "GPU-1"))) << FormatStanding(standing);
  }
  // What an agent then begins with.
  Inventory Take(const std::string& script, std::chrono::seconds patience) const {
    const auto inventory = RunForFirstInventory({"/bin/sh", "-c", script}, sources_, patience);
    EXPECT_TRUE(inventory.ok()) << inventory.status();
    return inventory.value_or(Inventory());
  }

  std::string root_;
  InventorySources sources_;
};

TEST_F(FirstInventory, ADriverThatSaysWhatThereIsIsBelieved) {
  ExpectSome(RunForFirstInventory(
      {"/bin/sh", "-c", "cat <<'END'\n" + PrintInventory(Some()) + "END"}, sources_));
}

TEST_F(FirstInventory, ADriverThatHangsTakesNoGpuAwayThatIsKnown) {
  KnowGpu();
  const Inventory inventory = Take("exec sleep 1000", std::chrono::seconds(1));
  ASSERT_EQ(inventory.gpus.size(), 1u);
  EXPECT_EQ(inventory.gpus[0].uuid, "GPU-1");
  EXPECT_EQ(inventory.gpus[0].total_bytes, 1ULL << 37);
  EXPECT_THAT(inventory.faults.at("GPU-1"),
              StartsWith("the driver has not said for 1 s which GPUs there are; "));
  EXPECT_TRUE(inventory.is_unusable);
}

TEST_F(FirstInventory, WhereNoneCanBeNamedTheNodeHasOneThatCannotBeUsed) {
  const Inventory inventory = Take("kill -SEGV $$", std::chrono::seconds(20));
  EXPECT_TRUE(inventory.gpus.empty());
  EXPECT_TRUE(inventory.is_unusable);
  EXPECT_THAT(
      inventory.trouble,
      AllOf(StartsWith("inventory: this node has an NVIDIA GPU that cannot be used: looking"),
            HasSubstr("killed by signal 11 (SIGSEGV)")));
  sources_.pci_devices = root_ + "/none";
  EXPECT_FALSE(Take("exit 1", std::chrono::seconds(20)).is_unusable);
}

// As whoever changes an agent's log level sends one.
TEST_F(FirstInventory, ASignalIsNoAnswer) {
  signal(SIGUSR1, [](int) {});
  const std::string gate = root_ + "/gate";
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  std::atomic<bool> is_over = false;
  std::thread waiting([&] {
    ExpectSome(RunForInventory(
        {"/bin/sh", "-c",
         "read line <" + gate + "\ncat <<'END'\n" + PrintInventory(Some()) + "END"}));
    is_over = true;
  });
  // Once it has opened its end it waits for the line.
  std::ofstream line(gate);
  for (int i = 0; i < 1000 && !is_over; ++i) {
    pthread_kill(waiting.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  line << "on\n" << std::flush;
  waiting.join();
}

}  // namespace
}  // namespace gpuloom
