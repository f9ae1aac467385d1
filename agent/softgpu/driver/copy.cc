// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/copy.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/physical_memory.h"
#include "agent/softgpu/driver/retirement.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::softgpu {
namespace {

// No address and no distance reaches this, so sums of a few of them do not overflow.
constexpr uint64_t kLimit = uint64_t{1} << 56;

// The size from the first byte to the end of the last one that is touched; 0 if that overflows. With it one look at the
// address table checks all rows of a copy, and the gaps between them.
uint64_t SpanOf(const CopyEnd& end, const Copy& copy) {
  uint64_t slices = 0;
  uint64_t rows = 0;
  uint64_t span = 0;
  if (end.address >= kLimit || __builtin_mul_overflow(copy.depth - 1, end.slice_bytes, &slices) ||
      __builtin_mul_overflow(copy.height - 1, end.pitch_bytes, &rows) ||
      __builtin_add_overflow(slices, rows, &span) ||
      __builtin_add_overflow(span, copy.width_bytes, &span)) {
    return 0;
  }
  return span < kLimit ? span : 0;
}

struct Judged {
  CUresult result = CUDA_SUCCESS;
  bool known = false;      // in the address table: a kernel could touch it
  bool on_device = false;  // device or managed memory
};

// `write`: the device writes this end. Memory that is not in the table is pageable, unless the
// caller said that it is the device's.
Judged Judge(const CopyEnd& end, uint64_t span, bool write) {
  if (span == 0 || end.address == 0) return {CUDA_ERROR_INVALID_VALUE};
  const AddressTable& table = AddressTable::Instance();
  const auto region = table.FindRegion(end.address);
  if (!region) return {end.side == Side::kDevice ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS};
  // Read-only registered memory is read-only for the device; a copy to it is the device's write.
  if (!table.Covers(end.address, span, write)) {
    // A pageable range may begin with, or run through, a registered piece.
    return {region->on_device() || end.side == Side::kDevice ? CUDA_ERROR_INVALID_VALUE
                                                             : CUDA_SUCCESS};
  }
  return {CUDA_SUCCESS, true, region->on_device()};
}

// memmove, because CUDA leaves overlapping copies undefined and this way they do no harm.
void CopyRows(const Copy& copy) {
  for (uint64_t z = 0; z < copy.depth; ++z) {
    for (uint64_t y = 0; y < copy.height; ++y) {
      auto* to = reinterpret_cast<std::byte*>(copy.to.address + z * copy.to.slice_bytes +
                                              y * copy.to.pitch_bytes);
      const auto* from = reinterpret_cast<const std::byte*>(
          copy.from.address + z * copy.from.slice_bytes + y * copy.from.pitch_bytes);
      std::memmove(to, from, copy.width_bytes);
    }
  }
}

// Rows side by side and nothing between.
void Pack(const Copy& copy, std::vector<std::byte>& staged) {
  staged.resize(copy.width_bytes * copy.height * copy.depth);
  Copy pack = copy;
  pack.to.address = reinterpret_cast<uint64_t>(staged.data());
  pack.to.pitch_bytes = copy.width_bytes;
  pack.to.slice_bytes = copy.width_bytes * copy.height;
  CopyRows(pack);
}

// `check_…`: that end was in the table when the call was made, so it must still be. Pageable ends
// are not looked up: they are the program's, and the call waits for it.
void RunCopy(const Copy& copy, uint64_t to_span, uint64_t from_span, bool check_to,
             bool check_from) {
  const Retirement::Touching touching;
  const AddressTable& table = AddressTable::Instance();
  if (check_to && !table.Covers(copy.to.address, to_span, true)) {
    return RecordMemoryLost("a copy to memory", copy.to.address, to_span);
  }
  if (check_from && !table.Covers(copy.from.address, from_span, false)) {
    return RecordMemoryLost("a copy from memory", copy.from.address, from_span);
  }
  CopyRows(copy);
}

// Both sides of a copy, with the memory that each is found to be.
struct JudgedCopy {
  uint64_t to_span;
  uint64_t from_span;
  Judged to;
  Judged from;

  explicit JudgedCopy(const Copy& copy)
      : to_span(SpanOf(copy.to, copy)),
        from_span(SpanOf(copy.from, copy)),
        to(Judge(copy.to, to_span, true)),
        from(Judge(copy.from, from_span, false)) {}
  CUresult result() const { return to.result != CUDA_SUCCESS ? to.result : from.result; }
  void Run(const Copy& copy) const { RunCopy(copy, to_span, from_span, to.known, from.known); }
};

bool IsEmpty(const Copy& copy) {
  return copy.width_bytes == 0 || copy.height == 0 || copy.depth == 0;
}

}  // namespace

// `run` stays empty for an empty copy, which the callers take for nothing to do.
CUresult PrepareCopy(const Copy& copy, std::function<void()>& run) {
  if (IsEmpty(copy)) return CUDA_SUCCESS;
  const JudgedCopy judged(copy);
  CUDA_RETURN_IF_ERROR(judged.result());
  run = [copy, judged] { judged.Run(copy); };
  return CUDA_SUCCESS;
}

CUresult SubmitCopy(Stream& stream, const Copy& copy, bool wait) {
  if (IsEmpty(copy)) return CUDA_SUCCESS;
  const JudgedCopy judged(copy);
  CUDA_RETURN_IF_ERROR(judged.result());
  const Judged& to = judged.to;
  const Judged& from = judged.from;

  Copy run = copy;
  std::shared_ptr<std::vector<std::byte>> staged;
  const uint64_t total_bytes = copy.width_bytes * copy.height * copy.depth;
  // The program may change its buffer when the call returns, so small pageable copies are taken at
  // once.
  if (!wait && !from.known && total_bytes <= kStagedBytes) {
    staged = std::make_shared<std::vector<std::byte>>();
    Pack(copy, *staged);
    run.from.address = reinterpret_cast<uint64_t>(staged->data());
    run.from.pitch_bytes = copy.width_bytes;
    run.from.slice_bytes = copy.width_bytes * copy.height;
  }
  Work work;
  work.on_device = true;
  work.run = [run, staged, judged] { judged.Run(run); };
  const Point done = stream.context.Enqueue(stream, std::move(work));
  const bool between_devices = to.on_device && from.on_device;
  const bool between_hosts = !to.on_device && !from.on_device;  // CUDA's are synchronous
  const bool buffer_in_use = !to.known || (!from.known && staged == nullptr);
  // A synchronous call waits unless both ends are the device's. An asynchronous one waits only
  // where it must: while a pageable buffer is in use, and between two host ends.
  if (wait ? between_devices : !buffer_in_use && !between_hosts) return CUDA_SUCCESS;
  done.Wait();
  return Fault();
}

namespace {

// Returns true if nobody has written there since the memory was created, so that it is zero. Code that gives out memory
// clears it first (gpuloom's executor does), and would otherwise touch every page of it for nothing.
bool IsUntouched(uint64_t begin, uint64_t size_bytes) {
  const std::optional<Region> region = AddressTable::Instance().FindRegion(begin);
  if (!region.has_value() || region->physical == nullptr || size_bytes > region->end() - begin) {
    return false;
  }
  const auto offset = static_cast<off_t>(begin - region->begin);
  const off_t data = lseek(region->physical->fd, offset, SEEK_DATA);
  return data < 0 ? errno == ENXIO : data >= offset + static_cast<off_t>(size_bytes);
}

template <typename T>
void FillRows(const Fill& fill) {
  for (uint64_t y = 0; y < fill.height; ++y) {
    auto* row = reinterpret_cast<T*>(fill.address + y * fill.pitch_bytes);
    std::fill_n(row, fill.width, static_cast<T>(fill.value));
  }
}

}  // namespace

CUresult PrepareFill(const Fill& fill, std::function<void()>& run) {
  if (fill.width == 0 || fill.height == 0) return CUDA_SUCCESS;
  if (fill.width >= kLimit / 4 || fill.address % fill.element_bytes != 0 ||
      (fill.height > 1 && fill.pitch_bytes % fill.element_bytes != 0)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A fill is judged as the destination of a copy of the same shape.
  Copy shape;
  shape.width_bytes = fill.width * fill.element_bytes;
  shape.height = fill.height;
  shape.to = {fill.address, Side::kDevice, fill.pitch_bytes, 0};
  if (fill.height > 1 && fill.pitch_bytes < shape.width_bytes) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t span = SpanOf(shape.to, shape);
  const Judged to = Judge(shape.to, span, true);
  if (to.result != CUDA_SUCCESS) return to.result;
  run = [fill, span] {
    // Looked up again: the memory may have been freed while the work waited.
    const Retirement::Touching touching;
    if (!AddressTable::Instance().Covers(fill.address, span, true)) {
      return RecordMemoryLost("a memset", fill.address, span);
    }
    if (fill.value == 0 && IsUntouched(fill.address, span)) return;
    switch (fill.element_bytes) {
      case 1:
        return FillRows<uint8_t>(fill);
      case 2:
        return FillRows<uint16_t>(fill);
      default:
        return FillRows<uint32_t>(fill);
    }
  };
  return CUDA_SUCCESS;
}

CUresult SubmitFill(Stream& stream, const Fill& fill) {
  Work work;
  work.on_device = true;
  const CUresult prepared = PrepareFill(fill, work.run);
  if (prepared != CUDA_SUCCESS || work.run == nullptr) return prepared;
  stream.context.Enqueue(stream, std::move(work));
  return CUDA_SUCCESS;
}

}  // namespace gpuloom::softgpu
