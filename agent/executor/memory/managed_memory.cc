// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/memory/managed_memory.h"

#include <sys/mman.h>

#include <iterator>
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/work_pool.h"

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000  // newer than some headers
#endif

namespace gpuloom::executor {
namespace {

// How much of the host range is for managed memory: as much as a session with the usual limit may pin.
constexpr uint64_t kPartOfHostRange = 4;

// Not an error of the device: the requested address is not available.
constexpr CUresult kOtherAddress = CUDA_ERROR_INVALID_ADDRESS_SPACE;

// On a worker. The address is the program's own, so the driver must give exactly this one; to the
// driver it is a hint.
CUresult MapPhysical(const Driver& cuda, CUdevice device, const Physical& memory,
                     uint64_t address) {
  const uint64_t reserved_bytes = wire::RoundUpToManagedStep(memory.size_bytes);
  CUdeviceptr reserved = 0;
  CUresult result =
      cuda.cuMemAddressReserve(&reserved, reserved_bytes, wire::kManagedStepBytes, address, 0);
  if (result != CUDA_SUCCESS) return result;
  result = reserved == address
               ? MapWithAccess(cuda, device, memory.handle, memory.size_bytes, address)
               : kOtherAddress;
  if (result != CUDA_SUCCESS) cuda.cuMemAddressFree(reserved, reserved_bytes);
  return result;
}

// On a worker. Maps pages of the arena a second time, at the address that the program has for this
// memory, and pins them there.
CUresult MapPages(const Driver& cuda, const HostMemory& host, uint64_t pages, uint64_t size_bytes,
                  uint64_t address) {
  if (!host.Populated(pages, size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  void* const wanted = reinterpret_cast<void*>(address);
  void* const mapped =
      mmap(wanted, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE,
           host.arena.get(), static_cast<off_t>(pages - host.range.begin));
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  // Kernels before 4.17 take the address for a hint, too.
  const CUresult result =
      mapped == wanted
          ? cuda.cuMemHostRegister_v2(mapped, size_bytes,
                                      CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)
          : kOtherAddress;
  if (result != CUDA_SUCCESS) munmap(mapped, size_bytes);
  return result;
}

}  // namespace

// nullptr after the session's end, as PinnedMemory's on_unpinned.
ManagedMemory::ManagedMemory(SessionPort* port, DeviceMemory* device_memory)
    : Part(port), device_memory_(*device_memory) {
  host_->on_left = [this] { MapWaiting(); };
}

ManagedMemory::~ManagedMemory() {
  if (host_ != nullptr) host_->on_left = nullptr;
}

void ManagedMemory::On(wire::Tag<wire::ManagedSpace>, const wire::ManagedSpace::Request&,
                       const wire::Record& record) {
  HostMemory& host = *host_;
  if (host.managed.size_bytes == 0) {
    const uint64_t size_bytes =
        host.range.size_bytes / kPartOfHostRange & ~(wire::kManagedStepBytes - 1);
    const uint64_t begin = host.range.begin + host.range.size_bytes - size_bytes;
    if (size_bytes == 0 || begin % wire::kManagedStepBytes != 0 ||
        // The tenant had pinned memory there before it first used managed memory.
        host.pinned.Overlaps(begin, size_bytes)) {
      return Reply<wire::ManagedSpace>(CallerOf(record), CUDA_ERROR_NOT_SUPPORTED);
    }
    // The driver reserves only addresses at which nothing is mapped.
    munmap(reinterpret_cast<void*>(begin), size_bytes);
    host.managed = {begin, size_bytes};
  }
  Reply<wire::ManagedSpace>(CallerOf(record), CUDA_SUCCESS,
                            {host.managed.begin, host.managed.size_bytes});
}

// Each mapping takes whole steps of addresses, as the driver reserves them.
bool ManagedMemory::Overlaps(uint64_t address, uint64_t size_bytes) const {
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first - address < size_bytes) return true;
  return next != mappings_.begin() &&
         address - std::prev(next)->first <
             wire::RoundUpToManagedStep(std::prev(next)->second.size_bytes);
}

void ManagedMemory::On(wire::Tag<wire::ManagedMap>, const wire::ManagedMap::Request& request,
                       const wire::Record& record) {
  const Caller caller = CallerOf(record);
  const auto address = static_cast<uint64_t>(request.address);
  const auto pages = static_cast<uint64_t>(request.pages);
  const uint64_t size_bytes = request.size_bytes;
  if (size_bytes == 0 || size_bytes % kGranuleBytes != 0 ||
      address % wire::kManagedStepBytes != 0) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  if (!host_->managed.Contains(address, size_bytes) || Overlaps(address, size_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  PhysicalRef memory;
  if (request.physical == wire::PhysicalId{0}) {
    if (pages % wire::kPageBytes != 0 || !host_->registered.Contains(pages, size_bytes) ||
        host_->mapped_again.Overlaps(pages, size_bytes)) {
      return Refuse(wire::Fatal::kBadRange);
    }
    // Pages that the tenant has put in the place of those that are registered are pinned now.
    if (size_bytes > order_.pinned_limit_bytes ||
        host_->mapped_again_bytes > order_.pinned_limit_bytes - size_bytes) {
      return Reply<wire::ManagedMap>(caller, CUDA_ERROR_OUT_OF_MEMORY);
    }
    (void)host_->mapped_again.Add(pages, size_bytes);
    host_->mapped_again_bytes += size_bytes;
  } else {
    const PhysicalRef* const found = device_memory_.FindPhysical(request.physical);
    if (found == nullptr) return;
    if ((*found)->size_bytes != size_bytes) return Refuse(wire::Fatal::kBadArgument);
    memory = *found;
    device_memory_.Hold(memory);
    services_.memory->Expect();  // a launch waits for it
  }
  // Entered as busy before it is mapped: nothing else can be put there, and it cannot be unmapped,
  // until OnMapped.
  mappings_.emplace(address, Mapping{size_bytes, memory, pages});
  Map(caller, address);
}

// Addresses that pages have left are free only after a quiet moment, in which those are unpinned.
// Until then the request waits.
void ManagedMemory::Map(Caller caller, uint64_t address) {
  const Mapping& mapping = mappings_.at(address);
  if (host_->leaving_managed.Overlaps(address, wire::RoundUpToManagedStep(mapping.size_bytes))) {
    waiting_.emplace_back(caller, address);
    return services_.quiet->ExpediteRetired();
  }
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, mapping, address, host = host_, &cuda = services_.device->cuda(),
       device = services_.device->device()] {
        *result = mapping.memory != nullptr
                      ? MapPhysical(cuda, device, *mapping.memory, address)
                      : MapPages(cuda, *host, mapping.pages, mapping.size_bytes, address);
      },
      [this, result, caller, address] { OnMapped(caller, address, *result); });
}

void ManagedMemory::MapWaiting() {
  for (const auto& [caller, address] : std::exchange(waiting_, {})) Map(caller, address);
}

void ManagedMemory::OnMapped(Caller caller, uint64_t address, CUresult result) {
  if (result == kOtherAddress) {
    LogFor(&tenant_->lines, LogLevel::kInfo,
           "cuda: the driver does not give session %llu (%s) the address %#llx for managed memory",
           static_cast<unsigned long long>(id()), label(),
           static_cast<unsigned long long>(address));
    result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (services_.device->Judge(result) == CUDA_SUCCESS) {
    Mapping& mapping = mappings_.at(address);
    mapping.busy = false;
    // Cannot overlap: mappings_ has no two in one place, and nothing else is named in this range.
    (void)device_memory_.AddNamed(address, mapping.size_bytes);
    return Reply<wire::ManagedMap>(caller, CUDA_SUCCESS);
  }
  const Mapping mapping = mappings_.extract(address).mapped();
  if (mapping.memory == nullptr) {
    host_->mapped_again.Remove(mapping.pages);
    host_->mapped_again_bytes -= mapping.size_bytes;
    return Reply<wire::ManagedMap>(caller, result);
  }
  device_memory_.Drop(mapping.memory,
                      [this, caller, result] { Reply<wire::ManagedMap>(caller, result); });
}

void ManagedMemory::On(wire::Tag<wire::ManagedUnmap>, const wire::ManagedUnmap::Request& request,
                       const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  const auto it = mappings_.find(address);
  if (it == mappings_.end() || it->second.size_bytes != request.size_bytes || it->second.busy) {
    return Refuse(wire::Fatal::kBadRange);
  }
  it->second.busy = true;
  device_memory_.RetireNamed(address);  // no later command may name it
  AfterEarlierWork(record.ticket, [this, caller = CallerOf(record), address] {
    device_memory_.ForgetNamed(address);
    const Mapping mapping = mappings_.at(address);
    // The program's pages, or memory of its quota: each goes back where it came from.
    if (mapping.memory == nullptr) {
      mappings_.erase(address);
      host_->mapped_again.Remove(mapping.pages);
      UnmapPages(address, mapping.size_bytes);
      return Reply<wire::ManagedUnmap>(caller, CUDA_SUCCESS);
    }
    UnmapPhysical(address, mapping, [this, caller, address, memory = mapping.memory] {
      device_memory_.Drop(memory, [this, caller, address] {
        mappings_.erase(address);
        Reply<wire::ManagedUnmap>(caller, CUDA_SUCCESS);
      });
    });
  });
}

// Nobody waits for it, because it takes a moment in which the device is idle, as unpinning other memory does.
void ManagedMemory::UnmapPages(uint64_t address, uint64_t size_bytes) {
  (void)host_->leaving_managed.Add(address, wire::RoundUpToManagedStep(size_bytes));
  services_.quiet->Retire(
      [address, size_bytes, &cuda = services_.device->cuda()] {
        cuda.cuMemHostUnregister(reinterpret_cast<void*>(address));
        munmap(reinterpret_cast<void*>(address), size_bytes);
      },
      // Keeps a reference to the range and drops it on the ring thread.
      [keep = host_, address, size_bytes] {
        keep->leaving_managed.Remove(address);
        keep->mapped_again_bytes -= size_bytes;
        if (keep->on_left) keep->on_left();
      });
}

// The addresses are given back to the driver with each range: it reserves none where something is
// mapped, and pages may be mapped there next.
void ManagedMemory::UnmapPhysical(uint64_t address, const Mapping& mapping,
                                  std::function<void()> done) {
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, address, size_bytes = mapping.size_bytes, &cuda = services_.device->cuda()] {
        *result = cuda.cuMemUnmap(address, size_bytes);
        cuda.cuMemAddressFree(address, wire::RoundUpToManagedStep(size_bytes));
      },
      [this, result, done = std::move(done)] {
        services_.device->Judge(*result);
        done();
      });
}

// What waits was never mapped.
void ManagedMemory::End() {
  for (const auto& [caller, address] : std::exchange(waiting_, {})) {
    const Mapping mapping = mappings_.extract(address).mapped();
    if (mapping.memory != nullptr) {
      device_memory_.LeaveHold(mapping.memory);
      continue;
    }
    host_->mapped_again.Remove(mapping.pages);
    host_->mapped_again_bytes -= mapping.size_bytes;
  }
}

// Holds are left to ReturnMemory, which releases the handles on the memory lane behind these
// unmappings.
bool ManagedMemory::RetirePiece() {
  for (size_t left = Chores::kPiece; left != 0; --left) {
    if (mappings_.empty()) return true;
    const auto node = mappings_.extract(mappings_.begin());
    const Mapping& mapping = node.mapped();
    if (mapping.memory == nullptr) {
      host_->mapped_again.Remove(mapping.pages);
      UnmapPages(node.key(), mapping.size_bytes);
    } else {
      UnmapPhysical(node.key(), mapping, [] {});
      device_memory_.LeaveHold(mapping.memory);
    }
  }
  return false;
}

}  // namespace gpuloom::executor
