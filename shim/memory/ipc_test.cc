// SPDX-License-Identifier: Apache-2.0
// Handles of other processes' memory, which come through whoever hands them over.
#include <cstring>

#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class MemoryHandles : public ShimTest {
 protected:
  void SetUp() override { Begin(); }

  // As another session would have written it (ipc.cc).
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

}  // namespace
}  // namespace gpuloom
