// SPDX-License-Identifier: Apache-2.0
// Handles of other processes' memory and events.
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class MemoryHandles : public ShimTest {
 protected:
  void SetUp() override { Begin(); }

  // As another session would have written it (ipc.cc), or whoever hands it over.
  static CUipcMemHandle Handle(uint64_t token, uint64_t offset_bytes, uint64_t size_bytes) {
    const uint64_t text[] = {0x6970636d6d6f6f6c, ~uint64_t{0}, token, token,
                             offset_bytes,       size_bytes};
    CUipcMemHandle handle = {};
    memcpy(&handle, text, sizeof(text));
    return handle;
  }
  CUresult Open(const CUipcMemHandle& handle, CUdeviceptr* address) {
    return cu_.cuIpcOpenMemHandle_v2(address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  }
};

class EventHandles : public ShimTest {
 protected:
  void SetUp() override { Begin(); }
};

TEST_F(MemoryHandles, ForgedSizesAreErrors) {
  constexpr uint64_t kBytes = TestingNode::kImportedBytes;
  CUdeviceptr address = 0;
  for (const uint64_t wrong : {kBytes - 1, 4 * kBytes, ~uint64_t{0}}) {
    EXPECT_EQ(Open(Handle(1, 0, wrong), &address), CUDA_ERROR_INVALID_VALUE) << wrong;
    EXPECT_EQ(Open(Handle(1, 3 * kBytes, wrong), &address), CUDA_ERROR_INVALID_VALUE) << wrong;
  }
  EXPECT_EQ(node_.count("MemMap"), 0u);
  EXPECT_EQ(node_.count("PhysicalRelease"), node_.count("PhysicalImport"));

  ASSERT_EQ(Open(Handle(1, 4096, kBytes), &address), CUDA_SUCCESS);
  CUdeviceptr again = 0;
  EXPECT_EQ(Open(Handle(1, kBytes, kBytes), &again), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Open(Handle(1, 3 * kBytes, 4 * kBytes), &again), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Open(Handle(1, 8192, kBytes), &again), CUDA_SUCCESS);
  EXPECT_EQ(again, address + 4096);
  EXPECT_EQ(node_.count("MemMap"), 1u);

  // One that lies behind it is not taken for it.
  CUdeviceptr other = 0;
  ASSERT_EQ(Open(Handle(2, 0, kBytes), &other), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuIpcCloseMemHandle(other), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuIpcCloseMemHandle(other), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuIpcCloseMemHandle(again), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuIpcCloseMemHandle(address), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuIpcCloseMemHandle(address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(node_.count("MemUnmap"), 2u);
}

// While they wait, an answer may be needed by what ends the wait.
TEST_F(EventHandles, ManyThreadsThatWaitLeaveRoomForOtherCalls) {
  const uint64_t text[] = {0x697063656d6f6f6c, ~uint64_t{0}, 1, 1};
  CUipcEventHandle handle = {};
  memcpy(&handle, text, sizeof(text));
  CUevent event = nullptr;
  ASSERT_EQ(cu_.cuIpcOpenEventHandle(&event, handle), CUDA_SUCCESS);
  std::vector<std::thread> threads;
  std::atomic<size_t> done{0};
  for (size_t i = 0; i < wire::kReplySlots + 10; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(cu_.cuEventSynchronize(event), CUDA_SUCCESS);
      ++done;
    });
  }
  node_.WaitForCount("EventDone", wire::kReplySlots);
  std::future<CUresult> other = std::async(std::launch::async, [this] {
    CUdeviceptr memory = 0;
    EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    return cu_.cuMemAlloc_v2(&memory, 1 << 20);
  });
  EXPECT_EQ(other.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_EQ(done, 0u);
  node_.PublishEventsDone();
  EXPECT_EQ(other.get(), CUDA_SUCCESS);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace gpuloom
