// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/fixture.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/conformance/kernels.h"

void PrintTo(CUresult result, std::ostream* out) {
  const char* name = nullptr;
  if (gpuloom::conformance::Cu().cuGetErrorName == nullptr ||
      gpuloom::conformance::Cu().cuGetErrorName(result, &name) != CUDA_SUCCESS || name == nullptr) {
    *out << "CUresult " << static_cast<int>(result);
    return;
  }
  *out << name << " (" << static_cast<int>(result) << ")";
}

namespace gpuloom::conformance {

bool KernelTellsOfPageFaults() {
  int fd = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
  if (fd < 0) fd = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

bool CountsOthers() { return std::getenv("GPULOOM_SOCKET_DIR") == nullptr; }

bool IsDriverBelow(int version) {
  int ours = 0;
  EXPECT_EQ(Cu().cuDriverGetVersion(&ours), CUDA_SUCCESS);
  return ours < version;
}

namespace {

int Capability() {
  int major = 0, minor = 0;
  EXPECT_EQ(Cu().cuInit(0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0),
            CUDA_SUCCESS);
  return 10 * major + minor;
}

}  // namespace

bool IsDeviceBelow(int capability) { return Capability() < capability; }
bool IsDevice(int capability) { return Capability() == capability; }

void WithContext::SetUp() {
  ASSERT_EQ(Cu().cuInit(0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuDeviceGet(&device_, 0), CUDA_SUCCESS);
  // One more reference, never given back: making a context takes a fifth of a second on a GPU.
  static const CUresult kept = [this] {
    return Cu().cuDevicePrimaryCtxRetain(&context_, device_);
  }();
  ASSERT_EQ(kept, CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuDevicePrimaryCtxRetain(&context_, device_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
}

void WithContext::TearDown() {
  if (context_ == nullptr) return;
  EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  for (CUevent event : events_) EXPECT_EQ(Cu().cuEventDestroy_v2(event), CUDA_SUCCESS);
  for (CUstream stream : streams_) EXPECT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  for (CUdeviceptr memory : device_memory_) EXPECT_EQ(Cu().cuMemFree_v2(memory), CUDA_SUCCESS);
  for (void* memory : host_memory_) EXPECT_EQ(Cu().cuMemFreeHost(memory), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuDevicePrimaryCtxRelease_v2(device_), CUDA_SUCCESS);
}

size_t WithContext::FreeBytes() {
  size_t free = 0, total = 0;
  EXPECT_EQ(Cu().cuMemGetInfo_v2(&free, &total), CUDA_SUCCESS);
  return free;
}

testing::AssertionResult WithContext::FreeAgainAfter(size_t taken_bytes,
                                                     const std::function<size_t()>& use) {
  int tries_left = CountsOthers() ? 3000 : 1;  // a minute
  for (;;) {
    const size_t before = FreeBytes();
    const size_t during = use();
    const size_t after = FreeBytes();
    // What earlier tests gave up may come back meanwhile, too: arrays go when the device is idle.
    if (during + taken_bytes <= before && after >= before) return testing::AssertionSuccess();
    if (--tries_left == 0) {
      return testing::AssertionFailure()
             << "free: " << before << ", then " << during << ", at last " << after;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

CUdeviceptr WithContext::Alloc(size_t size_bytes) {
  CUdeviceptr memory = 0;
  EXPECT_EQ(Cu().cuMemAlloc_v2(&memory, size_bytes), CUDA_SUCCESS);
  EXPECT_NE(memory, 0u);
  if (memory != 0) device_memory_.push_back(memory);
  return memory;
}

void* WithContext::HostAlloc(size_t size_bytes, unsigned flags) {
  void* memory = nullptr;
  EXPECT_EQ(Cu().cuMemHostAlloc(&memory, size_bytes, flags), CUDA_SUCCESS);
  EXPECT_NE(memory, nullptr);
  if (memory != nullptr) {
    host_memory_.push_back(memory);
    std::memset(memory, 0, size_bytes);
  }
  return memory;
}

CUstream WithContext::Stream(unsigned flags) {
  CUstream stream = nullptr;
  EXPECT_EQ(Cu().cuStreamCreate(&stream, flags), CUDA_SUCCESS);
  if (stream != nullptr) streams_.push_back(stream);
  return stream;
}

CUevent WithContext::Event(unsigned flags) {
  CUevent event = nullptr;
  EXPECT_EQ(Cu().cuEventCreate(&event, flags), CUDA_SUCCESS);
  if (event != nullptr) events_.push_back(event);
  return event;
}

void WithKernels::SetUp() {
  ASSERT_NO_FATAL_FAILURE(WithContext::SetUp());
  ASSERT_EQ(Cu().cuModuleLoadData(&module_, kKernels), CUDA_SUCCESS);
}

void WithKernels::TearDown() {
  if (gate_ != nullptr) Open();
  if (module_ != nullptr) {
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuModuleUnload(module_), CUDA_SUCCESS);
  }
  WithContext::TearDown();
}

CUfunction WithKernels::Function(const char* name) {
  CUfunction function = nullptr;
  EXPECT_EQ(Cu().cuModuleGetFunction(&function, module_, name), CUDA_SUCCESS) << name;
  return function;
}

void WithKernels::Block(CUstream stream) {
  if (gate_ == nullptr) gate_ = static_cast<volatile uint32_t*>(HostAlloc(sizeof(uint32_t)));
  ASSERT_NE(gate_, nullptr);
  *gate_ = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(gate_);
  ASSERT_EQ(Launch(Function("wait_for"), 1, 1, stream, address), CUDA_SUCCESS);
}

void WithKernels::Open() { *gate_ = 1; }

std::vector<uint32_t> Pattern(size_t count, uint32_t seed) {
  std::vector<uint32_t> words(count);
  uint32_t state = seed;
  for (uint32_t& word : words) {
    state = state * 1664525 + 1013904223;
    word = state;
  }
  return words;
}

}  // namespace gpuloom::conformance
