// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/copy/staging.h"

#include <algorithm>
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
  constexpr uint64_t kWordsBytes = kWords * kAlignment;
  const auto begin = reinterpret_cast<uint64_t>(memory);
  words_ = FreeAddresses(begin, kWordsBytes);
  free_bytes_ = kBytes - kWordsBytes;
  free_ = FreeAddresses(begin + kWordsBytes, free_bytes_);
  is_pinned_ = true;
}

// A tenant with nothing staged may always stage one copy, so that it makes progress however small its part is.
bool Staging::HasRoom(const Tenant& tenant, uint64_t size_bytes) const {
  if (!is_pinned_) return true;
  const uint64_t cost_bytes = CostBytes(size_bytes);
  if (free_.largest_bytes() < cost_bytes) return false;
  return tenant.staged_bytes == 0 ||
         tenant.staged_bytes + cost_bytes <= std::min(kTenantBytes, free_bytes_ - cost_bytes);
}

uint8_t* Staging::Copy(Tenant* tenant, std::span<const uint8_t> bytes) {
  const uint64_t cost_bytes = CostBytes(bytes.size());
  auto* copy = reinterpret_cast<uint8_t*>(free_.Take(cost_bytes));
  if (copy == nullptr) return nullptr;
  free_bytes_ -= cost_bytes;
  tenant->staged_bytes += cost_bytes;
  std::memcpy(copy, bytes.data(), bytes.size());
  return copy;
}

void Staging::Give(Tenant* tenant, uint8_t* copy, uint64_t size_bytes) {
  const uint64_t cost_bytes = CostBytes(size_bytes);
  tenant->staged_bytes -= cost_bytes;
  free_bytes_ += cost_bytes;
  free_.Give(reinterpret_cast<uint64_t>(copy), cost_bytes);
}

uint8_t* Staging::TakeWord() {
  auto* word = reinterpret_cast<uint8_t*>(words_.Take(kAlignment));
  // A copy that fails leaves nothing of another tenant's.
  if (word != nullptr) std::memset(word, 0, sizeof(uint64_t));
  return word;
}

void Staging::GiveWord(uint8_t* word) { words_.Give(reinterpret_cast<uint64_t>(word), kAlignment); }

}  // namespace gpuloom::executor
