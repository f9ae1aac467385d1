// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "agent/softgpu/testing/built_driver.h"

namespace gpuloom::softgpu {
namespace {

// Where the second process wants the memory mapped, as gpuloom's executor does. ThreadSanitizer
// keeps most addresses for itself, also that window.
#if defined(__SANITIZE_THREAD__)
constexpr CUdeviceptr kWanted = 0x20'0000'0000;
#else
constexpr CUdeviceptr kWanted = 0x5000'0000'0000;
#endif

void* AsHandle(int fd) { return reinterpret_cast<void*>(static_cast<intptr_t>(fd)); }

TEST_F(DriverTest, MemoryIsMappedWhereItIsWanted) {
  const size_t before = FreeBytes();
  const CUmemGenericAllocationHandle memory = Create(kGranule * 2);
  EXPECT_EQ(before - FreeBytes(), kGranule * 2);
  CUdeviceptr begin = 0;
  ASSERT_EQ(Cuda().cuMemAddressReserve(&begin, kGranule * 16, 0, kWanted - kGranule, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(begin, kWanted) << "in steps of 32 MiB";
  CUdeviceptr elsewhere = 0;
  ASSERT_EQ(Cuda().cuMemAddressReserve(&elsewhere, kGranule, 0, kWanted, 0), CUDA_SUCCESS);
  EXPECT_NE(elsewhere, kWanted);
  EXPECT_EQ(elsewhere % kGranule, 0u);
  EXPECT_EQ(Cuda().cuMemAddressFree(elsewhere, kGranule), CUDA_SUCCESS);

  ASSERT_EQ(Cuda().cuMemMap(begin + kGranule, kGranule * 2, 0, memory, 0), CUDA_SUCCESS);
  // Nobody may touch it yet.
  EXPECT_EQ(Cuda().cuMemsetD8_v2(begin + kGranule, 1, 16), CUDA_ERROR_INVALID_VALUE);
  Allow(begin + kGranule, kGranule * 2);
  EXPECT_EQ(Cuda().cuMemsetD8_v2(begin + kGranule, 1, kGranule * 2), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemsetD8_v2(begin, 1, 16), CUDA_ERROR_INVALID_VALUE);
  // The handle may go before the mapping; the memory stays.
  EXPECT_EQ(Cuda().cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemRelease(memory), CUDA_ERROR_INVALID_VALUE);
  unsigned char last = 0;
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(&last, begin + kGranule * 3 - 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(last, 1);
  EXPECT_EQ(before - FreeBytes(), kGranule * 2);

  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(
      Cuda().cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(begin + kGranule + 5)),
      CUDA_SUCCESS);
  CUmemAllocationProp properties{};
  ASSERT_EQ(Cuda().cuMemGetAllocationPropertiesFromHandle(&properties, again), CUDA_SUCCESS);
  EXPECT_EQ(properties.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(Cuda().cuMemRelease(again), CUDA_SUCCESS);

  EXPECT_EQ(Cuda().cuMemAddressFree(begin, kGranule * 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemUnmap(begin + kGranule, kGranule), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cuda().cuMemUnmap(begin + kGranule, kGranule * 2), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before);
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(&last, begin + kGranule, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemAddressFree(begin, kGranule * 16), CUDA_SUCCESS);
}

TEST_F(DriverTest, ZerosLeaveAloneWhatNobodyHasWritten) {
  const CUmemGenericAllocationHandle memory = Create(kGranule);
  CUdeviceptr begin = 0;
  ASSERT_EQ(Cuda().cuMemAddressReserve(&begin, kGranule, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemMap(begin, kGranule, 0, memory, 0), CUDA_SUCCESS);
  Allow(begin, kGranule);
  int fd = -1;
  ASSERT_EQ(
      Cuda().cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      CUDA_SUCCESS);
  const auto pages = [&] {
    struct stat status {};
    EXPECT_EQ(fstat(fd, &status), 0);
    return status.st_blocks * 512 / getpagesize();
  };
  ASSERT_EQ(Cuda().cuMemsetD32_v2(begin, 0, kGranule / 4), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(pages(), 0);
  ASSERT_EQ(Cuda().cuMemsetD8_v2(begin + kGranule / 2, 7, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32_v2(begin, 0, kGranule / 8), CUDA_SUCCESS);
  uint8_t found = 0;
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(&found, begin + kGranule / 2, 1), CUDA_SUCCESS);
  EXPECT_EQ(found, 7);
  EXPECT_EQ(pages(), 1);
  ASSERT_EQ(Cuda().cuMemsetD32_v2(begin, 0, kGranule / 4), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(&found, begin + kGranule / 2, 1), CUDA_SUCCESS);
  EXPECT_EQ(found, 0);
  EXPECT_EQ(close(fd), 0);
  EXPECT_EQ(Cuda().cuMemUnmap(begin, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemAddressFree(begin, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemRelease(memory), CUDA_SUCCESS);
}

TEST_F(DriverTest, WrongSizesAndRangesAreRefused) {
  const CUmemAllocationProp properties = DeviceMemory();
  CUmemGenericAllocationHandle memory = 0;
  EXPECT_EQ(Cuda().cuMemCreate(&memory, 4096, &properties, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemCreate(&memory, kTestMemoryBytes * 2, &properties, 0),
            CUDA_ERROR_OUT_OF_MEMORY);
  CUmemAllocationProp nowhere = DeviceMemory(7);
  EXPECT_EQ(Cuda().cuMemCreate(&memory, kGranule, &nowhere, 0), CUDA_ERROR_INVALID_DEVICE);
  memory = Create(kGranule);
  EXPECT_EQ(Cuda().cuMemMap(kWanted, kGranule, 0, memory, 0), CUDA_ERROR_NOT_SUPPORTED);
  CUdeviceptr begin = 0;
  EXPECT_EQ(Cuda().cuMemAddressReserve(&begin, 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cuda().cuMemAddressReserve(&begin, kGranule, 0, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemMap(begin, kGranule * 2, 0, memory, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Cuda().cuMemMap(begin, kGranule, 0, memory + 64, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cuda().cuMemMap(begin, kGranule, 0, memory, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemMap(begin, kGranule, 0, memory, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemUnmap(begin, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemAddressFree(begin, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemRelease(memory), CUDA_SUCCESS);
}

TEST_F(DriverTest, OneMemoryAtTwoAddressesIsTheSame) {
  const CUmemGenericAllocationHandle memory = Create(kGranule);
  CUdeviceptr begin = 0;
  ASSERT_EQ(Cuda().cuMemAddressReserve(&begin, kGranule * 2, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemMap(begin, kGranule, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemMap(begin + kGranule, kGranule, 0, memory, 0), CUDA_SUCCESS);
  Allow(begin, kGranule * 2);
  ASSERT_EQ(Cuda().cuMemsetD32_v2(begin + 64, 0xabcdef01, 1), CUDA_SUCCESS);
  unsigned value = 0;
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(&value, begin + kGranule + 64, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 0xabcdef01);
  // A copy may run across neighbouring mappings.
  std::vector<char> both(kGranule * 2);
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(both.data(), begin, both.size()), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemUnmap(begin, kGranule * 2), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemRelease(memory), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemAddressFree(begin, kGranule * 2), CUDA_SUCCESS);
}

TEST_F(DriverTest, MemoryIsSharedWithAnotherProcess) {
  const CUmemGenericAllocationHandle memory = Create(kGranule);
  int fd = -1;
  ASSERT_EQ(
      Cuda().cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
      CUDA_SUCCESS);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  CUdeviceptr begin = 0;
  ASSERT_EQ(Cuda().cuMemAddressReserve(&begin, kGranule, 0, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemMap(begin, kGranule, 0, memory, 0), CUDA_SUCCESS);
  Allow(begin, kGranule);
  ASSERT_EQ(Cuda().cuMemsetD8_v2(begin, 0x42, kGranule), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);

  const int inherited = dup(fd);  // without close-on-exec
  const std::string number = std::to_string(inherited);
  std::string program = "/proc/self/exe";
  std::string command = "--import";
  char* arguments[] = {program.data(), command.data(), const_cast<char*>(number.c_str()), nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  unsigned char first = 0;
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(&first, begin, 1), CUDA_SUCCESS);
  EXPECT_EQ(first, 0x43);
  close(inherited);
  close(fd);
  EXPECT_EQ(Cuda().cuMemUnmap(begin, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemAddressFree(begin, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemRelease(memory), CUDA_SUCCESS);
}

TEST_F(DriverTest, ForeignDescriptorsAreRefused) {
  CUmemGenericAllocationHandle memory = 0;
  const auto import = [&](int fd) {
    return Cuda().cuMemImportFromShareableHandle(&memory, AsHandle(fd),
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  };
  const int unsealed = memfd_create("test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(unsealed, static_cast<off_t>(kGranule)), 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(import(unsealed), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(import(null), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(import(-1), CUDA_ERROR_UNKNOWN);
  close(unsealed);
  close(null);
}

// What the other process does: no context, memory from a descriptor, mapped at a wanted address.
int ImportAndCheck(int fd) {
  const Driver& cuda = Cuda();
  CUmemGenericAllocationHandle memory = 0;
  CUdeviceptr begin = 0;
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (cuda.cuMemImportFromShareableHandle(
          &memory, AsHandle(fd), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS) {
    return 10;
  }
  close(fd);
  if (cuda.cuMemAddressReserve(&begin, kGranule * 16, 0, kWanted, 0) != CUDA_SUCCESS) return 11;
  if (begin != kWanted) return 12;
  if (cuda.cuMemMap(begin, kGranule, 0, memory, 0) != CUDA_SUCCESS) return 13;
  if (cuda.cuMemSetAccess(begin, kGranule, &access, 1) != CUDA_SUCCESS) return 14;
  CUcontext context = nullptr;
  if (cuda.cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS) return 15;
  if (cuda.cuCtxSetCurrent(context) != CUDA_SUCCESS) return 16;
  unsigned char last = 0;
  if (cuda.cuMemcpyDtoH_v2(&last, begin + kGranule - 1, 1) != CUDA_SUCCESS || last != 0x42)
    return 17;
  if (cuda.cuMemsetD8_v2(begin, 0x43, 1) != CUDA_SUCCESS) return 18;
  return cuda.cuCtxSynchronize() == CUDA_SUCCESS ? 0 : 19;
}

}  // namespace

}  // namespace gpuloom::softgpu

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--import") {
    return gpuloom::softgpu::ImportAndCheck(std::stoi(argv[2]));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
