// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/device_snapshot.h"

#include <algorithm>
#include <cstring>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/attribute.h"

namespace gpuloom::scheduler {
namespace {

struct Mask {
  CUdevice_attribute attribute;
  int32_t value;
};

// What tenants do not have. Remove a line when the shim and the executor implement its feature.
constexpr Mask kMasked[] = {
    // Memory that migrates by page faults, or that the device accesses without a copy.
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 0},
    {CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, 0},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, 0},
    {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 0},
    // The device does not access the tenant's own memory: registering it only records it.
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 0},
    // Pools, and handles to pass memory on other than by descriptor.
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR},
    {CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, 0},
    {CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH, 0},
    // Paths from the device to other devices and processes.
    {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 0},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 0},
    {CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD, 0},
    // Ways to launch and to wait.
    {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 0},
    {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0},
    // A context's shared resources, which no tenant may set for its neighbours.
    {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 0},
    {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 0},
    // Arrays and descriptors.
    {CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED, 0},
    {CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 0},
    // We do the sharing, whatever the driver offers below; a tenant's process is no MPS client.
    {CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 0},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
};

template <size_t N>
void SetText(char (&field)[N], const std::string& text) {
  std::memset(field, 0, N);
  std::memcpy(field, text.data(), std::min(text.size(), N - 1));
}

}  // namespace

wire::DeviceSnapshot MakeSnapshot(const DeviceFacts& facts, uint64_t memory_quota_bytes,
                                  StreamPriorities priorities, uint32_t multiprocessors_untrusted) {
  wire::DeviceSnapshot snapshot{};
  snapshot.driver_version = std::min(facts.driver_version, kToolkitVersion);
  snapshot.pci_domain = facts.attributes[CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID];
  snapshot.pci_bus = facts.attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID];
  snapshot.pci_device = facts.attributes[CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID];
  SetText(snapshot.pci_bus_id, facts.pci_bus_id);
  SetText(snapshot.name, facts.name);
  std::copy(std::begin(facts.uuid), std::end(facts.uuid), snapshot.uuid);
  snapshot.total_memory_bytes = memory_quota_bytes;
  snapshot.stream_priority_least = priorities.least;
  snapshot.stream_priority_greatest = priorities.greatest;
  std::copy(std::begin(facts.attributes), std::end(facts.attributes), snapshot.attributes);
  for (const Mask& mask : kMasked) {
    // An attribute that the driver does not know stays unknown.
    int32_t& value = snapshot.attributes[mask.attribute];
    if (value != wire::kNoAttribute) value = mask.value;
  }
  // Never more than the device has: the number is an executor's.
  int32_t& multiprocessors = snapshot.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  if (multiprocessors_untrusted != 0 &&
      multiprocessors_untrusted < static_cast<uint32_t>(std::max(multiprocessors, 0))) {
    multiprocessors = static_cast<int32_t>(multiprocessors_untrusted);
  }
  return snapshot;
}

}  // namespace gpuloom::scheduler
