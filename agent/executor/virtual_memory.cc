// Physical memory by id, and where the tenant maps it in its own part of the device range. What is
// with a worker or waits for earlier work is busy: no other command may touch it meanwhile.
#include "agent/executor/device.h"
#include "agent/executor/device_memory.h"

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
  Reply<wire::AddressSpace>(AskerOf(record), CUDA_SUCCESS,
                            {reservable_.begin, reservable_.size_bytes});
}

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
  const Asker asker = AskerOf(record);
  const wire::PhysicalId physical = request.physical;
  const uint64_t size_bytes = request.size_bytes;
  if (size_bytes == 0 || !IsGranular(size_bytes)) return Refuse(wire::Fatal::kBadArgument);
  if (physicals_.Add(physical) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  ObtainUnmapped(size_bytes, [this, asker, physical](CUresult result, const PhysicalRef& memory) {
    if (result == CUDA_SUCCESS) {
      *physicals_.Find(physical) = memory;
    } else {
      physicals_.Take(physical);
    }
    Reply<wire::PhysicalCreate>(asker, result);
  });
}

void DeviceMemory::On(wire::Tag<wire::PhysicalRelease>,
                      const wire::PhysicalRelease::Request& request, const wire::Record& record) {
  const PhysicalRef* found = FindPhysical(request.physical);
  if (found == nullptr) return;
  const PhysicalRef memory = *found;
  physicals_.Take(request.physical);
  Drop(memory,
       [this, asker = AskerOf(record)] { Reply<wire::PhysicalRelease>(asker, CUDA_SUCCESS); });
}

void DeviceMemory::On(wire::Tag<wire::PhysicalExport>, const wire::PhysicalExport::Request& request,
                      const wire::Record& record) {
  const PhysicalRef* memory = FindPhysical(request.physical);
  if (memory == nullptr) return;
  if (!place_.shared->Export(*memory)) {
    return Reply<wire::PhysicalExport>(AskerOf(record), CUDA_ERROR_OPERATING_SYSTEM);
  }
  const auto [first, second] = (*memory)->token;
  Reply<wire::PhysicalExport>(AskerOf(record), CUDA_SUCCESS, {{{first, second}}});
}

void DeviceMemory::On(wire::Tag<wire::PhysicalImport>, const wire::PhysicalImport::Request& request,
                      const wire::Record& record) {
  const Asker asker = AskerOf(record);
  const PhysicalRef memory = place_.shared->Find(request.token);
  if (memory == nullptr) return Reply<wire::PhysicalImport>(asker, CUDA_ERROR_INVALID_HANDLE);
  PhysicalRef* slot = physicals_.Add(request.physical);
  if (slot == nullptr) return Refuse(wire::Fatal::kBadHandle);
  *slot = memory;
  Hold(memory);
  Reply<wire::PhysicalImport>(asker, CUDA_SUCCESS, {memory->size_bytes});
}

void DeviceMemory::On(wire::Tag<wire::MemExport>, const wire::MemExport::Request& request,
                      const wire::Record& record) {
  const Asker asker = AskerOf(record);
  const auto address = static_cast<uint64_t>(request.address);
  auto block = blocks_.upper_bound(address);
  if (!space_.Contains(address, 1) || block == blocks_.begin()) {
    return Refuse(wire::Fatal::kBadRange);
  }
  --block;
  const PhysicalRef& memory = block->second;
  if (!place_.shared->Export(memory)) {
    return Reply<wire::MemExport>(asker, CUDA_ERROR_OPERATING_SYSTEM);
  }
  const auto [first, second] = memory->token;
  Reply<wire::MemExport>(asker, CUDA_SUCCESS,
                         {{{first, second}}, address - block->first, memory->size_bytes});
}

void DeviceMemory::On(wire::Tag<wire::MemMap>, const wire::MemMap::Request& request,
                      const wire::Record& record) {
  const Asker asker = AskerOf(record);
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
  if ((next != mappings_.end() && next->first - address < size_bytes) ||
      (next != mappings_.begin() &&
       address - std::prev(next)->first < std::prev(next)->second.size_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  place_.memory->Expect();  // it wants access next
  mappings_.emplace_hint(next, address, MappedRange{size_bytes, memory});
  Hold(memory);
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, address, size_bytes, handle = memory->handle, &cuda = place_.device->cuda()] {
        *result = cuda.cuMemMap(address, size_bytes, 0, handle, 0);
      },
      [this, result, asker, address, memory] {
        if (place_.device->Judge(*result) == CUDA_SUCCESS) {
          mappings_.at(address).busy = false;
          return Reply<wire::MemMap>(asker, CUDA_SUCCESS);
        }
        mappings_.erase(address);
        Drop(memory, [this, result, asker] { Reply<wire::MemMap>(asker, *result); });
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
  AfterEarlierWork(record.ticket, [this, asker = AskerOf(record), address] {
    Unmap(address, mappings_.at(address).memory, [this, asker, address] {
      mappings_.erase(address);
      Reply<wire::MemUnmap>(asker, CUDA_SUCCESS);
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
  // Mappings that nobody else is busy with must hold every byte and nothing else.
  const uint64_t end = address + size_bytes;
  chores_.Do([this, asker = AskerOf(record), ticket = record.ticket, address, size_bytes, flags,
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
      narrows |= flags < it->second.access;
      if (flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) accessible_.Remove(at);
      at += it->second.size_bytes;
    }
    if (at != end) return false;
    const auto change = [this, asker, address, size_bytes, flags] {
      ChangeAccess(asker, address, size_bytes, flags);
    };
    narrows ? AfterEarlierWork(ticket, change) : change();
    return true;
  });
}

void DeviceMemory::ChangeAccess(Asker asker, uint64_t address, uint64_t size_bytes,
                                uint32_t flags) {
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, address, size_bytes, flags, device = place_.device->device(),
       &cuda = place_.device->cuda()] {
        CUmemAccessDesc access = {};
        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = device;
        access.flags = static_cast<CUmemAccess_flags>(flags);
        *result = cuda.cuMemSetAccess(address, size_bytes, &access, 1);
      },
      [this, result, asker, address, size_bytes, flags] {
        const bool changed = place_.device->Judge(*result) == CUDA_SUCCESS;
        chores_.Do([this, result = *result, changed, asker, flags, end = address + size_bytes,
                    at = address]() mutable {
          auto it = mappings_.lower_bound(at);
          for (size_t left = Chores::kPiece; it != mappings_.end() && it->first < end; ++it) {
            if (left-- == 0) return at = it->first, false;
            MappedRange& mapping = it->second;
            mapping.busy = false;
            if (changed) mapping.access = flags;
            if (mapping.access != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
              (void)accessible_.Add(it->first, mapping.size_bytes);  // or it is there already
            }
          }
          Reply<wire::MemSetAccess>(asker, result);
          return true;
        });
      });
}

}  // namespace gpuloom::executor
