// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/retirement.h"

#include <sys/mman.h>

#include <algorithm>

#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

Retirement& Retirement::Instance() {
  static auto* retirement =
      new Retirement;  // never destroyed: stream threads may use it during exit
  return *retirement;
}

void Retirement::Blank(uint64_t begin, uint64_t size_bytes) {
  // MAP_FIXED replaces in one step: there is no moment without a mapping. Only the kernel's own
  // lack of memory for the bookkeeping can make it fail, and then the old pages stay, which is as
  // safe.
  (void)mmap(reinterpret_cast<void*>(begin), size_bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

// With the epoch counted up, work that begins from here on is younger than the range and does not
// keep it. Nobody at work: no blanking, the pages go at once in ReapLocked.
void Retirement::Unmap(uint64_t begin, uint64_t size_bytes) {
  const MutexLock lock(mutex_);
  if (!touching_.empty()) Blank(begin, size_bytes);
  retired_.push_back({epoch_++, begin, size_bytes});
  ReapLocked();
}

// A range that is taken back in part is split; what remains keeps its epoch. Its pages are blank,
// since only ranges that somebody might touch stay in retired_.
std::vector<Retirement::Piece> Retirement::TakeBack(uint64_t begin, uint64_t size_bytes) {
  const uint64_t end = begin + size_bytes;
  std::vector<Piece> taken;
  std::vector<Range> left;
  const MutexLock lock(mutex_);
  for (const Range& range : retired_) {
    const uint64_t range_end = range.begin + range.size_bytes;
    const uint64_t first = std::max(begin, range.begin);
    const uint64_t last = std::min(end, range_end);
    if (first >= last) {
      left.push_back(range);
      continue;
    }
    taken.push_back({first, last - first});
    if (range.begin < first) left.push_back({range.epoch, range.begin, first - range.begin});
    if (last < range_end) left.push_back({range.epoch, last, range_end - last});
  }
  retired_ = std::move(left);
  std::sort(taken.begin(), taken.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  return taken;
}

// A range goes when all work that was running when it was retired has ended: when every epoch at
// work is younger than its own.
void Retirement::ReapLocked() {
  const uint64_t oldest = touching_.empty() ? epoch_ : touching_.begin()->first;
  std::erase_if(retired_, [&](const Range& range) {
    if (range.epoch >= oldest) return false;
    munmap(reinterpret_cast<void*>(range.begin), range.size_bytes);
    return true;
  });
}

Retirement::Touching::Touching() {
  Retirement& retirement = Instance();
  const MutexLock lock(retirement.mutex_);
  epoch_ = retirement.epoch_;
  ++retirement.touching_[epoch_];
}

Retirement::Touching::~Touching() {
  Retirement& retirement = Instance();
  const MutexLock lock(retirement.mutex_);
  const auto found = retirement.touching_.find(epoch_);
  if (--found->second == 0) retirement.touching_.erase(found);
  if (!retirement.retired_.empty()) retirement.ReapLocked();
}

}  // namespace gpuloom::softgpu
