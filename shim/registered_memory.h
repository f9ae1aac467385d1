// The program's own memory that it has registered (cuMemHostRegister). Its pages stay where they
// are and the device does not reach them: copies go through staging, as pageable memory's do, and
// nobody is told a device address. Safe from any thread.
#pragma once

#include <cstdint>

namespace gpuloom {

struct RegisteredMemory {
  uint64_t begin;
  uint64_t size_bytes;
  uint32_t flags;  // CU_MEMHOSTREGISTER_*
  uint32_t unused;
  uint64_t buffer_id;
};

[[nodiscard]] bool FindRegistered(uint64_t address, RegisteredMemory* found);
// For the reset of the context.
void ForgetAllRegistered();

}  // namespace gpuloom
