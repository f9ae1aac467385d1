// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "agent/softgpu/driver/settings.h"
#include "agent/softgpu/testing/built_driver.h"

namespace gpuloom::softgpu {
namespace {

TEST(Settings, MemoryIsASizeThatADeviceCanHave) {
  uint64_t bytes = 0;
  std::string error;
  EXPECT_TRUE(ParseMemory("8GiB", bytes, error)) << error;
  EXPECT_EQ(bytes, uint64_t{8} << 30);
  EXPECT_TRUE(ParseMemory("64TiB", bytes, error)) << error;
  EXPECT_EQ(bytes, uint64_t{64} << 40);
  EXPECT_TRUE(ParseMemory("4096", bytes, error)) << error;
  EXPECT_EQ(bytes, 4096u);
  const std::pair<const char*, const char*> mistakes[] = {{"", "is not a size"},
                                                          {"8G", "write the binary unit, 8GiB"},
                                                          {"8 GiB", "an unknown unit"},
                                                          {"0", "is not between 1B and 64TiB"},
                                                          {"65TiB", "between 1B and 64TiB"}};
  for (const auto& [text, expected] : mistakes) {
    EXPECT_FALSE(ParseMemory(text, bytes, error)) << text;
    EXPECT_NE(error.find(expected), std::string::npos) << text << ": " << error;
    EXPECT_EQ(bytes, 4096u) << text;
  }
}

TEST(Settings, MemoryMayDifferByDevice) {
  std::vector<uint64_t> sizes = {1};
  std::string error;
  EXPECT_TRUE(ParseMemories("8GiB", sizes, error)) << error;
  EXPECT_EQ(sizes, std::vector{uint64_t{8} << 30});
  EXPECT_TRUE(ParseMemories("8GiB,16GiB", sizes, error)) << error;
  EXPECT_EQ(sizes, (std::vector{uint64_t{8} << 30, uint64_t{16} << 30}));
  for (const char* text : {"8GiB,", ",8GiB", "8GiB,much"}) {
    EXPECT_FALSE(ParseMemories(text, sizes, error)) << text;
    EXPECT_EQ(sizes.size(), 2u) << text;
  }
}

TEST_F(DriverTest, DeviceSaysThatItIsSoftware) {
  char name[64];
  ASSERT_EQ(Cuda().cuDeviceGetName(name, sizeof(name), 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "gpuloom softgpu (software)");
  ASSERT_EQ(Cuda().cuDeviceGetName(name, 8, 0), CUDA_SUCCESS);
  EXPECT_STREQ(name, "gpuloom");
  int count = 0;
  ASSERT_EQ(Cuda().cuDeviceGetCount(&count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2);
  CUdevice device = -1;
  EXPECT_EQ(Cuda().cuDeviceGet(&device, 1), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuDeviceGet(&device, 2), CUDA_ERROR_INVALID_DEVICE);
  size_t bytes = 0;
  ASSERT_EQ(Cuda().cuDeviceTotalMem_v2(&bytes, 1), CUDA_SUCCESS);
  EXPECT_EQ(bytes, kTestMemoryBytes);
}

TEST_F(DriverTest, EveryAttributeHasAnAnswer) {
  const auto get = [](int attribute) {
    int value = -99;
    EXPECT_EQ(Cuda().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), 0),
              CUDA_SUCCESS)
        << attribute;
    return value;
  };
  for (int attribute = 1; attribute < CU_DEVICE_ATTRIBUTE_MAX; ++attribute)
    EXPECT_NE(get(attribute), -99);
  EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), 9);
  EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_WARP_SIZE), 32);
  EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
  EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), 227 * 1024);
  EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS), 0);
  int value = 0;
  EXPECT_EQ(Cuda().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, DevicesAreToldApart) {
  CUuuid first{};
  CUuuid second{};
  ASSERT_EQ(Cuda().cuDeviceGetUuid_v2(&first, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDeviceGetUuid_v2(&second, 1), CUDA_SUCCESS);
  EXPECT_NE(std::memcmp(&first, &second, sizeof(first)), 0);
  for (int ordinal : {0, 1}) {
    char address[32];
    ASSERT_EQ(Cuda().cuDeviceGetPCIBusId(address, sizeof(address), ordinal), CUDA_SUCCESS);
    CUdevice found = -1;
    ASSERT_EQ(Cuda().cuDeviceGetByPCIBusId(&found, address), CUDA_SUCCESS);
    EXPECT_EQ(found, ordinal) << address;
    int bus = 0;
    ASSERT_EQ(Cuda().cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, ordinal),
              CUDA_SUCCESS);
    EXPECT_EQ(std::stoi(std::string(address).substr(5, 2), nullptr, 16), bus);
  }
}

TEST_F(DriverTest, ErrorsHaveNamesAndSentences) {
  const char* text = nullptr;
  ASSERT_EQ(Cuda().cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  ASSERT_EQ(Cuda().cuGetErrorString(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "an illegal memory access was encountered");
  EXPECT_EQ(Cuda().cuGetErrorString(static_cast<CUresult>(4242), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

TEST_F(DriverTest, UnsupportedFunctionsSaySo) {
  EXPECT_EQ(Cuda().cuGraphicsMapResources(0, nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(DriverTest, FunctionsAreFoundByNameAndVersion) {
  void* old_one = nullptr;
  void* new_one = nullptr;
  ASSERT_EQ(Cuda().cuGetProcAddress_v2("cuCtxGetDevice", &old_one, 2000, 0, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuGetProcAddress_v2("cuCtxGetDevice", &new_one, 13000, 0, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(old_one, reinterpret_cast<void*>(Cuda().cuCtxGetDevice));
  EXPECT_EQ(new_one, reinterpret_cast<void*>(Cuda().cuCtxGetDevice_v2));
}

// A driver of its own in a new process: threadsafe death tests run in one.
const Driver& NewDriver(const char* devices) {
  static Driver driver;
  setenv("GPULOOM_SOFTGPU_DEVICES", devices, 1);
  setenv("GPULOOM_SOFTGPU_QUIET", "1", 1);
  std::string error;
  if (!Load(GPULOOM_SOFTGPU_LIBRARY, &driver, &error)) std::_Exit(2);
  return driver;
}

int OpenDescriptors() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST(StartDeathTest, CanFailAgainAndAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const Driver& driver = NewDriver("0");
    bool right = driver.cuInit(0) == CUDA_ERROR_NO_DEVICE;
    const int before = OpenDescriptors();
    for (int i = 0; i < 5; ++i) right = driver.cuInit(0) == CUDA_ERROR_NO_DEVICE && right;
    std::_Exit(right && OpenDescriptors() == before ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST(StartDeathTest, FailsWithoutThreads) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    const Driver& driver = NewDriver("1");
    {
      const WithoutThreads without;
      if (driver.cuInit(0) != CUDA_ERROR_OPERATING_SYSTEM) std::_Exit(1);
    }
    std::_Exit(driver.cuInit(0) == CUDA_SUCCESS ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(DriverTest, AForkedChildHasNoDriver) {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    const bool right = Cuda().cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED &&
                       Cuda().cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                       Cuda().cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace gpuloom::softgpu
