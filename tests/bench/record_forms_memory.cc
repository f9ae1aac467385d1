// SPDX-License-Identifier: Apache-2.0
// Memory of every kind, and what is shared with other processes.
#include <cstring>

#include "tests/bench/record_forms.h"

namespace gpuloom::executor {
namespace {

using namespace wire;  // nothing else is spoken of here

constexpr uint64_t kGranule = 2u << 20;
constexpr uint64_t kBufferBytes = 64u << 20;
constexpr uint32_t kReadWrite = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
constexpr uint64_t kManagedRoom = 16u << 20;
constexpr PhysicalId kMapped{1}, kSpare{2}, kNewPhysical{77};
constexpr PoolId kPool{1}, kNewPool{77};

}  // namespace

void RecordForms::SetUpMemory() {
  const auto alloc = [this](uint64_t bytes) {
    return static_cast<uint64_t>(meter_->Ask<MemAlloc>({bytes}).address);
  };
  for (uint32_t i = 0; i < kSlices; ++i) Post<MemAlloc>({600});
  // Holes everywhere: the slices lie one after the other.
  for (uint32_t i = 1; i < kSlices; i += 2) Post<MemFreeLater>({DevicePtr{Slice(i)}});
  large_ = alloc(kBufferBytes);
  other_ = alloc(kBufferBytes);
  std::memset(reinterpret_cast<void*>(Page(0)), 1, kPages * kPageBytes);
  for (uint32_t i = 0; i < kPages; ++i) Post<HostRegister>({HostPtr{Page(i)}, kPageBytes});
  std::memset(reinterpret_cast<void*>(Host(kManaged)), 0, kManagedRoom);
  Post<HostRegister>({HostPtr{Host(kManaged)}, kManagedRoom});
  space_ = meter_->Ask<AddressSpace>({}).begin;
  managed_space_ = meter_->Ask<ManagedSpace>({}).begin;
  for (const PhysicalId physical : {kMapped, kSpare}) {
    meter_->Ask<PhysicalCreate>({physical, 0, kGranule});
  }
  for (uint32_t i = 0; i < kMappings; ++i) {
    Post<MemMap>({DevicePtr{Mapping(i)}, kGranule, kMapped, 0});
  }
  physical_ = meter_->Ask<PhysicalExport>({kMapped}).token;
  pool_ = meter_->Ask<PoolShare>({kPool}).token;
  put_ = meter_->Ask<PoolPut>({kPool, 0, DevicePtr{other_}}).memory;
}

void RecordForms::FillMemory() {
  On<MemAlloc>([this] { Post<MemAlloc>({600}); });
  On<MemFree>([this] { Post<MemFree>({DevicePtr{Slice(0)}}); });
  On<MemFreeLater>([this] { Post<MemFreeLater>({DevicePtr{Slice(2)}}); });
  On<MemInfo>([this] { Post<MemInfo>({}); });
  On<HostRegister>(
      [this] {
        Post<HostRegister>({HostPtr{Host(0)}, kImageBytes});
      },
      [this] { std::memset(reinterpret_cast<void*>(Host(0)), 1, kImageBytes); });
  On<HostUnregister>([this] { Post<HostUnregister>({HostPtr{Page(0)}, kPageBytes}); });
  const uint64_t pages_bytes = (kPages - 1) * kPageBytes;
  On<Copy>([=, this] {
    Post<Copy>({kLegacyStream, CopyKind::kHostToHost, Page(1), Page(1), pages_bytes});
  });
  On<CopyInline>([this] {
    Post<CopyInline>({kLegacyStream, 0, DevicePtr{large_}},
                     std::vector<uint8_t>(kMaxInlineCopyBytes));
  });
  On<Fill>([this] { Post<Fill>({kLegacyStream, 1, 0, 0, Page(1), 1u << 20}); });
  // Row by row from page to page.
  On<CopyBlock>([=, this] {
    CopyBlock::Request request{};
    request.copy.to = {GraphCopySpace::kDevice, 0, large_, kPageBytes, kPages - 1, 0, 0, 0};
    request.copy.from = {GraphCopySpace::kHost, 0, Page(1), kPageBytes, kPages - 1, 0, 0, 0};
    request.copy.width_bytes = 64;
    request.copy.height = kPages - 1;
    request.copy.depth = 1;
    Post<CopyBlock>(request);
  });
  On<FillBlock>([this] {
    FillBlock::Request request{};
    request.fill = {large_, kPageBytes, 16, kPages, 0, 4};
    Post<FillBlock>(request);
  });
}

void RecordForms::FillSharing() {
  On<AddressSpace>([this] { Post<AddressSpace>({}); });
  On<PhysicalCreate>([this] { Post<PhysicalCreate>({kNewPhysical, 0, 32 * kGranule}); });
  On<PhysicalRelease>([this] { Post<PhysicalRelease>({kNewPhysical}); });
  On<PhysicalExport>([this] { Post<PhysicalExport>({kSpare}); });
  On<PhysicalImport>([this] { Post<PhysicalImport>({PhysicalId{78}, 0, physical_}); });
  On<MemExport>([this] { Post<MemExport>({DevicePtr{Slice(4)}}); });
  On<MemMap>([this] { Post<MemMap>({DevicePtr{Mapping(kMappings)}, kGranule, kMapped, 0}); });
  On<MemUnmap>([this] { Post<MemUnmap>({DevicePtr{Mapping(kMappings)}, kGranule}); });
  On<MemSetAccess>([this] {
    Post<MemSetAccess>({DevicePtr{Mapping(0)}, kMappings * kGranule, kReadWrite, 0});
  });
  On<ManagedSpace>([this] { Post<ManagedSpace>({}); });
  On<ManagedMap>([this] {
    Post<ManagedMap>({DevicePtr{managed_space_}, kGranule, kSpare, 0, {}});
  });
  On<ManagedUnmap>([this] { Post<ManagedUnmap>({DevicePtr{managed_space_}, kGranule}); });
  On<PoolShare>([this] { Post<PoolShare>({kNewPool}); });
  On<PoolOpen>([this] { Post<PoolOpen>({PoolId{78}, 0, pool_}); });
  On<PoolPut>([this] { Post<PoolPut>({kPool, 0, DevicePtr{large_}}); });
  On<PoolTake>([this] { Post<PoolTake>({PoolId{78}, 0, put_}); });
  On<PoolClose>([this] { Post<PoolClose>({kNewPool}); });
}

}  // namespace gpuloom::executor
