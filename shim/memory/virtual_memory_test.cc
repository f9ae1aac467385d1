// SPDX-License-Identifier: Apache-2.0
// What waits for the device's earlier work keeps nothing else waiting.
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "proto/sync/testing/wait_for.h"
#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class VirtualMemory : public ShimTest {
 protected:
  static constexpr size_t kBytes = size_t{2} << 20;

  void SetUp() override {
    Begin();
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  }
  CUdeviceptr Reserve() {
    CUdeviceptr address = 0;
    EXPECT_EQ(cu_.cuMemAddressReserve(&address, kBytes, 0, 0, 0), CUDA_SUCCESS);
    return address;
  }
  CUmemGenericAllocationHandle Create() {
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_EQ(cu_.cuMemCreate(&memory, kBytes, &properties_, 0), CUDA_SUCCESS);
    return memory;
  }
  // Maps the memory and begins to unmap it, which ends when completions are held no more.
  void BeginUnmapping(CUdeviceptr address, CUmemGenericAllocationHandle memory) {
    EXPECT_EQ(cu_.cuMemMap(address, kBytes, 0, memory, 0), CUDA_SUCCESS);
    node_.HoldCompletions(true);
    unmaps_ =
        std::thread([this, address] { EXPECT_EQ(cu_.cuMemUnmap(address, kBytes), CUDA_SUCCESS); });
    node_.WaitForCount("MemUnmap", 1);
  }

  // Whether this thread of the process waits for something.
  static bool Sleeps(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    const std::string stat(std::istreambuf_iterator<char>(file), {});
    // Behind its name, which may have any bytes.
    const size_t name = stat.rfind(") ");
    return name != stat.npos && stat[name + 2] == 'S';
  }

  CUmemAllocationProp properties_ = {};
  std::thread unmaps_;
};

TEST_F(VirtualMemory, WhatIsBeingUnmappedHoldsUpNothingElse) {
  const CUmemGenericAllocationHandle memory = Create();
  const CUdeviceptr address = Reserve();
  BeginUnmapping(address, memory);
  const CUmemGenericAllocationHandle other_memory = Create();
  const CUdeviceptr other = Reserve();
  EXPECT_EQ(cu_.cuMemMap(other, kBytes, 0, other_memory, 0), CUDA_SUCCESS);
  const CUmemAccessDesc access = {properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  EXPECT_EQ(cu_.cuMemSetAccess(other, kBytes, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuMemRelease(other_memory), CUDA_SUCCESS);
  // The mapping still holds it.
  EXPECT_EQ(cu_.cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("PhysicalRelease"), 0u);
  node_.HoldCompletions(false);
  unmaps_.join();
  EXPECT_EQ(node_.count("PhysicalRelease"), 1u);
  EXPECT_EQ(cu_.cuMemUnmap(address, kBytes), CUDA_SUCCESS) << "there is nothing left";
  EXPECT_EQ(node_.count("MemUnmap"), 1u);
}

// The executor would end the session.
TEST_F(VirtualMemory, WhatIsBeingUnmappedIsLeftAloneUntilThen) {
  const CUmemGenericAllocationHandle memory = Create();
  const CUdeviceptr address = Reserve();
  BeginUnmapping(address, memory);
  std::atomic<pid_t> id = 0;
  std::thread maps([&] {
    id = gettid();
    EXPECT_EQ(cu_.cuMemMap(address, kBytes, 0, memory, 0), CUDA_SUCCESS);
  });
  EXPECT_TRUE(WaitFor([&] { return id != 0 && Sleeps(id); }));
  // What it has asked the node for, the node has seen before this.
  (void)Create();
  EXPECT_EQ(node_.count("MemMap"), 1u);
  node_.HoldCompletions(false);
  unmaps_.join();
  maps.join();
  EXPECT_EQ(node_.count("MemMap"), 2u);
  EXPECT_EQ(cu_.cuMemUnmap(address, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuMemAddressFree(address, kBytes), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, OfAnotherProcessThatIsBeingClosedHoldsUpNothingElse) {
  const auto handle = [](uint64_t token) {
    const uint64_t text[] = {0x6970636d6d6f6f6c,         ~uint64_t{0}, token, token, 0,
                             TestingNode::kImportedBytes};
    CUipcMemHandle made = {};
    memcpy(&made, text, sizeof(text));
    return made;
  };
  CUdeviceptr first = 0, second = 0;
  ASSERT_EQ(cu_.cuIpcOpenMemHandle_v2(&first, handle(1), 1), CUDA_SUCCESS);
  node_.HoldCompletions(true);
  std::thread closes([&] {
    EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuIpcCloseMemHandle(first), CUDA_SUCCESS);
  });
  node_.WaitForCount("MemUnmap", 1);
  EXPECT_EQ(cu_.cuIpcOpenMemHandle_v2(&second, handle(2), 1), CUDA_SUCCESS);
  node_.HoldCompletions(false);
  closes.join();
  EXPECT_EQ(cu_.cuIpcCloseMemHandle(second), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom
