// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "agent/softgpu/driver/advice.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/pool_file.h"
#include "agent/softgpu/driver/retirement.h"

namespace gpuloom::softgpu {
namespace {

uint64_t RoundUp(uint64_t number, uint64_t step) { return (number + step - 1) / step * step; }

uint64_t PageBytes() {
  static const auto bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// This process may read every byte of the range, and write it unless `read_only`. By
// /proc/self/maps, since nothing else tells of memory that is not ours without touching it. The
// program may unmap it later all the same; that is its own mistake, as with CUDA.
bool MayAccess(uint64_t begin, uint64_t end, bool read_only) {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  uint64_t at = begin;
  while (at < end && std::getline(maps, line)) {
    uint64_t from = 0;
    uint64_t to = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, access) != 3) break;
    if (to <= at) continue;
    if (from > at || access[0] != 'r' || (access[1] != 'w' && !read_only)) return false;
    at = to;
  }
  return at >= end;
}

}  // namespace

Memory& Memory::Instance() {
  static auto* memory = new Memory;  // never destroyed: calls may come while the process exits
  return *memory;
}

CUresult Memory::Allocate(Context& context, RegionKind kind, uint64_t size_bytes, unsigned flags,
                          uint64_t& begin, std::shared_ptr<PoolShare> share,
                          const std::shared_ptr<FilePiece>& piece) {
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  // Below the end of user addresses, so that rounding up cannot overflow.
  if (size_bytes > uint64_t{1} << 46) return CUDA_ERROR_OUT_OF_MEMORY;
  Region region;
  region.kind = kind;
  region.context = &context;
  region.flags = flags;
  region.share = std::move(share);
  region.piece = piece;
  region.asked_bytes = size_bytes;
  if (kind == RegionKind::kManaged) region.advice = std::make_shared<Advice>();
  // Kernels may touch up to the step, the pages behind it are only there because mmap gives no
  // less.
  region.size_bytes = RoundUp(size_bytes, kDeviceStepBytes);
  region.backed_bytes = RoundUp(size_bytes, PageBytes());
  if (kind != RegionKind::kHost) {
    region.device = &context.device;
    // A piece of another process's file is charged there.
    region.charged_bytes = piece != nullptr && !piece->ours ? 0 : region.size_bytes;
    if (!context.device.Take(region.charged_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    region.size_bytes = size_bytes;
  }
  void* pages = piece != nullptr ? mmap(nullptr, region.backed_bytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED | MAP_NORESERVE, piece->file->fd(),
                                        static_cast<off_t>(piece->offset_bytes))
                                 : mmap(nullptr, region.backed_bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    if (region.charged_bytes != 0) context.device.GiveBack(region.charged_bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  begin = reinterpret_cast<uint64_t>(pages);
  region.begin = begin;
  // `region` is moved into the table and is gone even if the table refuses it.
  Region copy = region;
  if (AddressTable::Instance().Add(std::move(region))) return CUDA_SUCCESS;
  // Only a registered range that the program has unmapped without unregistering it can lie here.
  Drop(copy);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// The pages by way of Retirement, since a kernel may be looking at them. Registered pages are the
// program's and stay.
void Memory::Drop(const Region& region) {
  if (region.kind != RegionKind::kRegistered) {
    Retirement::Instance().Unmap(region.begin, region.backed_bytes);
  }
  if (region.charged_bytes != 0) region.device->GiveBack(region.charged_bytes);
}

CUresult Memory::Free(uint64_t begin, RegionKind kind) {
  const std::optional<Region> region = AddressTable::Instance().Take(
      begin, [kind](const Region& candidate) { return candidate.kind == kind; });
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  Drop(*region);
  return CUDA_SUCCESS;
}

// Memory that the program cannot touch itself is refused. `backed_bytes` stays 0: there is nothing
// to unmap later.
CUresult Memory::Register(Context& context, uint64_t begin, uint64_t size_bytes, unsigned flags) {
  if (begin == 0 || size_bytes == 0 || begin + size_bytes < begin) return CUDA_ERROR_INVALID_VALUE;
  const bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  if (!MayAccess(begin, begin + size_bytes, read_only)) return CUDA_ERROR_INVALID_VALUE;
  Region region;
  region.begin = begin;
  region.asked_bytes = size_bytes;
  region.size_bytes = size_bytes;
  region.backed_bytes = 0;
  region.kind = RegionKind::kRegistered;
  region.context = &context;
  region.flags = flags;
  if ((flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0) region.access = CU_MEM_ACCESS_FLAGS_PROT_READ;
  return AddressTable::Instance().Add(std::move(region))
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult Memory::Unregister(uint64_t begin) {
  const auto region = AddressTable::Instance().Take(
      begin, [](const Region& candidate) { return candidate.kind == RegionKind::kRegistered; });
  return region ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

void Memory::FreeAllOf(const Context& context) {
  const auto regions = AddressTable::Instance().TakeIf(
      [&](const Region& region) { return region.context == &context; });
  for (const Region& region : regions) Drop(region);
}

}  // namespace gpuloom::softgpu
