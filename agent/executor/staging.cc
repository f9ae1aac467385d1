#include "agent/executor/staging.h"

#include <cstring>

namespace gpuloom::executor {

void Staging::Start(Device* device) {
  void* memory = nullptr;
  if (device->cuda().cuMemHostAlloc == nullptr ||
      device->cuda().cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_PORTABLE) != CUDA_SUCCESS) {
    return;
  }
  free_ = FreeAddresses(reinterpret_cast<uint64_t>(memory), kBytes);
}

uint8_t* Staging::Copy(std::span<const uint8_t> bytes) {
  auto* copy = reinterpret_cast<uint8_t*>(free_.Take(CostBytes(bytes.size())));
  if (copy != nullptr) std::memcpy(copy, bytes.data(), bytes.size());
  return copy;
}

void Staging::Give(uint8_t* copy, uint64_t size_bytes) {
  free_.Give(reinterpret_cast<uint64_t>(copy), CostBytes(size_bytes));
}

}  // namespace gpuloom::executor
