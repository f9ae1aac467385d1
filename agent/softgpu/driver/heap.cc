// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/heap.h"

#include <algorithm>
#include <iterator>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/memory.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint64_t kStepBytes = 16;  // what CUDA aligns such memory to

}  // namespace

// Settles the heap's size by the limit as it is now. The context's lock is taken under the heap's,
// never the other way round (docs/design/locks.md). A heap that does not fit is not remembered: the
// next allocation tries again.
bool Heap::BeginLocked() {
  if (begun_) return true;
  uint64_t size_bytes = 0;
  {
    const MutexLock lock(context_.mutex);
    size_bytes = context_.limits[CU_LIMIT_MALLOC_HEAP_SIZE] / kStepBytes * kStepBytes;
  }
  uint64_t begin = 0;
  if (size_bytes == 0 || Memory::Instance().Allocate(context_, RegionKind::kModule, size_bytes, 0,
                                                     begin) != CUDA_SUCCESS) {
    return false;
  }
  begun_ = true;
  free_[begin] = size_bytes;
  return true;
}

uint64_t Heap::Allocate(uint64_t size_bytes) {
  const MutexLock lock(mutex_);
  // Up to 64 TiB, so that rounding up cannot overflow.
  if (size_bytes == 0 || size_bytes > uint64_t{1} << 46 || !BeginLocked()) return 0;
  const uint64_t wanted = (size_bytes + kStepBytes - 1) / kStepBytes * kStepBytes;
  const auto found = std::find_if(free_.begin(), free_.end(),
                                  [&](const auto& piece) { return piece.second >= wanted; });
  if (found == free_.end()) return 0;
  const auto [address, size] = *found;
  free_.erase(found);
  if (size > wanted) free_[address + wanted] = size - wanted;
  used_[address] = wanted;
  return address;
}

// Only the exact address of an allocation is known; anything else is the kernel's mistake, which
// the caller reports. Neighbours are joined, so that the heap does not crumble.
bool Heap::Free(uint64_t address) {
  const MutexLock lock(mutex_);
  const auto used = used_.find(address);
  if (used == used_.end()) return false;
  auto piece = free_.emplace(address, used->second).first;
  used_.erase(used);
  if (const auto next = std::next(piece);
      next != free_.end() && piece->first + piece->second == next->first) {
    piece->second += next->second;
    free_.erase(next);
  }
  if (piece != free_.begin()) {
    const auto before = std::prev(piece);
    if (before->first + before->second == piece->first) {
      before->second += piece->second;
      free_.erase(piece);
    }
  }
  return true;
}

bool Heap::in_use() {
  const MutexLock lock(mutex_);
  return begun_;
}

// Not freed piece by piece: the whole region is freed with the context's other memory.
void Heap::Forget() {
  const MutexLock lock(mutex_);
  begun_ = false;
  free_.clear();
  used_.clear();
}

}  // namespace gpuloom::softgpu
