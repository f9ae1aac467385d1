// SPDX-License-Identifier: Apache-2.0
// Physical memory for a session: what it has kept, or what the scheduler grants, imported and
// cleared before the tenant can reach it.
#include "agent/executor/device/device.h"
#include "agent/executor/device/internal_stream.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/session/work_pool.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {

CUresult MapWithAccess(const Driver& cuda, CUdevice device, CUmemGenericAllocationHandle handle,
                       uint64_t size_bytes, CUdeviceptr at) {
  CUDA_RETURN_IF_ERROR(cuda.cuMemMap(at, size_bytes, 0, handle, 0));
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const CUresult mapped = cuda.cuMemSetAccess(at, size_bytes, &access, 1);
  if (mapped != CUDA_SUCCESS) cuda.cuMemUnmap(at, size_bytes);
  return mapped;
}

// Puts memory behind reserved addresses. `done` is called exactly once, on the ring thread.
void DeviceMemory::MapNew(uint64_t address, uint64_t size_bytes,
                          std::function<void(CUresult)> done) {
  if (KeptMemory::Block kept; kept_.TakeUnmapped(size_bytes, &kept)) {
    return MapHeld(kept.memory, address, std::move(done));
  }
  Obtain(address, size_bytes,
         [this, address, done = std::move(done)](CUresult result, const PhysicalRef& memory) {
           if (result == CUDA_SUCCESS) blocks_[address] = memory;
           done(result);
         });
}

// Maps memory that this session already holds for the purpose. Lets go of it if it cannot be
// mapped.
void DeviceMemory::MapHeld(const PhysicalRef& memory, uint64_t address,
                           std::function<void(CUresult)> done) {
  ++outstanding_;
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, memory, address, &cuda = services_.device->cuda(),
       device = services_.device->device()] {
        // Not cleared: either the session's own memory, kept, or memory that another session shares
        // with it.
        *result = MapWithAccess(cuda, device, memory->handle, memory->size_bytes, address);
      },
      [this, result, memory, address, done = std::move(done)] {
        if (services_.device->Judge(*result) == CUDA_SUCCESS) {
          blocks_[address] = memory;
        } else {
          if (ReleaseHold(memory)) GiveBack({{memory, 0, 0}}, [] {});
        }
        --outstanding_;
        done(*result);
      });
}

// Memory for an id, mapped nowhere.
void DeviceMemory::ObtainUnmapped(uint64_t size_bytes, OnMemory done) {
  KeptMemory::Block kept;
  if (kept_.TakeUnmapped(size_bytes, &kept)) return done(CUDA_SUCCESS, kept.memory);
  // Kept where it was mapped for an allocation; unmapping it is cheaper than asking the scheduler.
  if (!kept_.TakeMapped(size_bytes, &kept)) return Obtain(0, size_bytes, std::move(done));
  blocks_.erase(kept.address);
  ++outstanding_;
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, kept, &cuda = services_.device->cuda()] {
        *result = cuda.cuMemUnmap(kept.address, kept.memory->size_bytes);
      },
      [this, result, kept, done = std::move(done)] {
        services_.device->Judge(*result);
        space_.ReleaseSpan(kept.address, kept.memory->size_bytes);
        --outstanding_;
        done(CUDA_SUCCESS, kept.memory);
      });
}

// New memory, held once; mapped at `address` unless that is 0. `done` is called exactly once, on
// the ring thread.
void DeviceMemory::Obtain(uint64_t address, uint64_t size_bytes, OnMemory done) {
  ++outstanding_;
  // A worker is needed as soon as the scheduler has answered, some hundred microseconds from now.
  services_.memory->Expect();
  services_.scheduler->Ask(
      control::MemoryRequest{id(), size_bytes},
      [this, address, size_bytes, done = std::move(done)](control::Incoming* answer) {
        OnGranted(address, size_bytes, answer,
                  [this, done](CUresult result, const PhysicalRef& memory) {
                    --outstanding_;
                    done(result, memory);
                  });
      });
}

// A granted piece that is being mapped for the tenant. Its functions run on a worker.
struct DeviceMemory::NewMemory {
  uint64_t memory_id = 0;
  uint64_t address = 0;  // 0: it will not be mapped
  uint64_t size_bytes = 0;
  channel::UniqueFd fd;
  CUmemGenericAllocationHandle handle = 0;
  // Where it is cleared: at an address that no tenant knows, because kernels of tenants may be
  // running.
  CUdeviceptr hidden = 0;
  bool hidden_is_its_own = false;  // not taken from the executor's reserved range
  CUresult result = CUDA_SUCCESS;

  // After a failure nothing is mapped and no handle is left.
  void Import(const Driver& cuda, CUdevice device, bool must_clear) {
    void* imported = reinterpret_cast<void*>(static_cast<uintptr_t>(fd.get()));
    result = cuda.cuMemImportFromShareableHandle(&handle, imported,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS) return;
    if (!must_clear) {
      if (address != 0) result = MapWithAccess(cuda, device, handle, size_bytes, address);
    } else {
      // The executor's own range is used up, or could not be reserved.
      if (hidden == 0) {
        result = cuda.cuMemAddressReserve(&hidden, size_bytes, kGranuleBytes, 0, 0);
        hidden_is_its_own = result == CUDA_SUCCESS;
      }
      if (result == CUDA_SUCCESS) result = MapWithAccess(cuda, device, handle, size_bytes, hidden);
      if (result != CUDA_SUCCESS) FreeHidden(cuda);
    }
    if (result != CUDA_SUCCESS) cuda.cuMemRelease(handle);
  }

  // Maps it at its final address, once it has been cleared.
  void Show(const Driver& cuda, CUdevice device) {
    // Whatever came of the clearing: the address goes back in any case.
    cuda.cuMemUnmap(hidden, size_bytes);
    FreeHidden(cuda);
    if (result == CUDA_SUCCESS && address != 0) {
      result = MapWithAccess(cuda, device, handle, size_bytes, address);
    }
    if (result != CUDA_SUCCESS) cuda.cuMemRelease(handle);
  }

  void FreeHidden(const Driver& cuda) const {
    if (hidden_is_its_own) cuda.cuMemAddressFree(hidden, size_bytes);
  }
};

void DeviceMemory::OnGranted(uint64_t address, uint64_t size_bytes, control::Incoming* answer,
                             OnMemory done) {
  control::MemoryGranted granted;
  if (!answer->As(&granted) || granted.session_id != id()) {
    return done(CUDA_ERROR_OUT_OF_MEMORY, nullptr);
  }
  if (granted.result != CUDA_SUCCESS) return done(static_cast<CUresult>(granted.result), nullptr);
  // Not what was requested: it cannot be used, but it is charged, so it is returned.
  if (answer->fd_count != 1 || granted.size_bytes != size_bytes) {
    services_.scheduler->Send(control::MemoryReturn{id(), granted.memory_id});
    return done(CUDA_ERROR_OUT_OF_MEMORY, nullptr);
  }
  auto memory = std::make_shared<NewMemory>();
  memory->memory_id = granted.memory_id;
  memory->address = address;
  memory->size_bytes = size_bytes;
  memory->fd = std::move(answer->fds[0]);
  const Driver& cuda = services_.device->cuda();
  const CUdevice device = services_.device->device();
  const bool must_clear = granted.must_clear != 0;
  if (must_clear) memory->hidden = services_.internal->TakeHidden(size_bytes);
  memory_.Post([memory, &cuda, device, must_clear] { memory->Import(cuda, device, must_clear); },
               [this, memory, &cuda, device, must_clear, done = std::move(done)] {
                 services_.memory->Expect();
                 if (!must_clear || memory->result != CUDA_SUCCESS) return Arrive(*memory, done);
                 clears_.Add(memory->hidden, memory->size_bytes,
                             [this, memory, &cuda, device, done](CUresult cleared) {
                               memory->result = cleared;
                               memory_.Post([memory, &cuda, device] { memory->Show(cuda, device); },
                                            [this, memory, done] { Arrive(*memory, done); });
                             });
               });
}

// The end of every path: hidden addresses, the descriptor and, after a failure, the charge are
// returned.
void DeviceMemory::Arrive(NewMemory& memory, const OnMemory& done) {
  if (memory.hidden != 0 && !memory.hidden_is_its_own) {
    services_.internal->GiveHidden(memory.hidden, memory.size_bytes);
  }
  // Closing such a descriptor takes half a millisecond, so a worker does it.
  const auto fd = std::make_shared<channel::UniqueFd>(std::move(memory.fd));
  services_.memory->Post([fd] { fd->Reset(); }, [] {});
  if (services_.device->Judge(memory.result) != CUDA_SUCCESS) {
    // What an ended session has not cleared is no failure of the device.
    if (serving())
      LogFor(&tenant_->lines, LogLevel::kError, "cuda: mapping memory for session %llu (%s): %s",
             static_cast<unsigned long long>(id()), label(),
             services_.device->NameOf(memory.result));
    services_.scheduler->Send(control::MemoryReturn{id(), memory.memory_id});
    return done(memory.result, nullptr);
  }
  auto physical = std::make_shared<Physical>();
  physical->charged_session = id();
  physical->memory_id = memory.memory_id;
  physical->handle = memory.handle;
  physical->size_bytes = memory.size_bytes;
  Hold(physical);
  done(CUDA_SUCCESS, physical);
}

}  // namespace gpuloom::executor
