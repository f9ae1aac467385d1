// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/copy/staging.h"

#include <cstring>

#include "agent/executor/device/device.h"
#include "agent/executor/session/tenant.h"

namespace gpuloom::executor {

// Called once, before there are tenants. If it fails, inline copies go from pageable memory.
void Staging::Start(Device* device) {
  void* memory = nullptr;
  if (device->cuda().cuMemHostAlloc == nullptr ||
      device->cuda().cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
    return;
  }
  free_ = FreeAddresses(reinterpret_cast<uint64_t>(memory), kBytes);
}

uint8_t* Staging::Copy(Tenant* tenant, std::span<const uint8_t> bytes) {
  const uint64_t cost_bytes = CostBytes(bytes.size());
  // One allocation must not take the pinned memory of all.
  if (tenant != nullptr && tenant->staged_bytes + cost_bytes > kTenantBytes) return nullptr;
  auto* copy = reinterpret_cast<uint8_t*>(free_.Take(cost_bytes));
  if (copy == nullptr) return nullptr;
  if (tenant != nullptr) tenant->staged_bytes += cost_bytes;
  std::memcpy(copy, bytes.data(), bytes.size());
  return copy;
}

void Staging::Give(Tenant* tenant, uint8_t* copy, uint64_t size_bytes) {
  if (tenant != nullptr) tenant->staged_bytes -= CostBytes(size_bytes);
  free_.Give(reinterpret_cast<uint64_t>(copy), CostBytes(size_bytes));
}

}  // namespace gpuloom::executor
