// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/address_table.h"

#include <utility>

#include "agent/softgpu/driver/view.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// Whether a kernel may read, or write, the region: what cuMemSetAccess, or a read-only
// registration, left of it.
bool Allows(const Region& region, bool write) {
  return write ? region.access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
               : region.access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

}  // namespace

AddressTable& AddressTable::Instance() {
  static auto* table = new AddressTable;  // never destroyed: stream threads may use it during exit
  return *table;
}

const Region* AddressTable::FindLocked(uint64_t address) const {
  auto after = regions_.upper_bound(address);
  if (after == regions_.begin()) return nullptr;
  const Region& region = std::prev(after)->second;
  return address < region.end() ? &region : nullptr;
}

// The machine's question before an access. It keeps the answer for as long as generation() does not
// change.
AddressSpace::Range AddressTable::Find(uint64_t address) const {
  const ReaderLock lock(mutex_);
  const Region* region = FindLocked(address);
  if (region == nullptr || !Allows(*region, false)) return {};
  return {region->begin, region->end(), Allows(*region, true)};
}

bool AddressTable::Add(Region region) {
  const WriterLock lock(mutex_);
  // The neighbour above must not begin before the end, the one below must not end after the
  // beginning.
  const auto after = regions_.lower_bound(region.begin);
  if (after != regions_.end() && after->first < region.end()) return false;
  if (after != regions_.begin() && std::prev(after)->second.end() > region.begin) return false;
  region.buffer_id = next_buffer_id_++;
  const uint64_t begin = region.begin;
  regions_.emplace_hint(after, begin, std::move(region));
  return true;
}

std::optional<Region> AddressTable::FindRegion(uint64_t address) const {
  const ReaderLock lock(mutex_);
  const Region* region = FindLocked(address);
  return region == nullptr ? std::nullopt : std::optional<Region>(*region);
}

std::vector<Region> AddressTable::Touching(uint64_t begin, uint64_t size_bytes) const {
  std::vector<Region> touching;
  const ReaderLock lock(mutex_);
  // The region that begins before the range may reach into it.
  auto at = regions_.upper_bound(begin);
  if (at != regions_.begin() && std::prev(at)->second.end() > begin) --at;
  for (; at != regions_.end() && (at->first < begin || at->first - begin < size_bytes); ++at) {
    touching.push_back(at->second);
  }
  return touching;
}

bool AddressTable::Covers(uint64_t begin, uint64_t size_bytes, bool write) const {
  const ReaderLock lock(mutex_);
  while (size_bytes > 0) {
    const Region* region = FindLocked(begin);
    if (region == nullptr || !Allows(*region, write)) return false;
    const uint64_t here = region->end() - begin;
    if (here >= size_bytes) return true;
    begin += here;
    size_bytes -= here;
  }
  return true;
}

// The generation moves on, so that kernels that kept an earlier answer ask again.
void AddressTable::SetAccess(uint64_t begin, CUmemAccess_flags access) {
  const WriterLock lock(mutex_);
  const auto found = regions_.find(begin);
  if (found == regions_.end()) return;
  found->second.access = access;
  generation_.fetch_add(1);
}

bool AddressTable::SetSynchronous(uint64_t address, bool on) {
  const WriterLock lock(mutex_);
  auto at = regions_.upper_bound(address);
  if (at == regions_.begin() || (--at)->second.end() <= address) return false;
  at->second.synchronous = on;
  return true;
}

bool AddressTable::SetLeaving(uint64_t begin) {
  std::shared_ptr<PoolShare> share;  // goes after the lock
  const WriterLock lock(mutex_);
  const auto found = regions_.find(begin);
  if (found == regions_.end() || found->second.kind != RegionKind::kDevice ||
      found->second.leaving) {
    return false;
  }
  found->second.leaving = true;
  share = std::move(found->second.share);
  return true;
}

std::shared_ptr<const Texture> AddressTable::FindTexture(uint64_t handle) const {
  return Views::Instance().FindTexture(handle);
}

std::shared_ptr<const Image> AddressTable::FindSurface(uint64_t handle) const {
  return Views::Instance().FindSurface(handle);
}

}  // namespace gpuloom::softgpu
