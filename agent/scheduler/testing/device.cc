// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/testing/device.h"

#include "proto/channel/region.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/attribute.h"

namespace gpuloom::scheduler {

TestingDevice::TestingDevice() {
  facts_.driver_version = 13000;
  facts_.name = "fake device";
  facts_.pci_bus_id = "0000:01:00.0";
  facts_.total_memory_bytes = uint64_t{16} << 30;
  facts_.uuid[0] = 0xab;
  for (int32_t& attribute : facts_.attributes) attribute = wire::kNoAttribute;
}

uint32_t TestingDevice::CreateMemory(uint64_t size_bytes, uint64_t* handle,
                                     channel::UniqueFd* exported) {
  ++tries;
  tries.notify_all();
  stalls.wait(true);
  if (result != 0) return result;
  if (used_bytes_ + size_bytes > room_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  *exported = channel::MakeSealedMemory("fake device memory", size_bytes);
  *handle = ++last_handle_;
  ++live;
  sizes_[*handle] = size_bytes;
  used_bytes_ += size_bytes;
  return 0;
}

void TestingDevice::ReleaseMemory(uint64_t handle) {
  --live;
  used_bytes_ -= sizes_.at(handle);
  sizes_.erase(handle);
}

}  // namespace gpuloom::scheduler
