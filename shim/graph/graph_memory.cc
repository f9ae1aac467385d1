// SPDX-License-Identifier: Apache-2.0
// The memory of allocation nodes, as the graph model asks for it.
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/library.h"
#include "shim/memory/device_memory.h"
#include "shim/memory/memory.h"
#include "shim/memory/physical_memory.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

uint64_t BytesOf(const graph::GraphPiece* pieces, size_t count) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += pieces[i].size_bytes;
  return bytes;
}

void UnmapLocked(uint64_t address, const graph::GraphPiece* pieces, size_t count)
    GPULOOM_REQUIRES(physical_lock) {
  for (size_t i = 0; i < count; ++i) {
    wire::MemUnmap::Reply reply;
    physical_lock.Release();
    // Fails only when the session has ended, and the mapping with it.
    (void)session.Call<wire::MemUnmap>({wire::DevicePtr{address}, pieces[i].size_bytes}, &reply);
    physical_lock.Acquire();
    address += pieces[i].size_bytes;
    PhysicalMemory* memory = FindPhysicalLocked(pieces[i].handle);
    if (memory != nullptr) --memory->mappings;  // the model still has the handle
  }
}

CUresult MapPieceLocked(uint64_t address, const graph::GraphPiece& piece)
    GPULOOM_REQUIRES(physical_lock) {
  PhysicalMemory* memory = FindPhysicalLocked(piece.handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::MemMap::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::MemMap>(
      {wire::DevicePtr{address}, piece.size_bytes, wire::PhysicalId{IdOfPhysicalLocked(memory)}, 0},
      &reply));
  ++memory->mappings;
  return CUDA_SUCCESS;
}

}  // namespace

namespace graph {

// Called without the graph lock, for it waits for the executor.
CUresult AllocateForGraph(size_t size_bytes, CUdeviceptr* address) {
  return MakeDeviceMemory(size_bytes, address);
}

void FreeForGraph(CUdeviceptr address) {
  KnownMemory freed;
  if (!ForgetMemory(address, MemoryKind::kDevice, &freed)) return;
  // Launches that use it may be queued in any stream.
  (void)session.WaitForAll();
  GiveDeviceMemory(address, freed.size_bytes, wire::kLegacyStream, wire::Ticket{0});
}

CUresult MapForGraph(CUdeviceptr address, uint64_t size_bytes, CUdevice, const GraphPiece* pieces,
                     size_t count) {
  const uint64_t mapped_bytes = BytesOf(pieces, count);
  Holding holding(&physical_lock);
  const ChangingRange range(address, mapped_bytes);
  size_t mapped = 0;
  uint64_t at = address;
  CUresult result = CUDA_SUCCESS;
  while (mapped < count) {
    result = MapPieceLocked(at, pieces[mapped]);
    if (result != CUDA_SUCCESS) break;
    at += pieces[mapped++].size_bytes;
  }
  if (result == CUDA_SUCCESS) {
    wire::MemSetAccess::Reply reply;
    result = session.Call<wire::MemSetAccess>(
        {wire::DevicePtr{address}, mapped_bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 0}, &reply);
  }
  if (result == CUDA_SUCCESS &&
      !NoteMemory({address, size_bytes, MemoryKind::kGraph, 0, {}, 0, 0})) {
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) UnmapLocked(address, pieces, mapped);
  return result;
}

void UnmapForGraph(CUdeviceptr address, const GraphPiece* pieces, size_t count) {
  Holding holding(&physical_lock);
  const ChangingRange range(address, BytesOf(pieces, count));
  (void)ForgetMemory(address, MemoryKind::kGraph);
  UnmapLocked(address, pieces, count);
}

CUresult FinishWork(CUdevice) { return session.WaitForAll(); }

}  // namespace graph
}  // namespace gpuloom
