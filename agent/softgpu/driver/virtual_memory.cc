// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/virtual_memory.h"

#include <sys/mman.h>

#include <tuple>
#include <utility>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/retirement.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// User addresses end here on x86-64 with four-level paging.
constexpr uint64_t kAddressEnd = uint64_t{1} << 47;
// Driver 580.159 rounds a requested address up to a multiple of this (VirtualMemory::Reserve).
constexpr uint64_t kWantedStepBytes = uint64_t{32} << 20;

bool IsGranular(uint64_t number) { return number % kGranularityBytes == 0; }

// Addresses that nothing may touch and that take no memory; 0 when the kernel refuses. `flags` are
// added to the usual ones.
uint64_t MapNothing(uint64_t wanted, uint64_t size_bytes, int flags) {
  void* at = mmap(reinterpret_cast<void*>(wanted), size_bytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  return at == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(at);
}

// Returns 0 unless the whole range is free or was freed by us. What was freed may still be mapped,
// blank, because a kernel might be looking at it: those pieces are taken over as they are, and only
// the gaps between them are mapped. On failure everything goes back to where it was.
uint64_t MapAt(uint64_t wanted, uint64_t size_bytes) {
  const std::vector<Retirement::Piece> ours = Retirement::Instance().TakeBack(wanted, size_bytes);
  std::vector<Retirement::Piece> mapped;
  uint64_t at = wanted;
  const auto map_until = [&](uint64_t end) {
    if (at == end) return true;
    const uint64_t got = MapNothing(at, end - at, MAP_FIXED_NOREPLACE);
    if (got != 0) mapped.push_back({got, end - at});
    return got == at;  // a kernel before 4.17 takes the flag for a hint
  };
  bool is_free = true;
  for (const Retirement::Piece& piece : ours) {
    is_free = is_free && map_until(piece.begin);
    at = piece.end();
  }
  if (is_free && map_until(wanted + size_bytes)) return wanted;
  for (const Retirement::Piece& piece : mapped) {
    munmap(reinterpret_cast<void*>(piece.begin), piece.size_bytes);
  }
  for (const Retirement::Piece& piece : ours) {
    Retirement::Instance().Unmap(piece.begin, piece.size_bytes);
  }
  return 0;
}

// The kernel aligns to pages only: more is mapped, and what is left over at both ends is given
// back.
uint64_t MapAligned(uint64_t size_bytes, uint64_t alignment_bytes) {
  const uint64_t whole = MapNothing(0, size_bytes + alignment_bytes, 0);
  if (whole == 0) return 0;
  const uint64_t begin = (whole + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  const uint64_t end = begin + size_bytes;
  if (begin > whole) munmap(reinterpret_cast<void*>(whole), begin - whole);
  if (end < whole + size_bytes + alignment_bytes) {
    munmap(reinterpret_cast<void*>(end), whole + size_bytes + alignment_bytes - end);
  }
  return begin;
}

}  // namespace

VirtualMemory& VirtualMemory::Instance() {
  static auto* memory =
      new VirtualMemory;  // never destroyed: calls may come while the process exits
  return *memory;
}

CUresult VirtualMemory::Reserve(uint64_t size_bytes, uint64_t alignment_bytes, uint64_t wanted,
                                uint64_t& begin) {
  if (size_bytes == 0 || !IsGranular(size_bytes) || size_bytes >= kAddressEnd) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!IsGranular(wanted) || (alignment_bytes & (alignment_bytes - 1)) != 0 ||
      alignment_bytes >= kAddressEnd) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (alignment_bytes < kGranularityBytes) alignment_bytes = kGranularityBytes;
  const MutexLock lock(mutex_);
  begin = 0;
  // As in driver 580.159, a size of a step or more begins at a step, and a smaller one never where it was requested.
  if (size_bytes < kWantedStepBytes) {
    wanted = 0;
  } else if (alignment_bytes < kWantedStepBytes) {
    alignment_bytes = kWantedStepBytes;
    wanted = (wanted + kWantedStepBytes - 1) & ~(kWantedStepBytes - 1);
  }
  if (wanted != 0 && wanted % alignment_bytes == 0 && wanted < kAddressEnd) {
    begin = MapAt(wanted, size_bytes);
  }
  if (begin == 0) begin = MapAligned(size_bytes, alignment_bytes);
  if (begin == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reservations_.emplace(begin, size_bytes);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Free(uint64_t begin, uint64_t size_bytes) {
  const MutexLock lock(mutex_);
  const auto found = reservations_.find(begin);
  if (found == reservations_.end() || found->second != size_bytes) return CUDA_ERROR_INVALID_VALUE;
  // Something is mapped in it. Checked under our lock, which Map also holds, so nothing can come
  // between.
  if (!AddressTable::Instance().Touching(begin, size_bytes).empty()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  reservations_.erase(found);
  Retirement::Instance().Unmap(begin, size_bytes);
  return CUDA_SUCCESS;
}

bool VirtualMemory::FindReservationLocked(uint64_t address, uint64_t& begin,
                                          uint64_t& size_bytes) const {
  const auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return false;
  std::tie(begin, size_bytes) = *std::prev(after);
  return address - begin < size_bytes;
}

bool VirtualMemory::FindReservation(uint64_t address, uint64_t& begin, uint64_t& size_bytes) {
  const MutexLock lock(mutex_);
  return FindReservationLocked(address, begin, size_bytes);
}

CUresult VirtualMemory::Map(uint64_t begin, uint64_t size_bytes,
                            std::shared_ptr<Physical> physical) {
  // As the real driver answers: it maps whole memory, into one reservation. The wrong size and the
  // wrong range are NOT_SUPPORTED there, not INVALID_VALUE.
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size_bytes != physical->size_bytes) return CUDA_ERROR_NOT_SUPPORTED;
  if (!IsGranular(begin)) return CUDA_ERROR_INVALID_VALUE;
  const MutexLock lock(mutex_);
  uint64_t reserved = 0;
  uint64_t reserved_bytes = 0;
  if (!FindReservationLocked(begin, reserved, reserved_bytes) ||
      size_bytes > reserved_bytes - (begin - reserved)) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (!AddressTable::Instance().Touching(begin, size_bytes).empty()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // MAP_FIXED replaces the reservation's own pages, which nobody may touch: the range is not in the
  // table yet.
  if (mmap(reinterpret_cast<void*>(begin), size_bytes, PROT_READ | PROT_WRITE,
           MAP_SHARED | MAP_FIXED, physical->fd, 0) == MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Region region;
  region.begin = begin;
  region.asked_bytes = size_bytes;
  region.size_bytes = size_bytes;
  region.backed_bytes = size_bytes;
  region.kind = RegionKind::kMapped;
  region.device = physical->device;
  // As on the real driver, mapped memory may not be touched before cuMemSetAccess.
  region.access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  region.physical = std::move(physical);
  return AddressTable::Instance().Add(std::move(region)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Mappings side by side, without a hole, that begin and end exactly with the range.
bool VirtualMemory::ConsistsOfMappings(uint64_t begin, uint64_t size_bytes) const {
  if (size_bytes == 0) return false;
  uint64_t at = begin;
  for (const Region& region : AddressTable::Instance().Touching(begin, size_bytes)) {
    if (region.kind != RegionKind::kMapped || region.begin != at) return false;
    at = region.end();
  }
  return at == begin + size_bytes;
}

CUresult VirtualMemory::Unmap(uint64_t begin, uint64_t size_bytes) {
  const MutexLock lock(mutex_);
  uint64_t reserved = 0;
  uint64_t reserved_bytes = 0;
  if (size_bytes == 0 || !FindReservationLocked(begin, reserved, reserved_bytes) ||
      size_bytes > reserved_bytes - (begin - reserved)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Whole mappings; holes between them are no mistake.
  for (const Region& region : AddressTable::Instance().Touching(begin, size_bytes)) {
    if (region.kind != RegionKind::kMapped || region.begin < begin ||
        region.end() > begin + size_bytes) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  // Out of the table first, then blank: a kernel that passed its check in between sees zeros, and
  // the next check faults.
  const auto mappings = AddressTable::Instance().TakeIf([&](const Region& region) {
    return region.begin >= begin && region.end() <= begin + size_bytes;
  });
  // The reservation stays: its addresses show zero pages, outside the table, until they are mapped
  // or freed.
  for (const Region& region : mappings) {
    Retirement::Instance().Blank(region.begin, region.backed_bytes);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::SetAccess(uint64_t begin, uint64_t size_bytes, CUmemAccess_flags access) {
  const MutexLock lock(mutex_);
  if (!ConsistsOfMappings(begin, size_bytes)) return CUDA_ERROR_INVALID_VALUE;
  AddressTable& table = AddressTable::Instance();
  for (const Region& region : table.Touching(begin, size_bytes)) {
    table.SetAccess(region.begin, access);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::MapWhole(uint64_t begin, uint64_t size_bytes, Device& device,
                                 const std::vector<std::shared_ptr<Physical>>& pieces) {
  const MutexLock lock(mutex_);
  uint64_t at = begin;
  CUresult result = CUDA_SUCCESS;
  for (const auto& piece : pieces) {
    // MAP_FIXED replaces the reservation's own pages.
    if (mmap(reinterpret_cast<void*>(at), piece->size_bytes, PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_FIXED, piece->fd, 0) == MAP_FAILED) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      break;
    }
    at += piece->size_bytes;
  }
  Region region;
  region.begin = begin;
  region.asked_bytes = size_bytes;
  region.size_bytes = at - begin;
  region.backed_bytes = at - begin;
  region.device = &device;
  region.context = device.primary;
  if (result == CUDA_SUCCESS && !AddressTable::Instance().Add(std::move(region))) {
    result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result != CUDA_SUCCESS) Retirement::Instance().Blank(begin, at - begin);
  return result;
}

void VirtualMemory::UnmapWhole(uint64_t begin) {
  const MutexLock lock(mutex_);
  const auto region = AddressTable::Instance().Take(begin, [](const Region&) { return true; });
  if (region) Retirement::Instance().Blank(begin, region->backed_bytes);
}

}  // namespace gpuloom::softgpu
