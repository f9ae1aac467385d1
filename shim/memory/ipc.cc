// SPDX-License-Identifier: Apache-2.0
// Memory and events of other processes of the trust domain (cuIpc*). A handle carries a token that
// only the domain's executor knows; opening memory maps what lies behind the other's allocation
// into this process's own range of addresses.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/wire/virtual_memory_commands.h"
#include "shim/context/context.h"
#include "shim/event/event.h"
#include "shim/graph/capture.h"
#include "shim/memory/address_space.h"
#include "shim/memory/memory.h"
#include "shim/memory/physical_memory.h"
#include "shim/process/growing.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

constexpr uint64_t kMemoryMagic = 0x6970636d6d6f6f6c;  // "loommcpi"
constexpr uint64_t kEventMagic = 0x697063656d6f6f6c;   // "loomecpi"

// Contents of the 64 bytes that are opaque to CUDA programs.
struct MemoryText {
  uint64_t magic;
  uint64_t session;  // the one that exported it
  wire::Token token;
  uint64_t offset_bytes;  // of the allocation, inside the physical memory
  uint64_t size_bytes;    // of the physical memory
};
struct EventText {
  uint64_t magic;
  uint64_t session;
  wire::Token token;
};
static_assert(sizeof(MemoryText) <= sizeof(CUipcMemHandle) &&
              sizeof(EventText) <= sizeof(CUipcEventHandle));

// Physical memory of another process, mapped here only once, however often it is opened.
struct Opened {
  wire::Token token;
  uint64_t begin;
  uint64_t size_bytes;
  uint32_t opens;
  uint32_t unused;
};

struct Shared {
  Lock lock GPULOOM_ACQUIRED_BEFORE(physical_lock);
  Growing<Opened> opened GPULOOM_GUARDED_BY(lock);
};
constinit Shared shared;

bool Same(const wire::Token& a, const wire::Token& b) {
  return a.words[0] == b.words[0] && a.words[1] == b.words[1];
}

CUresult MapLocked(const MemoryText& text, uint64_t* begin) GPULOOM_REQUIRES(shared.lock) {
  Holding holding(&physical_lock);
  PhysicalMemory* memory = nullptr;
  CUDA_RETURN_IF_ERROR(ImportPhysicalLocked(text.token, &memory));
  const uint64_t size_bytes = memory->size_bytes;
  // The text came through another process, which may have changed it.
  CUresult result = size_bytes == text.size_bytes ? ReserveAddresses(size_bytes, 0, 0, begin)
                                                  : CUDA_ERROR_INVALID_VALUE;
  if (result == CUDA_SUCCESS) {
    result = MapPhysicalLocked(memory, *begin);
    if (result != CUDA_SUCCESS) FreeAddresses(*begin);
  }
  // From here on the mapping alone holds it.
  memory->handles = 0;
  const CUresult released = ReleaseIfUnheldLocked(memory);
  if (result != CUDA_SUCCESS) return result;
  result = released;
  if (result == CUDA_SUCCESS) {
    const ChangingRange range(*begin, size_bytes);
    result = SetAccessLocked(*begin, size_bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  if (result != CUDA_SUCCESS) {
    const ChangingRange range(*begin, size_bytes);
    (void)UnmapPhysicalLocked(*begin);
    FreeAddresses(*begin);
  }
  return result;
}

// Waits for the device's earlier work, so only what forgets everything holds shared.lock meanwhile.
CUresult Unmap(const Opened& one) {
  Holding holding(&physical_lock);
  const ChangingRange range(one.begin, one.size_bytes);
  const CUresult result = UnmapPhysicalLocked(one.begin);
  FreeAddresses(one.begin);
  return result;
}

CUresult Export(CUipcMemHandle* handle, CUdeviceptr address) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  KnownMemory known;
  // Memory of pools, managed memory and mapped memory have no such handles.
  if (handle == nullptr || !FindMemory(address, 1, &known) || known.kind != MemoryKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wire::MemExport::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::MemExport>({wire::DevicePtr{known.begin}}, &reply));
  const MemoryText text = {kMemoryMagic, session.id(), reply.token, reply.offset_bytes,
                           reply.size_bytes};
  memset(handle, 0, sizeof(*handle));
  memcpy(handle, &text, sizeof(text));
  return CUDA_SUCCESS;
}

CUresult Open(CUdeviceptr* address, const CUipcMemHandle& handle, unsigned flags) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  MemoryText text;
  memcpy(&text, &handle, sizeof(text));
  if (address == nullptr || (flags & ~unsigned{CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS}) != 0 ||
      text.magic != kMemoryMagic || text.offset_bytes >= text.size_bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (text.session == session.id()) return CUDA_ERROR_INVALID_CONTEXT;  // as the real driver
  CUDA_RETURN_IF_ERROR(graph::CheckUnsafe());
  Holding holding(&shared.lock);
  for (Opened& one : shared.opened) {
    if (!Same(one.token, text.token)) continue;
    if (one.size_bytes != text.size_bytes) return CUDA_ERROR_INVALID_VALUE;
    ++one.opens;
    NoteContextObject(ContextObjectKind::kOpenedMemory, one.begin);
    *address = one.begin + text.offset_bytes;
    return CUDA_SUCCESS;
  }
  Opened fresh = {text.token, 0, text.size_bytes, 1, 0};
  CUDA_RETURN_IF_ERROR(MapLocked(text, &fresh.begin));
  if (!shared.opened.Push(fresh)) {
    (void)Unmap(fresh);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  NoteContextObject(ContextObjectKind::kOpenedMemory, fresh.begin);
  *address = fresh.begin + text.offset_bytes;
  return CUDA_SUCCESS;
}

// `begin`: of the mapping.
CUresult Close(CUdeviceptr address, uint64_t* begin) {
  Opened last;
  {
    Holding holding(&shared.lock);
    size_t i = 0;
    while (i < shared.opened.count() &&
           address - shared.opened[i].begin >= shared.opened[i].size_bytes) {
      ++i;
    }
    if (i == shared.opened.count()) return CUDA_ERROR_INVALID_VALUE;
    Opened& one = shared.opened[i];
    *begin = one.begin;
    if (--one.opens != 0) return CUDA_SUCCESS;
    last = one;
    shared.opened.Remove(i);
  }
  return Unmap(last);
}

}  // namespace

void CloseShared(uint64_t begin) {
  uint64_t same;
  (void)Close(begin, &same);
}

void CloseAllShared() {
  Holding holding(&shared.lock);
  for (const Opened& one : shared.opened) (void)Unmap(one);
  shared.opened.Clear();
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return Export(handle, address);
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return Open(address, handle, flags);
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return Open(address, handle, flags);
}
CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  uint64_t begin;
  const CUresult result = Close(address, &begin);
  if (result == CUDA_SUCCESS) ForgetContextObject(ContextObjectKind::kOpenedMemory, begin);
  return result;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  EventText text = {kEventMagic, session.id(), {}};
  CUDA_RETURN_IF_ERROR(ShareEvent(event, &text.token));
  memset(handle, 0, sizeof(*handle));
  memcpy(handle, &text, sizeof(text));
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  EventText text;
  memcpy(&text, &handle, sizeof(text));
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (text.magic != kEventMagic) return CUDA_ERROR_MAP_FAILED;
  if (text.session == session.id()) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = OpenEvent(text.token, event);
  // It belongs to another trust domain, or no longer exists.
  return result == CUDA_ERROR_INVALID_HANDLE ? CUDA_ERROR_MAP_FAILED : result;
}

}  // extern "C"
