// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/device_snapshot.h"

#include <gtest/gtest.h>

#include "agent/node/gpu_uuid.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/attribute.h"

namespace gpuloom::scheduler {
namespace {

DeviceFacts Facts() {
  DeviceFacts facts;
  facts.driver_version = 13010;
  facts.name = "NVIDIA H200";
  facts.pci_bus_id = "0000:17:00.0";
  facts.uuid[0] = 0x8d;
  facts.uuid[15] = 0x01;
  facts.total_memory_bytes = uint64_t{141} << 30;
  for (int32_t& attribute : facts.attributes) attribute = 1;
  facts.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT] = 132;
  facts.attributes[CU_DEVICE_ATTRIBUTE_PCI_BUS_ID] = 0x17;
  facts.attributes[200] = wire::kNoAttribute;
  return facts;
}

TEST(DeviceSnapshot, SaysWhatTheTenantHas) {
  const wire::DeviceSnapshot snapshot = MakeSnapshot(Facts(), uint64_t{14} << 30, {0, -5});
  EXPECT_EQ(snapshot.total_memory_bytes, uint64_t{14} << 30)
      << "the quota, not the device's memory";
  EXPECT_STREQ(snapshot.name, "NVIDIA H200");
  EXPECT_STREQ(snapshot.pci_bus_id, "0000:17:00.0");
  EXPECT_EQ(snapshot.pci_bus, 0x17);
  EXPECT_EQ(snapshot.uuid[0], 0x8d);
  EXPECT_EQ(snapshot.stream_priority_least, 0);
  EXPECT_EQ(snapshot.stream_priority_greatest, -5);
  EXPECT_EQ(snapshot.attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT], 132);
  EXPECT_EQ(snapshot.attributes[CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING], 1);
  EXPECT_EQ(snapshot.attributes[CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY], 1);
  EXPECT_EQ(snapshot.attributes[200], wire::kNoAttribute);
}

TEST(DeviceSnapshot, TheDriverVersionIsAtMostOurTables) {
  DeviceFacts facts = Facts();
  EXPECT_EQ(MakeSnapshot(facts, 0, {}).driver_version, 13000);
  facts.driver_version = 12080;
  EXPECT_EQ(MakeSnapshot(facts, 0, {}).driver_version, 12080);
}

TEST(DeviceSnapshot, WhatIsNotImplementedIsNotThere) {
  const wire::DeviceSnapshot snapshot = MakeSnapshot(Facts(), 0, {});
  for (const CUdevice_attribute attribute :
       {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
        CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED}) {
    EXPECT_EQ(snapshot.attributes[attribute], 0) << "attribute " << attribute;
  }
}

TEST(DeviceSnapshot, AnAttributeTheDriverDoesNotKnowStaysUnknown) {
  DeviceFacts facts = Facts();
  facts.attributes[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED] = wire::kNoAttribute;
  EXPECT_EQ(MakeSnapshot(facts, 0, {}).attributes[CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED],
            wire::kNoAttribute);
}

TEST(DeviceSnapshot, ALongNameIsCut) {
  DeviceFacts facts = Facts();
  facts.name.assign(400, 'x');
  const wire::DeviceSnapshot snapshot = MakeSnapshot(facts, 0, {});
  EXPECT_EQ(snapshot.name[sizeof(snapshot.name) - 1], '\0');
}

TEST(Uuid, IsWrittenAsNvidiaSmiDoes) {
  EXPECT_EQ(FormatUuid(Facts().uuid), "GPU-8d000000-0000-0000-0000-000000000001");
}

}  // namespace
}  // namespace gpuloom::scheduler
