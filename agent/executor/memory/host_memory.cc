// SPDX-License-Identifier: Apache-2.0
// Pinning parts of the arena.
#include "agent/executor/memory/host_memory.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/memory/pinned_memory.h"

namespace gpuloom::executor {

namespace {

// Since Linux 6.5, and newer than some headers; the number is the same on every architecture.
constexpr long kCachestat = 451;
struct CachestatRange {
  uint64_t offset;
  uint64_t size_bytes;
};
struct Cachestat {
  uint64_t cached_pages, dirty_pages, written_pages, evicted_pages, recently_evicted_pages;
};

// Returns true if all pages are in memory; a swapped page is not. Does not use mincore: for a caller that neither owns
// the file nor may write to it by its mode, mincore reports every page as present, holes too, and a tenant that is root
// can bring that about at any moment.
bool AreResident(int arena, uint64_t offset, uint64_t size_bytes) {
  const uint64_t first = offset / wire::kPageBytes;
  const uint64_t pages = (offset + size_bytes - 1) / wire::kPageBytes - first + 1;
  const CachestatRange range{first * wire::kPageBytes, pages * wire::kPageBytes};
  Cachestat state{};
  return syscall(kCachestat, arena, &range, &state, 0) == 0 && state.cached_pages == pages;
}

}  // namespace

bool HostMemory::Populated(uint64_t address, uint64_t size_bytes) const {
  // SEEK_HOLE walks over all pages up to the next hole, however few are asked about.
  if (size_bytes != 0 && AreResident(arena.get(), address - range.begin, size_bytes)) return true;
  const auto offset = static_cast<off_t>(address - range.begin);
  const off_t hole = lseek(arena.get(), offset, SEEK_HOLE);
  return hole >= 0 && static_cast<uint64_t>(hole - offset) >= size_bytes;
}

// The caller has judged the range, and the file's size is sealed, so a short read is an error.
bool HostMemory::Read(uint64_t address, void* to, uint64_t size_bytes) const {
  auto* out = static_cast<uint8_t*>(to);
  auto offset = static_cast<off_t>(address - range.begin);
  while (size_bytes != 0) {
    const ssize_t n = pread(arena.get(), out, size_bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    out += n;
    offset += n;
    size_bytes -= static_cast<uint64_t>(n);
  }
  return true;
}

bool HostMemory::Write(uint64_t address, const void* from, uint64_t size_bytes) const {
  if (size_bytes != 0 && !Populated(address, size_bytes)) return false;
  const auto* in = static_cast<const uint8_t*>(from);
  auto offset = static_cast<off_t>(address - range.begin);
  while (size_bytes != 0) {
    const ssize_t n = pwrite(arena.get(), in, size_bytes, offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    in += n;
    offset += n;
    size_bytes -= static_cast<uint64_t>(n);
  }
  return true;
}

// Called on the ring thread when something was unpinned, which may be after the session's end;
// on_unpinned is then null.
PinnedMemory::PinnedMemory(SessionPort* port) : Part(port) {
  host_->on_unpinned = [this] { TryWaiting(); };
}

PinnedMemory::~PinnedMemory() {
  if (host_ != nullptr) host_->on_unpinned = nullptr;
}

void PinnedMemory::On(wire::Tag<wire::HostRegister>, const wire::HostRegister::Request& request,
                      const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  const uint64_t size_bytes = request.size_bytes;
  if (size_bytes == 0 || address % wire::kPageBytes != 0 || size_bytes % wire::kPageBytes != 0) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  if (!host_->range.Contains(address, size_bytes)) return Refuse(wire::Fatal::kBadRange);
  if (host_->registered.Overlaps(address, size_bytes)) return Refuse(wire::Fatal::kBadRange);
  // Once a tenant has requested managed memory, the last part of the range does not belong to the
  // arena: nothing of it is pinned as such.
  const channel::Range& managed = host_->managed;
  if (managed.size_bytes != 0 && address + size_bytes > managed.begin) {
    return Refuse(wire::Fatal::kBadRange);
  }
  TryHostRegister(CallerOf(record), address, size_bytes);
}

// Charges the limit first, then pins on a worker. `pinned` has the range from now on, `registered`
// only when the driver has it: until then no command may name it.
void PinnedMemory::TryHostRegister(Caller caller, uint64_t address, uint64_t size_bytes) {
  HostMemory& host = *host_;
  const uint64_t limit_bytes = order_.pinned_limit_bytes;
  const auto fits = [&](uint64_t held_bytes) {
    return size_bytes <= limit_bytes && held_bytes <= limit_bytes - size_bytes;
  };
  // CUDA still sees the old pages of what was pinned earlier and is not unpinned yet, and they still count.
  const bool leaves_room = !fits(host.pinned_bytes) && fits(host.pinned_bytes - host.retired_bytes);
  if (host.pinned.Overlaps(address, size_bytes) || leaves_room) {
    host_waiting_.push_back({caller, address, size_bytes});
    services_.quiet->ExpediteRetired();
    return;
  }
  if (!fits(host.pinned_bytes) || !host.pinned.Add(address, size_bytes)) {
    return Reply<wire::HostRegister>(caller, CUDA_ERROR_OUT_OF_MEMORY);
  }
  host.pinned_bytes += size_bytes;
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, keep = host_, address, size_bytes, &cuda = services_.device->cuda()] {
        // On the worker, directly before the driver pins. Pinning a hole would make a page that the
        // node pays for.
        *result = keep->Populated(address, size_bytes)
                      ? cuda.cuMemHostRegister_v2(
                            reinterpret_cast<void*>(address), size_bytes,
                            CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)
                      : CUDA_ERROR_INVALID_VALUE;
      },
      [this, result, caller, address, size_bytes] {
        services_.device->Judge(*result);
        if (*result == CUDA_SUCCESS) {
          (void)host_->registered.Add(address, size_bytes);
        } else {
          host_->pinned.Remove(address);
          host_->pinned_bytes -= size_bytes;
        }
        Reply<wire::HostRegister>(caller, *result);
      });
}

void PinnedMemory::TryWaiting() {
  std::deque<HostWaiting> waiting;
  waiting.swap(host_waiting_);
  for (const HostWaiting& one : waiting) TryHostRegister(one.caller, one.address, one.size_bytes);
}

// The answer means that no later command may name the range; the pages stay pinned until a quiet
// moment, because unpinning waits for the device.
void PinnedMemory::On(wire::Tag<wire::HostUnregister>, const wire::HostUnregister::Request& request,
                      const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  const uint64_t size_bytes = host_->registered.SizeAt(address);
  if (size_bytes == 0 || size_bytes != request.size_bytes ||
      host_->mapped_again.Overlaps(address, size_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  host_->registered.Remove(address);
  AfterEarlierWork(record.ticket, [this, caller = CallerOf(record), address, size_bytes] {
    RetireHost(address, size_bytes);
    Reply<wire::HostUnregister>(caller, CUDA_SUCCESS);
  });
}

// Counted as pinned until it is unpinned: a tenant that registers and unregisters in turn cannot
// pin more than its limit.
void PinnedMemory::RetireHost(uint64_t address, uint64_t size_bytes) {
  host_->registered.Remove(address);
  host_->retired_bytes += size_bytes;
  services_.quiet->Retire(
      [address, &cuda = services_.device->cuda()] {
        cuda.cuMemHostUnregister(reinterpret_cast<void*>(address));
      },
      // Keeps a reference to the mapping and drops it on the ring thread.
      [keep = host_, address, size_bytes] {
        keep->pinned.Remove(address);
        keep->pinned_bytes -= size_bytes;
        keep->retired_bytes -= size_bytes;
        if (keep->on_unpinned) keep->on_unpinned();
      });
}

bool PinnedMemory::RetirePiece() {
  for (size_t left = Chores::kPiece; left != 0; --left) {
    if (host_->registered.empty()) return true;
    const auto [address, size_bytes] = *host_->registered.begin();
    RetireHost(address, size_bytes);
  }
  return false;
}

}  // namespace gpuloom::executor
