// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/grants.h"

#include <cstdio>
#include <cstdlib>

#include "proto/channel/region.h"

namespace gpuloom::executor {

channel::UniqueFd TestingGrants::MakeMemory(uint64_t size_bytes) const {
  if (cuda_.cuMemCreate == nullptr) return channel::MakeSealedMemory("device memory", 4096);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle handle = 0;
  int fd = -1;
  if (cuda_.cuMemCreate(&handle, size_bytes, &properties, 0) != CUDA_SUCCESS ||
      cuda_.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         0) != CUDA_SUCCESS) {
    fprintf(stderr, "no device memory of %llu bytes\n",
            static_cast<unsigned long long>(size_bytes));
    abort();
  }
  cuda_.cuMemRelease(handle);
  return channel::UniqueFd(fd);
}

bool TestingGrants::Grant(uint64_t size_bytes, control::MemoryGranted* granted) {
  granted->size_bytes = size_bytes;
  if (in_use_bytes_ + size_bytes > quota_bytes) {
    granted->result = CUDA_ERROR_OUT_OF_MEMORY;
    ++refused_count;
    return false;
  }
  granted->memory_id = ++last_memory_;
  memory_[last_memory_] = size_bytes;
  in_use_bytes_ += size_bytes;
  return true;
}

bool TestingGrants::Answer(control::Connection* connection, const control::Incoming& in) {
  control::MemoryRequest request;
  control::MemoryCharge charge;
  control::MemoryReturn back;
  control::MemoryInfoRequest info;
  control::MemoryGranted granted{};
  const uint32_t question = in.header.request;
  if (in.As(&request)) {
    granted.session_id = request.session_id;
    granted.must_clear = must_clear;
    if (!Grant(request.size_bytes, &granted)) {
      (void)connection->Send(question, granted);
      return true;
    }
    const channel::UniqueFd memory = MakeMemory(request.size_bytes);
    const int fd = memory.get();
    (void)connection->Send(question, granted, &fd, 1);
  } else if (in.As(&charge)) {
    granted.session_id = charge.session_id;
    Grant(charge.size_bytes, &granted);
    (void)connection->Send(question, granted);
  } else if (in.As(&back)) {
    in_use_bytes_ -= memory_[back.memory_id];
    memory_.erase(back.memory_id);
    if (question != 0) (void)connection->Send(question, control::Answer{1, 0, 0, {}, 0, 0, 0});
  } else if (in.As(&info)) {
    const uint64_t quota = quota_bytes;
    (void)connection->Send(question,
                           control::MemoryInfo{info.session_id, quota - in_use_bytes_, quota});
  } else {
    return false;
  }
  return true;
}

}  // namespace gpuloom::executor
