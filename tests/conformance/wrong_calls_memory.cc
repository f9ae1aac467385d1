// SPDX-License-Identifier: Apache-2.0
// Device memory: making, freeing, copying, filling.
#include <vector>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kMiB = 1 << 20;
constexpr size_t kTooMuch = size_t{1} << 46;
constexpr CUdeviceptr kNowhere = 0x1234'5678'9000;

}  // namespace

void WrongMemory(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUdeviceptr memory = 0, other = 0;
  size_t size_bytes = 0;
  int on_stack = 0;
  c("cuMemAlloc without output", [&] { return cu.cuMemAlloc_v2(nullptr, 4); });
  c("cuMemAlloc of nothing", [&] { return cu.cuMemAlloc_v2(&other, 0); });
  c("cuMemAlloc of 64 TiB", [&] { return cu.cuMemAlloc_v2(&other, kTooMuch); });
  c("cuMemAlloc of everything", [&] { return cu.cuMemAlloc_v2(&other, ~size_t{0}); });
  c("cuMemAllocPitch without output",
    [&] { return cu.cuMemAllocPitch_v2(nullptr, &size_bytes, 64, 4, 4); });
  c("cuMemAllocPitch without pitch",
    [&] { return cu.cuMemAllocPitch_v2(&other, nullptr, 64, 4, 4); });
  c("cuMemAllocPitch of width 0",
    [&] { return cu.cuMemAllocPitch_v2(&other, &size_bytes, 0, 4, 4); });
  c("cuMemAllocPitch of height 0",
    [&] { return cu.cuMemAllocPitch_v2(&other, &size_bytes, 64, 0, 4); });
  c("cuMemAllocPitch of elements of 3 bytes",
    [&] { return cu.cuMemAllocPitch_v2(&other, &size_bytes, 64, 4, 3); });
  c("cuMemAllocPitch of 64 TiB",
    [&] { return cu.cuMemAllocPitch_v2(&other, &size_bytes, kMiB, kTooMuch / kMiB, 4); });
  c("cuMemGetInfo without output", [&] { return cu.cuMemGetInfo_v2(nullptr, nullptr); });
  c("cuMemGetInfo without total", [&] { return cu.cuMemGetInfo_v2(&size_bytes, nullptr); });
  c("cuMemFree of nothing", [&] { return cu.cuMemFree_v2(0); });
  c("cuMemFree of nowhere", [&] { return cu.cuMemFree_v2(kNowhere); });
  c("cuMemFree of the stack",
    [&] { return cu.cuMemFree_v2(reinterpret_cast<CUdeviceptr>(&on_stack)); });
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&memory, kMiB))) return;
  c("cuMemFree of an inner address", [&] { return cu.cuMemFree_v2(memory + 256); });
  c("cuMemFree of the last byte", [&] { return cu.cuMemFree_v2(memory + kMiB - 1); });
  c("cuMemFree of the end", [&] { return cu.cuMemFree_v2(memory + kMiB); });
  c("cuMemFreeHost of device memory",
    [&] { return cu.cuMemFreeHost(reinterpret_cast<void*>(memory)); });
  c("cuMemFree of what is still there", [&] { return cu.cuMemFree_v2(memory); });
  c("cuMemFree a second time", [&] { return cu.cuMemFree_v2(memory); });
  void* host = nullptr;
  if (!c.Has("cuMemHostAlloc", cu.cuMemHostAlloc(&host, 4096, 0))) return;
  c("cuMemFree of host memory",
    [&] { return cu.cuMemFree_v2(reinterpret_cast<CUdeviceptr>(host)); });
  c("cuMemGetHandleForAddressRange of nowhere", [&] {
    int fd = -1;
    return cu.cuMemGetHandleForAddressRange(&fd, kNowhere, kMiB,
                                            CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  });
  c("cuMemGetHandleForAddressRange without output", [&] {
    return cu.cuMemGetHandleForAddressRange(nullptr, kNowhere, kMiB,
                                            CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
  });
}

void WrongCopies(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUdeviceptr a = 0, b = 0;
  constexpr size_t kSize = 4 * kMiB;
  constexpr size_t kFar = 256 * kMiB;
  std::vector<char> host(kSize);
  // Behind neither of them lies more memory of ours for long enough.
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&a, kSize))) return;
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&b, kSize))) return;
  c("cuMemcpyHtoD of nothing", [&] { return cu.cuMemcpyHtoD_v2(a, host.data(), 0); });
  c("cuMemcpyHtoD of nothing to nowhere", [&] { return cu.cuMemcpyHtoD_v2(0, nullptr, 0); });
  c("cuMemcpyHtoD from NULL", [&] { return cu.cuMemcpyHtoD_v2(a, nullptr, 16); });
  c("cuMemcpyHtoD to NULL", [&] { return cu.cuMemcpyHtoD_v2(0, host.data(), 16); });
  c("cuMemcpyHtoD to nowhere", [&] { return cu.cuMemcpyHtoD_v2(kNowhere, host.data(), 16); });
  c("cuMemcpyHtoD beyond the end",
    [&] { return cu.cuMemcpyHtoD_v2(a + kSize - 16, host.data(), kSize); });
  c("cuMemcpyHtoD behind the end",
    [&] { return cu.cuMemcpyHtoD_v2(a + kSize + kFar, host.data(), 16); });
  c("cuMemcpyHtoD to the stack", [&] {
    char stack[16];
    return cu.cuMemcpyHtoD_v2(reinterpret_cast<CUdeviceptr>(stack), host.data(), 16);
  });
  c("cuMemcpyDtoH of nothing", [&] { return cu.cuMemcpyDtoH_v2(host.data(), a, 0); });
  c("cuMemcpyDtoH to NULL", [&] { return cu.cuMemcpyDtoH_v2(nullptr, a, 16); });
  c("cuMemcpyDtoH from NULL", [&] { return cu.cuMemcpyDtoH_v2(host.data(), 0, 16); });
  c("cuMemcpyDtoH from nowhere", [&] { return cu.cuMemcpyDtoH_v2(host.data(), kNowhere, 16); });
  c("cuMemcpyDtoH beyond the end",
    [&] { return cu.cuMemcpyDtoH_v2(host.data(), a + kSize - 16, kSize); });
  c("cuMemcpyDtoD of nothing", [&] { return cu.cuMemcpyDtoD_v2(a, b, 0); });
  c("cuMemcpyDtoD to nowhere", [&] { return cu.cuMemcpyDtoD_v2(kNowhere, a, 16); });
  c("cuMemcpyDtoD from nowhere", [&] { return cu.cuMemcpyDtoD_v2(a, kNowhere, 16); });
  c("cuMemcpyDtoD from NULL", [&] { return cu.cuMemcpyDtoD_v2(a, 0, 16); });
  c("cuMemcpyDtoD beyond the end", [&] { return cu.cuMemcpyDtoD_v2(a + kSize - 16, b, 2 * kFar); });
  c("cuMemcpyDtoD onto itself", [&] { return cu.cuMemcpyDtoD_v2(a, a, 4096); });
  c("cuMemcpyDtoD overlapping", [&] { return cu.cuMemcpyDtoD_v2(a + 64, a, 4096); });
  c("cuMemcpy of nothing", [&] { return cu.cuMemcpy(0, 0, 0); });
  c("cuMemcpy to nowhere", [&] { return cu.cuMemcpy(0, a, 16); });
  c("cuMemcpyHtoDAsync from NULL",
    [&] { return cu.cuMemcpyHtoDAsync_v2(a, nullptr, 16, nullptr); });
  c("cuMemcpyHtoDAsync to nowhere",
    [&] { return cu.cuMemcpyHtoDAsync_v2(kNowhere, host.data(), 16, nullptr); });
  c("cuMemcpyHtoDAsync beyond the end",
    [&] { return cu.cuMemcpyHtoDAsync_v2(a + kSize - 16, host.data(), kSize, nullptr); });
  c("cuMemcpyDtoHAsync to NULL", [&] { return cu.cuMemcpyDtoHAsync_v2(nullptr, a, 16, nullptr); });
  c("cuMemcpyDtoHAsync from nowhere",
    [&] { return cu.cuMemcpyDtoHAsync_v2(host.data(), kNowhere, 16, nullptr); });
  c("cuMemcpyDtoDAsync to nowhere",
    [&] { return cu.cuMemcpyDtoDAsync_v2(kNowhere, a, 16, nullptr); });
  c("cuMemcpyDtoDAsync of nothing", [&] { return cu.cuMemcpyDtoDAsync_v2(0, 0, 0, nullptr); });
  c("cuMemcpyAsync from nowhere", [&] { return cu.cuMemcpyAsync(a, 0, 16, nullptr); });
  c("cuMemcpyPeer to no context", [&] { return cu.cuMemcpyPeer(a, nullptr, b, at.context, 16); });
  c("cuMemcpyPeer within the context",
    [&] { return cu.cuMemcpyPeer(a, at.context, b, at.context, 16); });
  c("cuMemcpyPeer to nowhere",
    [&] { return cu.cuMemcpyPeer(kNowhere, at.context, b, at.context, 16); });
  c("cuMemcpyBatchAsync of none", [&] {
    return cu.cuMemcpyBatchAsync_v2(nullptr, nullptr, nullptr, 0, nullptr, nullptr, 0, nullptr);
  });
  c("cuMemcpyDtoH after it was freed", [&] {
    (void)cu.cuMemFree_v2(b);
    return cu.cuMemcpyDtoH_v2(host.data(), b, 16);
  });
  c("cuCtxSynchronize after all of them", [&] { return cu.cuCtxSynchronize(); });
}

void WrongFills(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUdeviceptr a = 0;
  constexpr size_t kSize = 4 * kMiB;
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&a, kSize))) return;
  c("cuMemsetD8 of nothing", [&] { return cu.cuMemsetD8_v2(a, 1, 0); });
  c("cuMemsetD8 of nothing at NULL", [&] { return cu.cuMemsetD8_v2(0, 1, 0); });
  c("cuMemsetD8 at NULL", [&] { return cu.cuMemsetD8_v2(0, 1, 16); });
  c("cuMemsetD8 at nowhere", [&] { return cu.cuMemsetD8_v2(kNowhere, 1, 16); });
  c("cuMemsetD8 beyond the end", [&] { return cu.cuMemsetD8_v2(a + kSize - 16, 1, 512 * kMiB); });
  c("cuMemsetD16 at an odd address", [&] { return cu.cuMemsetD16_v2(a + 1, 1, 16); });
  c("cuMemsetD16 at nowhere", [&] { return cu.cuMemsetD16_v2(kNowhere, 1, 16); });
  c("cuMemsetD16 beyond the end", [&] { return cu.cuMemsetD16_v2(a + kSize - 16, 1, 512 * kMiB); });
  c("cuMemsetD32 at an address of 2", [&] { return cu.cuMemsetD32_v2(a + 2, 1, 16); });
  c("cuMemsetD32 at nowhere", [&] { return cu.cuMemsetD32_v2(kNowhere, 1, 16); });
  c("cuMemsetD32 beyond the end", [&] { return cu.cuMemsetD32_v2(a + kSize - 16, 1, 512 * kMiB); });
  c("cuMemsetD8Async at nowhere", [&] { return cu.cuMemsetD8Async(kNowhere, 1, 16, nullptr); });
  c("cuMemsetD16Async at an odd address",
    [&] { return cu.cuMemsetD16Async(a + 1, 1, 16, nullptr); });
  c("cuMemsetD32Async at an address of 1",
    [&] { return cu.cuMemsetD32Async(a + 1, 1, 16, nullptr); });
  c("cuMemsetD32Async beyond the end",
    [&] { return cu.cuMemsetD32Async(a + kSize - 16, 1, 512 * kMiB, nullptr); });
  c("cuMemsetD2D8 of width 0", [&] { return cu.cuMemsetD2D8_v2(a, 256, 1, 0, 4); });
  c("cuMemsetD2D8 of a pitch below the width",
    [&] { return cu.cuMemsetD2D8_v2(a, 64, 1, 128, 4); });
  c("cuMemsetD2D8 at nowhere", [&] { return cu.cuMemsetD2D8_v2(kNowhere, 256, 1, 64, 4); });
  c("cuMemsetD2D8 beyond the end", [&] { return cu.cuMemsetD2D8_v2(a, 4096, 1, 64, 1 << 20); });
  c("cuMemsetD2D16 at an odd pitch", [&] { return cu.cuMemsetD2D16_v2(a, 255, 1, 64, 4); });
  c("cuMemsetD2D32 at an odd address", [&] { return cu.cuMemsetD2D32_v2(a + 1, 256, 1, 16, 4); });
  c("cuMemsetD2D32 at a pitch of 258", [&] { return cu.cuMemsetD2D32_v2(a, 258, 1, 16, 4); });
  c("cuCtxSynchronize after all of them", [&] { return cu.cuCtxSynchronize(); });
}

}  // namespace gpuloom::conformance
