// SPDX-License-Identifier: Apache-2.0
// Physical memory by id, and where the tenant maps it within its own part of the device range. A
// range that a worker changes, or that waits for earlier work, is busy: no other command may use
// it.
#include "agent/executor/device/device.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {
namespace {

bool IsGranular(uint64_t bytes) { return bytes % kGranuleBytes == 0; }

bool IsAccess(uint32_t flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

void DeviceMemory::On(wire::Tag<wire::AddressSpace>, const wire::AddressSpace::Request&,
                      const wire::Record& record) {
  Reply<wire::AddressSpace>(CallerOf(record), CUDA_SUCCESS,
                            {reservable_.begin, reservable_.size_bytes});
}

// An id whose memory is still on its way is refused as well: an honest shim waits for the answer.
PhysicalRef* DeviceMemory::FindPhysical(wire::PhysicalId id_untrusted) {
  PhysicalRef* memory = physicals_.Find(id_untrusted);
  if (memory == nullptr || *memory == nullptr) {
    Refuse(wire::Fatal::kBadHandle);
    return nullptr;
  }
  return memory;
}

void DeviceMemory::On(wire::Tag<wire::PhysicalCreate>, const wire::PhysicalCreate::Request& request,
                      const wire::Record& record) {
  const Caller caller = CallerOf(record);
  const wire::PhysicalId physical = request.physical;
  const uint64_t size_bytes = request.size_bytes;
  if (size_bytes == 0 || !IsGranular(size_bytes)) return Refuse(wire::Fatal::kBadArgument);
  if (physicals_.Add(physical) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  ObtainUnmapped(size_bytes, [this, caller, physical](CUresult result, const PhysicalRef& memory) {
    if (result == CUDA_SUCCESS) {
      *physicals_.Find(physical) = memory;
    } else {
      physicals_.Take(physical);
    }
    Reply<wire::PhysicalCreate>(caller, result);
  });
}

void DeviceMemory::On(wire::Tag<wire::PhysicalRelease>,
                      const wire::PhysicalRelease::Request& request, const wire::Record& record) {
  const PhysicalRef* found = FindPhysical(request.physical);
  if (found == nullptr) return;
  const PhysicalRef memory = *found;
  physicals_.Take(request.physical);
  Drop(memory,
       [this, caller = CallerOf(record)] { Reply<wire::PhysicalRelease>(caller, CUDA_SUCCESS); });
}

void DeviceMemory::On(wire::Tag<wire::PhysicalExport>, const wire::PhysicalExport::Request& request,
                      const wire::Record& record) {
  const PhysicalRef* memory = FindPhysical(request.physical);
  if (memory == nullptr) return;
  if (!services_.shared->Export(*memory)) {
    return Reply<wire::PhysicalExport>(CallerOf(record), CUDA_ERROR_OPERATING_SYSTEM);
  }
  const auto [first, second] = (*memory)->token;
  Reply<wire::PhysicalExport>(CallerOf(record), CUDA_SUCCESS, {{{first, second}}});
}

void DeviceMemory::On(wire::Tag<wire::PhysicalImport>, const wire::PhysicalImport::Request& request,
                      const wire::Record& record) {
  const Caller caller = CallerOf(record);
  const PhysicalRef memory = services_.shared->Find(request.token);
  if (memory == nullptr) return Reply<wire::PhysicalImport>(caller, CUDA_ERROR_INVALID_HANDLE);
  PhysicalRef* slot = physicals_.Add(request.physical);
  if (slot == nullptr) return Refuse(wire::Fatal::kBadHandle);
  *slot = memory;
  Hold(memory);
  Reply<wire::PhysicalImport>(caller, CUDA_SUCCESS, {memory->size_bytes});
}

void DeviceMemory::On(wire::Tag<wire::MemExport>, const wire::MemExport::Request& request,
                      const wire::Record& record) {
  const Caller caller = CallerOf(record);
  const auto address = static_cast<uint64_t>(request.address);
  // Small allocations are exported with their whole slab; the reply says at which offset.
  auto block = blocks_.upper_bound(address);
  if (!space_.Contains(address, 1) || block == blocks_.begin()) {
    return Refuse(wire::Fatal::kBadRange);
  }
  --block;
  const PhysicalRef& memory = block->second;
  if (!services_.shared->Export(memory)) {
    return Reply<wire::MemExport>(caller, CUDA_ERROR_OPERATING_SYSTEM);
  }
  const auto [first, second] = memory->token;
  Reply<wire::MemExport>(caller, CUDA_SUCCESS,
                         {{{first, second}}, address - block->first, memory->size_bytes});
}

void DeviceMemory::On(wire::Tag<wire::MemMap>, const wire::MemMap::Request& request,
                      const wire::Record& record) {
  const Caller caller = CallerOf(record);
  const auto address = static_cast<uint64_t>(request.address);
  const uint64_t size_bytes = request.size_bytes;
  const PhysicalRef* found = FindPhysical(request.physical);
  if (found == nullptr) return;
  const PhysicalRef memory = *found;
  if (!IsGranular(address) || size_bytes != memory->size_bytes) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  if (!reservable_.Contains(address, size_bytes)) return Refuse(wire::Fatal::kBadRange);
  const auto next = mappings_.lower_bound(address);
  // Mappings never overlap, so only the adjacent ones can be in the way.
  if ((next != mappings_.end() && next->first - address < size_bytes) ||
      (next != mappings_.begin() &&
       address - std::prev(next)->first < std::prev(next)->second.size_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  services_.memory->Expect();  // the tenant will ask for access next
  // Busy from the start. Commands may name it only after the tenant has requested access.
  mappings_.emplace_hint(next, address, MappedRange{size_bytes, memory});
  Hold(memory);
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, address, size_bytes, handle = memory->handle, &cuda = services_.device->cuda()] {
        *result = cuda.cuMemMap(address, size_bytes, 0, handle, 0);
      },
      [this, result, caller, address, memory] {
        if (services_.device->Judge(*result) == CUDA_SUCCESS) {
          mappings_.at(address).busy = false;
          return Reply<wire::MemMap>(caller, CUDA_SUCCESS);
        }
        mappings_.erase(address);
        Drop(memory, [this, result, caller] { Reply<wire::MemMap>(caller, *result); });
      });
}

void DeviceMemory::On(wire::Tag<wire::MemUnmap>, const wire::MemUnmap::Request& request,
                      const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  const auto it = mappings_.find(address);
  if (it == mappings_.end() || it->second.size_bytes != request.size_bytes || it->second.busy) {
    return Refuse(wire::Fatal::kBadRange);
  }
  it->second.busy = true;
  accessible_.Remove(address);  // no later command may name it
  AfterEarlierWork(record.ticket, [this, caller = CallerOf(record), address] {
    Unmap(address, mappings_.at(address).memory, [this, caller, address] {
      mappings_.erase(address);
      Reply<wire::MemUnmap>(caller, CUDA_SUCCESS);
    });
  });
}

void DeviceMemory::On(wire::Tag<wire::MemSetAccess>, const wire::MemSetAccess::Request& request,
                      const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  const uint64_t size_bytes = request.size_bytes;
  const uint32_t flags = request.flags;
  if (!IsAccess(flags)) return Refuse(wire::Fatal::kBadArgument);
  if (size_bytes == 0 || size_bytes > reservable_.size_bytes) {
    return Refuse(wire::Fatal::kBadRange);
  }
  // Mappings that are not busy must cover the whole range and nothing else.
  const uint64_t end = address + size_bytes;
  chores_.Do([this, caller = CallerOf(record), ticket = record.ticket, address, size_bytes, flags,
              end, at = address, narrows = false]() mutable {
    if (!serving()) return true;
    auto it = mappings_.find(at);
    for (size_t left = Chores::kPiece; left != 0 && at != end; --left, ++it) {
      if (it == mappings_.end() || it->first != at || it->second.busy ||
          it->second.size_bytes > end - at) {
        EndFor(wire::Fatal::kBadRange);
        return true;
      }
      it->second.busy = true;
      // CUDA's flags grow with what they allow: none, read, read and write.
      narrows |= flags < it->second.access;
      if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) accessible_.Remove(at);
      at += it->second.size_bytes;
    }
    if (at != end) return false;
    const auto change = [this, caller, address, size_bytes, flags] {
      ChangeAccess(caller, address, size_bytes, flags);
    };
    // Earlier commands may still need what is taken away; to give more harms none.
    narrows ? AfterEarlierWork(ticket, change) : change();
    return true;
  });
}

void DeviceMemory::ChangeAccess(Caller caller, uint64_t address, uint64_t size_bytes,
                                uint32_t flags) {
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, address, size_bytes, flags, device = services_.device->device(),
       &cuda = services_.device->cuda()] {
        CUmemAccessDesc access = {};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = device;
        access.flags = static_cast<CUmemAccess_flags>(flags);
        *result = cuda.cuMemSetAccess(address, size_bytes, &access, 1);
      },
      [this, result, caller, address, size_bytes, flags] {
        const bool changed = services_.device->Judge(*result) == CUDA_SUCCESS;
        chores_.Do([this, result = *result, changed, caller, flags, end = address + size_bytes,
                    at = address]() mutable {
          auto it = mappings_.lower_bound(at);
          // None of them has gone meanwhile: they are busy, so MemUnmap is refused.
          for (size_t left = Chores::kPiece; it != mappings_.end() && it->first < end; ++it) {
            if (left-- == 0) return at = it->first, false;
            MappedRange& mapping = it->second;
            mapping.busy = false;
            if (changed) mapping.access = flags;
            if (mapping.access != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
              (void)accessible_.Add(it->first, mapping.size_bytes);  // fails if it is there already
            }
          }
          Reply<wire::MemSetAccess>(caller, result);
          return true;
        });
      });
}

}  // namespace gpuloom::executor
