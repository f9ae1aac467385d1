// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/inventory_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace gpuloom
