// SPDX-License-Identifier: Apache-2.0
// What a pointer is: cuPointerGetAttribute(s), from the table of known memory.
#include <string.h>

#include <atomic>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/memory/address_space.h"
#include "shim/memory/memory.h"
#include "shim/memory/pool.h"
#include "shim/memory/registered_memory.h"
#include "shim/process/growing.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

struct Synchronous {
  std::atomic<bool> ever{false};
  Lock lock;
  Growing<uint64_t> buffers GPULOOM_GUARDED_BY(lock);  // ids are never used twice
};
constinit Synchronous synchronous;

bool IsSynchronous(uint64_t buffer_id) {
  if (!MemoryOperationsWait()) return false;
  Holding holding(&synchronous.lock);
  for (const uint64_t id : synchronous.buffers) {
    if (id == buffer_id) return true;
  }
  return false;
}

// Ids of freed memory stay in the list, which only costs their room: they are never given to
// another buffer.
CUresult SetSynchronous(uint64_t buffer_id, bool on) {
  Holding holding(&synchronous.lock);
  for (size_t i = 0; i < synchronous.buffers.count(); ++i) {
    if (synchronous.buffers[i] != buffer_id) continue;
    if (!on) synchronous.buffers.Remove(i);
    return CUDA_SUCCESS;
  }
  if (!on) return CUDA_SUCCESS;
  if (!synchronous.buffers.Push(buffer_id)) return CUDA_ERROR_OUT_OF_MEMORY;
  synchronous.ever.store(true, std::memory_order_release);
  return CUDA_SUCCESS;
}

// The program's pointer need not be aligned for the type.
template <typename T>
CUresult Write(void* out, T value) {
  memcpy(out, &value, sizeof(value));
  return CUDA_SUCCESS;
}

// One attribute of known memory. An error says that the attribute does not apply to such memory, or
// does not exist.
CUresult Describe(void* out, CUpointer_attribute attribute, uint64_t address,
                  const KnownMemory& found) {
  const bool registered = found.kind == MemoryKind::kRegistered;
  const bool host = found.kind == MemoryKind::kPinnedHost || registered;
  const bool mapped = found.kind == MemoryKind::kMapped;
  const bool no_access = mapped && found.flags == CU_MEM_ACCESS_FLAGS_PROT_NONE;
  // For mapped memory, the range is the whole reservation.
  uint64_t range_begin = found.begin;
  uint64_t range_bytes = found.size_bytes;
  if (mapped) (void)FindReservation(address, 1, &range_begin, &range_bytes);
  const bool pooled = found.kind == MemoryKind::kPooled;
  PieceFacts piece = {nullptr, {found.begin, found.size_bytes, 0, 0}, CU_MEM_HANDLE_TYPE_NONE};
  if (pooled) piece = FactsOfPiece(found.object);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      // These belong to the device, not to a context.
      if (mapped || pooled) return Write<CUcontext>(out, nullptr);
      return Write<CUcontext>(
          out, ContextOf(host ? ContextObjectKind::kHostMemory : ContextObjectKind::kDeviceMemory,
                         found.begin));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Write<unsigned>(out, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (registered) {
        if (found.object == 0) return CUDA_ERROR_INVALID_VALUE;  // the program did not ask for one
        CUdeviceptr device = 0;
        const CUresult result = MapRegistered(address, &device);
        return result != CUDA_SUCCESS ? result : Write<CUdeviceptr>(out, device);
      }
      return no_access ? CUDA_ERROR_INVALID_VALUE : Write<CUdeviceptr>(out, address);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      return host || found.kind == MemoryKind::kManaged
                 ? Write<void*>(out, reinterpret_cast<void*>(address))
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Write<unsigned long long>(out, found.buffer_id);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Write<int>(out, kOnlyDevice);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Write<CUdeviceptr>(out, range_begin);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Write<size_t>(out, range_bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Write<CUdeviceptr>(out, piece.chunk.begin);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Write<size_t>(out, piece.chunk.size_bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Write<unsigned>(out, 1);  // booleans are 32 bits wide, as cudart reads them
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Write<unsigned>(out, found.kind == MemoryKind::kManaged ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Write<unsigned>(out, IsSynchronous(found.buffer_id) ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Write<unsigned>(out,
                             found.kind == MemoryKind::kDevice ? 1 : 0);  // as cuIpcGetMemHandle
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Write<unsigned>(out, 0);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Write<unsigned long long>(out, piece.handles);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Write<unsigned>(out,
                             mapped ? found.flags : unsigned{CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Write<CUmemoryPool>(out, piece.pool);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Registered memory is in a table of its own; here it becomes an entry like the others, whose
// `object` says whether the device reaches it at one address.
bool FindAny(uint64_t address, KnownMemory* found) {
  if (FindKnown(address, found)) return true;
  RegisteredMemory registered;
  if (!FindRegistered(address, &registered)) return false;
  *found = {registered.begin,
            registered.size_bytes,
            MemoryKind::kRegistered,
            registered.flags,
            {},
            HasDeviceAddress(registered) ? kBelongsToOther : 0,
            registered.buffer_id};
  return true;
}

// What cuPointerGetAttributes reports for memory that CUDA does not know. Returns false if there is
// no such attribute.
bool DescribeUnknown(void* out, CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      // All of these are 8 bytes wide.
      return Write<uint64_t>(out, 0) == CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Write<unsigned>(out, 0) == CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Write<int>(out, CU_DEVICE_INVALID) == CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Write<unsigned>(out, 0) == CUDA_SUCCESS;
    default:
      return false;
  }
}

}  // namespace

bool MemoryOperationsWait() { return synchronous.ever.load(std::memory_order_acquire); }

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  CUDA_RETURN_IF_ERROR(session.Check());
  KnownMemory found;
  if (data == nullptr || !FindAny(address, &found)) return CUDA_ERROR_INVALID_VALUE;
  return Describe(data, attribute, address, found);
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  CUDA_RETURN_IF_ERROR(session.Check());
  KnownMemory found;
  if (value == nullptr || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ||
      !FindAny(address, &found)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned on;
  memcpy(&on, value, sizeof(on));
  return SetSynchronous(found.buffer_id, on != 0);
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                CUdeviceptr address) {
  CUDA_RETURN_IF_ERROR(session.Check());
  if (count == 0 || attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  KnownMemory found;
  const bool known = FindAny(address, &found);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Unlike in cuPointerGetAttribute, only an unknown attribute is an error; one that does not
    // apply is reported as nothing.
    if (known && Describe(data[i], attributes[i], address, found) == CUDA_SUCCESS) continue;
    if (!DescribeUnknown(data[i], attributes[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
