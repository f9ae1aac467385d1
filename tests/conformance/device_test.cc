// SPDX-License-Identifier: Apache-2.0
// Devices, versions, attributes, error names, and resolving functions by name.
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using Device = WithContext;

TEST_F(Device, CountAndHandles) {
  int count = 0;
  ASSERT_EQ(Cu().cuDeviceGetCount(&count), CUDA_SUCCESS);
  ASSERT_GE(count, 1);
  CUdevice device = -1;
  EXPECT_EQ(Cu().cuDeviceGet(&device, count - 1), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuDeviceGet(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDeviceGetCount(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Device, DriverVersionIsASupportedOne) {
  int version = 0;
  ASSERT_EQ(Cu().cuDriverGetVersion(&version), CUDA_SUCCESS);
  EXPECT_GE(version, 12020);
  EXPECT_EQ(Cu().cuDriverGetVersion(nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Device, NameIsCutAndTerminated) {
  char name[256];
  std::memset(name, 'x', sizeof(name));
  ASSERT_EQ(Cu().cuDeviceGetName(name, sizeof(name), device_), CUDA_SUCCESS);
  EXPECT_GT(std::strlen(name), 3u);
  char cut[4];
  ASSERT_EQ(Cu().cuDeviceGetName(cut, sizeof(cut), device_), CUDA_SUCCESS);
  EXPECT_EQ(std::string(cut), std::string(name).substr(0, 3));
  EXPECT_EQ(Cu().cuDeviceGetName(name, sizeof(name), 1000), CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(Device, UuidIsTheSameThroughBothVersionsAndNotEmpty) {
  CUuuid first{}, second{}, zero{};
  ASSERT_EQ(Cu().cuDeviceGetUuid(&first, device_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuDeviceGetUuid_v2(&second, device_), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(&first, &second, sizeof(first)), 0);
  EXPECT_NE(std::memcmp(&first, &zero, sizeof(first)), 0);
}

TEST_F(Device, PciBusIdFindsTheDeviceAgain) {
  char id[32] = {};
  ASSERT_EQ(Cu().cuDeviceGetPCIBusId(id, sizeof(id), device_), CUDA_SUCCESS);
  CUdevice found = -1;
  ASSERT_EQ(Cu().cuDeviceGetByPCIBusId(&found, id), CUDA_SUCCESS) << id;
  EXPECT_EQ(found, device_);
  unsigned domain = 0, bus = 0, slot = 0;
  ASSERT_EQ(std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot), 3) << id;
  int value = -1;
  ASSERT_EQ(Cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, device_),
            CUDA_SUCCESS);
  EXPECT_EQ(static_cast<unsigned>(value), bus);
}

TEST_F(Device, AttributesThatProgramsDependOn) {
  struct {
    CUdevice_attribute attribute;
    int least;
    int most;
  } const expected[] = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152, 49152},
      {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32, 32},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1, 1000},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 7, 20},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1, 1},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0, 3},
  };
  for (const auto& e : expected) {
    int value = -1;
    ASSERT_EQ(Cu().cuDeviceGetAttribute(&value, e.attribute, device_), CUDA_SUCCESS) << e.attribute;
    EXPECT_GE(value, e.least) << e.attribute;
    EXPECT_LE(value, e.most) << e.attribute;
  }
  int value = 0;
  EXPECT_EQ(Cu().cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(100000), device_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 1000),
            CUDA_ERROR_INVALID_DEVICE);
}

TEST_F(Device, TotalMemoryAgreesWithMemGetInfo) {
  size_t total = 0, free_bytes = 0, info_total = 0;
  ASSERT_EQ(Cu().cuDeviceTotalMem_v2(&total, device_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemGetInfo_v2(&free_bytes, &info_total), CUDA_SUCCESS);
  EXPECT_EQ(total, info_total);
  EXPECT_GT(free_bytes, 0u);
  EXPECT_LE(free_bytes, total);
}

TEST_F(Device, WidestLinearTexture) {
  const struct {
    CUarray_format format;
    unsigned channels;
    size_t width;
  } expected[] = {
      {CU_AD_FORMAT_UNSIGNED_INT8, 1, size_t{1} << 30},
      {CU_AD_FORMAT_UNSIGNED_INT8, 4, size_t{1} << 30},
      {CU_AD_FORMAT_HALF, 2, size_t{1} << 30},
      {CU_AD_FORMAT_HALF, 4, size_t{1} << 29},
      {CU_AD_FORMAT_FLOAT, 1, size_t{1} << 30},
      {CU_AD_FORMAT_FLOAT, 2, size_t{1} << 29},
      {CU_AD_FORMAT_FLOAT, 4, size_t{1} << 28},
      {CU_AD_FORMAT_BC1_UNORM, 4, size_t{1} << 29},
      {CU_AD_FORMAT_BC7_UNORM, 4, size_t{1} << 28},
      {CU_AD_FORMAT_NV12, 3, size_t{1} << 30},
      {CU_AD_FORMAT_UNORM_INT16X4, 4, size_t{1} << 29},
  };
  size_t width = 0;
  for (const auto& e : expected) {
    ASSERT_EQ(Cu().cuDeviceGetTexture1DLinearMaxWidth(&width, e.format, e.channels, device_),
              CUDA_SUCCESS);
    EXPECT_EQ(width, e.width) << e.format << " x " << e.channels;
  }
  EXPECT_EQ(Cu().cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 3, device_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_BC1_UNORM, 1, device_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDeviceGetTexture1DLinearMaxWidth(nullptr, CU_AD_FORMAT_FLOAT, 1, 1000),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      Cu().cuDeviceGetTexture1DLinearMaxWidth(&width, static_cast<CUarray_format>(99), 1, device_),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDeviceGetTexture1DLinearMaxWidth(nullptr, CU_AD_FORMAT_FLOAT, 1, device_),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, 1000),
            CUDA_ERROR_INVALID_DEVICE);
}

// A link that does no atomics says so for each operation, and one that does for some at least.
TEST_F(Device, AtomicsOverTheLinkToTheHost) {
  if (IsDriverBelow(13000)) GTEST_SKIP() << "CUDA 13.0 has it first";
  int native = -1;
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&native, CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, device_),
      CUDA_SUCCESS);
  std::vector<CUatomicOperation> operations;
  for (int i = 0; i < CU_ATOMIC_OPERATION_MAX; ++i) {
    operations.push_back(static_cast<CUatomicOperation>(i));
  }
  const auto count = static_cast<unsigned>(operations.size());
  std::vector<unsigned> capabilities(count, ~0u);
  const auto ask = [&](unsigned* to, const CUatomicOperation* from, unsigned how_many, int device) {
    return Cu().cuDeviceGetHostAtomicCapabilities(to, from, how_many, device);
  };
  ASSERT_EQ(ask(capabilities.data(), operations.data(), count, device_), CUDA_SUCCESS);
  unsigned any = 0;
  for (const unsigned capability : capabilities) any |= capability;
  EXPECT_EQ(any != 0, native != 0);
  EXPECT_LT(any, 1u << 7);
  EXPECT_EQ(ask(capabilities.data(), operations.data(), 0, device_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(nullptr, operations.data(), 1, device_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(capabilities.data(), nullptr, 1, device_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(capabilities.data(), operations.data(), 1, 1000), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(ask(nullptr, nullptr, 0, 1000), CUDA_ERROR_INVALID_VALUE);
  operations[0] = CU_ATOMIC_OPERATION_MAX;
  EXPECT_EQ(ask(capabilities.data(), operations.data(), 1, device_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(ask(capabilities.data(), operations.data(), 1, 1000), CUDA_ERROR_INVALID_DEVICE);
  operations[0] = CU_ATOMIC_OPERATION_CAS;
  EXPECT_EQ(Cu().cuDeviceGetP2PAtomicCapabilities(capabilities.data(), operations.data(), 1,
                                                  device_, device_),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuDeviceGetP2PAtomicCapabilities(capabilities.data(), operations.data(), 1,
                                                  device_, 1000),
            CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuDeviceGetP2PAtomicCapabilities(nullptr, operations.data(), 1, device_, device_),
            CUDA_ERROR_INVALID_VALUE);
}

TEST(ErrorText, NamesAndStrings) {
  const char* text = nullptr;
  ASSERT_EQ(Cu().cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_ERROR_ILLEGAL_ADDRESS");
  ASSERT_EQ(Cu().cuGetErrorName(CUDA_SUCCESS, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "CUDA_SUCCESS");
  ASSERT_EQ(Cu().cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "out of memory");
  ASSERT_EQ(Cu().cuGetErrorString(CUDA_ERROR_INVALID_VALUE, &text), CUDA_SUCCESS);
  EXPECT_STREQ(text, "invalid argument");
  EXPECT_EQ(Cu().cuGetErrorString(static_cast<CUresult>(31415), &text), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(text, nullptr);
}

// The requested version chooses the function: cuCtxGetDevice has one argument, since 13.0 two.
TEST_F(Device, ProcAddressFollowsTheRequestedVersion) {
  void* old_function = nullptr;
  void* new_function = nullptr;
  CUdriverProcAddressQueryResult status;
  ASSERT_EQ(Cu().cuGetProcAddress_v2("cuCtxGetDevice", &old_function, 2000, 0, &status),
            CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SUCCESS);
  ASSERT_EQ(Cu().cuGetProcAddress_v2("cuCtxGetDevice", &new_function, 13000, 0, &status),
            CUDA_SUCCESS);
  CUdevice device = -1;
  EXPECT_EQ(reinterpret_cast<CUresult (*)(CUdevice*)>(old_function)(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, device_);
  if (IsDriverBelow(13000)) {
    EXPECT_EQ(old_function, new_function);
  } else {
    EXPECT_NE(old_function, new_function);
    device = -1;
    EXPECT_EQ(reinterpret_cast<CUresult (*)(CUdevice*, CUcontext)>(new_function)(&device, context_),
              CUDA_SUCCESS);
    EXPECT_EQ(device, device_);
  }

  void* none = &status;
  // With a place for the status this is no error.
  EXPECT_EQ(Cu().cuGetProcAddress_v2("cuNoSuchFunction", &none, 13000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(Cu().cuGetProcAddress_v2("cuLibraryLoadData", &none, 2000, 0, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
}

}  // namespace
}  // namespace gpuloom::conformance
