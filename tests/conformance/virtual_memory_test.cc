// SPDX-License-Identifier: Apache-2.0
// Virtual memory: physical memory, reserved addresses, and the two put together. The codes of wrong
// calls are those of driver 580 on an H200.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGranule = 2 * kMiB;

class VirtualMemory : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    access_.location = properties_.location;
    access_.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  void TearDown() override {
    if (module_ != nullptr) {
      EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    }
    for (const auto& [address, size] : reserved_) {
      EXPECT_EQ(Cu().cuMemUnmap(address, size), CUDA_SUCCESS);
      EXPECT_EQ(Cu().cuMemAddressFree(address, size), CUDA_SUCCESS);
    }
    for (const auto memory : memory_) EXPECT_EQ(Cu().cuMemRelease(memory), CUDA_SUCCESS);
    WithKernels::TearDown();
  }

  CUdeviceptr Reserve(size_t size, size_t alignment = 0) {
    CUdeviceptr address = 0;
    EXPECT_EQ(Cu().cuMemAddressReserve(&address, size, alignment, 0, 0), CUDA_SUCCESS);
    if (address != 0) reserved_.emplace_back(address, size);
    return address;
  }
  CUmemGenericAllocationHandle Create(size_t size) {
    CUmemGenericAllocationHandle memory = 0;
    EXPECT_EQ(Cu().cuMemCreate(&memory, size, &properties_, 0), CUDA_SUCCESS);
    if (memory != 0) memory_.push_back(memory);
    return memory;
  }
  // Reserved, mapped and accessible.
  CUdeviceptr Mapped(size_t size) {
    const CUdeviceptr address = Reserve(size);
    EXPECT_EQ(Cu().cuMemMap(address, size, 0, Create(size), 0), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemSetAccess(address, size, &access_, 1), CUDA_SUCCESS);
    return address;
  }

  CUmemAllocationProp properties_ = {};
  CUmemAccessDesc access_ = {};
  std::vector<std::pair<CUdeviceptr, size_t>> reserved_;
  std::vector<CUmemGenericAllocationHandle> memory_;
};

TEST_F(VirtualMemory, AttributesAndGranularity) {
  int supported = 0;
  ASSERT_EQ(Cu().cuDeviceGetAttribute(
                &supported, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device_),
            CUDA_SUCCESS);
  EXPECT_EQ(supported, 1);
  for (const auto option :
       {CU_MEM_ALLOC_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED}) {
    size_t granularity = 0;
    ASSERT_EQ(Cu().cuMemGetAllocationGranularity(&granularity, &properties_, option), CUDA_SUCCESS);
    EXPECT_EQ(granularity, kGranule);
  }
  size_t granularity = 0;
  EXPECT_EQ(
      Cu().cuMemGetAllocationGranularity(nullptr, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(
      Cu().cuMemGetAllocationGranularity(&granularity, nullptr, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
      CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, KernelsAndCopiesUseIt) {
  const CUdeviceptr address = Mapped(2 * kGranule);
  constexpr uint32_t kCount = kGranule / 2;  // over both granules
  ASSERT_EQ(Launch(Function("fill"), (kCount + 127) / 128, 128, nullptr, address, 77u, kCount),
            CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(address, kCount), std::vector<uint32_t>(kCount, 77));
  const auto words = Pattern(1000, 1);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(address + kGranule, words.data(), 4000), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoD_v2(address, address + kGranule, 4000), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(address, 1000), words);
}

// As PyTorch's expandable segments do: a tensor lies across mappings.
TEST_F(VirtualMemory, OneRangeOfSeveralMappings) {
  const CUdeviceptr address = Reserve(16 * kGranule);
  for (size_t i = 0; i < 3; ++i) {
    const CUdeviceptr at = address + i * 2 * kGranule;
    ASSERT_EQ(Cu().cuMemMap(at, 2 * kGranule, 0, Create(2 * kGranule), 0), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemSetAccess(at, 2 * kGranule, &access_, 1), CUDA_SUCCESS);
  }
  ASSERT_EQ(Cu().cuMemsetD8_v2(address + kMiB, 9, 10 * kMiB), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(address + kMiB, 10 * kMiB), std::vector<uint8_t>(10 * kMiB, 9));
  EXPECT_EQ(Cu().cuMemsetD8_v2(address + 12 * kMiB, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemsetD8_v2(address + 11 * kMiB, 1, 2 * kMiB), CUDA_ERROR_INVALID_VALUE);
  // The middle goes; its neighbours stay.
  ASSERT_EQ(Cu().cuMemUnmap(address + 2 * kGranule, 2 * kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemsetD8_v2(address + kMiB, 9, 10 * kMiB), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Download<uint8_t>(address + kMiB, kMiB), std::vector<uint8_t>(kMiB, 9));
  EXPECT_EQ(Download<uint8_t>(address + 9 * kMiB, kMiB), std::vector<uint8_t>(kMiB, 9));
}

// As llama.cpp does: a large reservation, of which little is ever mapped. How much memory there is does
// not matter, only how many addresses.
TEST_F(VirtualMemory, ReservationsLargerThanTheMemory) {
  constexpr size_t kGiB = size_t{1} << 30;
  const CUmemGenericAllocationHandle memory = Create(kGranule);
  const auto words = Pattern(1000, 5);
  std::vector<std::pair<CUdeviceptr, size_t>> all;
  for (const size_t size : {32 * kGiB, 200 * kGiB}) {
    CUdeviceptr address = 0;
    ASSERT_EQ(Cu().cuMemAddressReserve(&address, size, 0, 0, 0), CUDA_SUCCESS) << size;
    all.emplace_back(address, size);
    const CUdeviceptr last = address + size - kGranule;
    ASSERT_EQ(Cu().cuMemMap(last, kGranule, 0, memory, 0), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemSetAccess(last, kGranule, &access_, 1), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemcpyHtoD_v2(last + kGranule - 4000, words.data(), 4000), CUDA_SUCCESS);
    ASSERT_EQ(Launch(Function("fill"), 1, 128, nullptr, last, 7u, 100u), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(last, 100), std::vector<uint32_t>(100, 7));
    EXPECT_EQ(Download<uint32_t>(last + kGranule - 4000, 1000), words);
    EXPECT_EQ(Cu().cuMemsetD8_v2(address, 0, 1), CUDA_ERROR_INVALID_VALUE) << "nothing is there";
  }
  EXPECT_TRUE(all[0].first + all[0].second <= all[1].first ||
              all[1].first + all[1].second <= all[0].first);
  for (const auto& [address, size] : all) {
    EXPECT_EQ(Cu().cuMemUnmap(address + size - kGranule, kGranule), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemAddressFree(address, size), CUDA_SUCCESS);
  }
  // The addresses are there again, and again.
  for (int i = 0; i < 20; ++i) {
    CUdeviceptr address = 0;
    ASSERT_EQ(Cu().cuMemAddressReserve(&address, 200 * kGiB, 0, 0, 0), CUDA_SUCCESS) << i;
    ASSERT_EQ(Cu().cuMemAddressFree(address, 200 * kGiB), CUDA_SUCCESS) << i;
  }
}

TEST_F(VirtualMemory, OneMemoryAtTwoAddresses) {
  const CUmemGenericAllocationHandle memory = Create(kGranule);
  const CUdeviceptr address = Reserve(4 * kGranule);
  const CUdeviceptr other = address + 3 * kGranule;
  ASSERT_EQ(Cu().cuMemMap(address, kGranule, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemMap(other, kGranule, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemSetAccess(address, kGranule, &access_, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemSetAccess(other, kGranule, &access_, 1), CUDA_SUCCESS);
  const auto words = Pattern(256, 3);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(address, words.data(), 1024), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(other, 256), words);
  // The handle goes first, one mapping after it; the memory stays for the other.
  ASSERT_EQ(Cu().cuMemRelease(memory), CUDA_SUCCESS);
  memory_.clear();
  ASSERT_EQ(Cu().cuMemUnmap(address, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(other, 256), words);
  CUmemGenericAllocationHandle again = 0;
  ASSERT_EQ(Cu().cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(other + 5)),
            CUDA_SUCCESS);
  EXPECT_EQ(again, memory);
  EXPECT_EQ(Cu().cuMemRelease(again), CUDA_SUCCESS);
}

TEST_F(VirtualMemory, WithoutAccessNothingReachesIt) {
  const CUdeviceptr address = Reserve(kGranule);
  ASSERT_EQ(Cu().cuMemMap(address, kGranule, 0, Create(kGranule), 0), CUDA_SUCCESS);
  unsigned long long flags = 99;
  ASSERT_EQ(Cu().cuMemGetAccess(&flags, &properties_.location, address), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEM_ACCESS_FLAGS_PROT_NONE});
  uint64_t word = 0;
  EXPECT_EQ(Cu().cuMemcpyHtoD_v2(address, &word, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemsetD8_v2(address, 0, 16), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr base = 0;
  EXPECT_EQ(Cu().cuMemGetAddressRange_v2(&base, nullptr, address), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(Cu().cuMemSetAccess(address, kGranule, &access_, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemGetAccess(&flags, &properties_.location, address + kMiB), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  EXPECT_EQ(Cu().cuMemcpyHtoD_v2(address, &word, 8), CUDA_SUCCESS);
  // The copy may still be on its way to the device.
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  access_.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  ASSERT_EQ(Cu().cuMemSetAccess(address, kGranule, &access_, 1), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemcpyHtoD_v2(address, &word, 8), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, PointerAttributes) {
  const CUdeviceptr address = Reserve(4 * kGranule);
  ASSERT_EQ(Cu().cuMemMap(address + kGranule, kGranule, 0, Create(kGranule), 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemSetAccess(address + kGranule, kGranule, &access_, 1), CUDA_SUCCESS);
  const CUdeviceptr inside = address + kGranule + 100;
  const auto ask = [&](CUpointer_attribute attribute, CUdeviceptr pointer) {
    uint64_t value = 0;
    EXPECT_EQ(Cu().cuPointerGetAttribute(&value, attribute, pointer), CUDA_SUCCESS) << attribute;
    return value;
  };
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_CONTEXT, inside), 0u);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), inside);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), address);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside), 4 * kGranule);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, inside), address + kGranule);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, inside), kGranule);
  EXPECT_EQ(ask(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside),
            unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  uint64_t value = 0;
  EXPECT_EQ(Cu().cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr base = 0;
  size_t size = 0;
  ASSERT_EQ(Cu().cuMemGetAddressRange_v2(&base, &size, inside), CUDA_SUCCESS);
  EXPECT_EQ(base, address + kGranule);
  EXPECT_EQ(size, kGranule);
}

TEST_F(VirtualMemory, UnmappingAfterWorkThatUsedIt) {
  const CUdeviceptr address = Mapped(kGranule);
  const CUstream stream = Stream();
  Block(stream);
  ASSERT_EQ(Launch(Function("fill"), 100, 128, stream, address, 5u, 12'800u), CUDA_SUCCESS);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemUnmap(address, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemsetD8_v2(address, 0, 16), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, TheMemoryIsChargedAndComesBack) {
  const CUdeviceptr address = Reserve(16 * kGranule);
  EXPECT_TRUE(FreeAgainAfter(8 * kGranule, [&] {
    const CUmemGenericAllocationHandle memory = Create(16 * kGranule);
    const size_t unmapped = FreeBytes();
    EXPECT_EQ(Cu().cuMemMap(address, 16 * kGranule, 0, memory, 0), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemRelease(memory), CUDA_SUCCESS);
    memory_.clear();
    const size_t mapped = FreeBytes();
    EXPECT_EQ(Cu().cuMemUnmap(address, 16 * kGranule), CUDA_SUCCESS);
    return std::max(unmapped, mapped);
  }));
  CUmemGenericAllocationHandle none = 0;
  EXPECT_EQ(Cu().cuMemCreate(&none, size_t{1} << 44, &properties_, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(VirtualMemory, ManyReservations) {
  size_t free_bytes = 0, total = 0;
  ASSERT_EQ(Cu().cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
  // A stream's expandable segment reserves more than all memory there is.
  const size_t size = (total + total / 8) / kGranule * kGranule;
  for (int i = 0; i < 4; ++i) Reserve(size);
  for (size_t i = 0; i < reserved_.size(); ++i) {
    for (size_t k = i + 1; k < reserved_.size(); ++k) {
      EXPECT_TRUE(reserved_[i].first + size <= reserved_[k].first ||
                  reserved_[k].first + size <= reserved_[i].first);
    }
  }
  EXPECT_EQ(Reserve(kGranule, size_t{1} << 28) % (size_t{1} << 28), 0u);
}

TEST_F(VirtualMemory, DescriptorsStandForMemory) {
  properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const CUmemGenericAllocationHandle memory = Create(kGranule);
  constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  int fd = -1;
  ASSERT_EQ(Cu().cuMemExportToShareableHandle(&fd, memory, kDescriptor, 0), CUDA_SUCCESS);
  ASSERT_GE(fd, 0);
  const auto as_handle = [](int number) {
    return reinterpret_cast<void*>(static_cast<intptr_t>(number));
  };
  CUmemGenericAllocationHandle imported = 0;
  ASSERT_EQ(Cu().cuMemImportFromShareableHandle(&imported, as_handle(fd), kDescriptor),
            CUDA_SUCCESS);
  memory_.push_back(imported);
  EXPECT_NE(imported, memory);
  const CUdeviceptr address = Reserve(2 * kGranule);
  ASSERT_EQ(Cu().cuMemMap(address, kGranule, 0, memory, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemMap(address + kGranule, kGranule, 0, imported, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemSetAccess(address, 2 * kGranule, &access_, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD8_v2(address, 42, 100), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(address + kGranule, 100), std::vector<uint8_t>(100, 42));

  CUmemGenericAllocationHandle none = 0;
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(Cu().cuMemImportFromShareableHandle(&none, as_handle(null), kDescriptor),
            CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(Cu().cuMemImportFromShareableHandle(&none, as_handle(999), kDescriptor),
            CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(Cu().cuMemImportFromShareableHandle(nullptr, as_handle(fd), kDescriptor),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemExportToShareableHandle(nullptr, memory, kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemExportToShareableHandle(&fd, memory, kDescriptor, 1),
            CUDA_ERROR_INVALID_VALUE);
  close(null);
  close(fd);
  properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
  int not_asked_for = -1;
  EXPECT_EQ(Cu().cuMemExportToShareableHandle(&not_asked_for, Create(kGranule), kDescriptor, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, WrongCreations) {
  CUmemGenericAllocationHandle none = 0;
  EXPECT_EQ(Cu().cuMemCreate(&none, kMiB, &properties_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemCreate(&none, 0, &properties_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemCreate(&none, kGranule, &properties_, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemCreate(nullptr, kGranule, &properties_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemCreate(&none, kGranule, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp wrong = properties_;
  wrong.location.id = 99;
  EXPECT_EQ(Cu().cuMemCreate(&none, kGranule, &wrong, 0), CUDA_ERROR_INVALID_DEVICE);
  wrong = properties_;
  wrong.type = CU_MEM_ALLOCATION_TYPE_INVALID;
  EXPECT_EQ(Cu().cuMemCreate(&none, kGranule, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
  wrong = properties_;
  wrong.location.type = CU_MEM_LOCATION_TYPE_INVALID;
  EXPECT_EQ(Cu().cuMemCreate(&none, kGranule, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemRelease(0), CUDA_ERROR_INVALID_VALUE);
  const CUmemGenericAllocationHandle memory = Create(kGranule);
  CUmemAllocationProp read = {};
  ASSERT_EQ(Cu().cuMemGetAllocationPropertiesFromHandle(&read, memory), CUDA_SUCCESS);
  EXPECT_EQ(read.type, CU_MEM_ALLOCATION_TYPE_PINNED);
  EXPECT_EQ(read.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
  EXPECT_EQ(read.location.id, device_);
  EXPECT_EQ(Cu().cuMemGetAllocationPropertiesFromHandle(nullptr, memory), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, WrongReservations) {
  CUdeviceptr none = 0;
  EXPECT_EQ(Cu().cuMemAddressReserve(&none, 0, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAddressReserve(&none, 65536, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAddressReserve(&none, kGranule, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAddressReserve(&none, kGranule, 0, 12345, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAddressReserve(&none, kGranule, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAddressReserve(nullptr, kGranule, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr address = Reserve(2 * kGranule);
  // A wish that cannot be granted is none.
  CUdeviceptr other = 0;
  ASSERT_EQ(Cu().cuMemAddressReserve(&other, kGranule, 0, address, 0), CUDA_SUCCESS);
  EXPECT_NE(other, address);
  EXPECT_EQ(Cu().cuMemAddressFree(other, 2 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAddressFree(address, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAddressFree(other, kGranule), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemAddressFree(other, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAddressFree(0, kGranule), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(VirtualMemory, WrongMappings) {
  const CUmemGenericAllocationHandle memory = Create(2 * kGranule);
  const CUdeviceptr address = Reserve(16 * kGranule);
  const auto map = [&](CUdeviceptr at, size_t size, size_t offset, unsigned long long flags) {
    return Cu().cuMemMap(at, size, offset, memory, flags);
  };
  EXPECT_EQ(map(address, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map(address, 2 * kGranule, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(map(address, kGranule, kGranule, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(map(address, kGranule, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(map(address, 4 * kGranule, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(map(address + 4096, 2 * kGranule, 0, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(map(address, 2 * kGranule, 0, 0), CUDA_SUCCESS);
  EXPECT_EQ(map(address, 2 * kGranule, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAddressFree(address, 16 * kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);

  const auto access = [&](CUdeviceptr at, size_t size, const CUmemAccessDesc& wanted) {
    return Cu().cuMemSetAccess(at, size, &wanted, 1);
  };
  EXPECT_EQ(access(address, 16 * kGranule, access_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(access(address, kGranule, access_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(access(address + kGranule, kGranule, access_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(access(address + 4 * kGranule, kGranule, access_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(access(address, 0, access_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemSetAccess(address, 2 * kGranule, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemSetAccess(address, 2 * kGranule, &access_, 0), CUDA_ERROR_INVALID_VALUE);
  CUmemAccessDesc wrong = access_;
  wrong.flags = static_cast<CUmemAccess_flags>(2);
  EXPECT_EQ(access(address, 2 * kGranule, wrong), CUDA_ERROR_INVALID_VALUE);
  wrong = access_;
  wrong.location.id = 99;
  EXPECT_EQ(access(address, 2 * kGranule, wrong), CUDA_ERROR_INVALID_VALUE);
  unsigned long long flags = 0;
  EXPECT_EQ(Cu().cuMemGetAccess(&flags, &wrong.location, address), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuMemGetAccess(&flags, &access_.location, address + 4 * kGranule),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemGetAccess(nullptr, &access_.location, address), CUDA_ERROR_INVALID_VALUE);

  CUmemGenericAllocationHandle none = 0;
  EXPECT_EQ(
      Cu().cuMemRetainAllocationHandle(&none, reinterpret_cast<void*>(address + 4 * kGranule)),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemUnmap(address, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemUnmap(address + kGranule, kGranule), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemUnmap(address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemUnmap(address + 4 * kGranule, kGranule), CUDA_SUCCESS);  // nothing there
  EXPECT_EQ(Cu().cuMemUnmap(address, 8 * kGranule), CUDA_SUCCESS);  // with a hole behind it
}

// Also while the device is at work, whose kernels may have looked at what was there.
TEST_F(VirtualMemory, FreedAddressesCanBeHadAgainAtOnce) {
  CUdeviceptr address = 0;
  ASSERT_EQ(Cu().cuMemAddressReserve(&address, 64 * kGranule, 0, 0, 0), CUDA_SUCCESS);
  for (int turn = 0; turn < 20; ++turn) {
    ASSERT_EQ(Launch(Function("spin"), 1, 1, nullptr, uint64_t{5'000'000}), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemAddressFree(address, 64 * kGranule), CUDA_SUCCESS);
    CUdeviceptr again = 0;
    ASSERT_EQ(Cu().cuMemAddressReserve(&again, 64 * kGranule, 0, address, 0), CUDA_SUCCESS);
    EXPECT_EQ(again, address);
    address = again;
  }
  EXPECT_EQ(Cu().cuMemAddressFree(address, 64 * kGranule), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
