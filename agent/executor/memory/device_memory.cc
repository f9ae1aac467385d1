// SPDX-License-Identifier: Apache-2.0
// Device memory: asked of the scheduler in granules (grant.cc), cut by DeviceSpace, kept for a while
// when it is freed (KeptMemory), given back (give_back.cc).
#include "agent/executor/memory/device_memory.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "agent/executor/device/device.h"
#include "agent/executor/device/device_charge.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/session/scheduler_link.h"

namespace gpuloom::executor {
namespace {

// The part of the device range in which MemAlloc allocates; behind it lies the tenant's own. A
// scheduler that names none, or too much, gives it all.
uint64_t OwnBytes(const control::AddSession& order) {
  const uint64_t own = order.device_own_bytes;
  return own == 0 || own > order.device_range_bytes ? order.device_range_bytes
                                                    : own & ~(kGranuleBytes - 1);
}

}  // namespace

DeviceMemory::DeviceMemory(SessionPort* port)
    : Part(port),
      clears_(port),
      space_(order_.device_range_begin, OwnBytes(order_)),
      reservable_{order_.device_range_begin + OwnBytes(order_),
                  order_.device_range_bytes - OwnBytes(order_)} {}

// For a session that could not begin. Others have returned their addresses at their end, or still
// have something mapped there.
DeviceMemory::~DeviceMemory() {
  if (address_reserved_ && blocks_.empty() && mappings_.empty()) {
    services_.device->cuda().cuMemAddressFree(order_.device_range_begin, order_.device_range_bytes);
  }
}

bool DeviceMemory::Reserve(std::string* error) {
  const Driver& cuda = services_.device->cuda();
  CUdeviceptr reserved = 0;
  CUresult result = services_.device->Judge(cuda.cuMemAddressReserve(
      &reserved, order_.device_range_bytes, kGranuleBytes, order_.device_range_begin, 0));
  if (result == CUDA_SUCCESS && reserved != order_.device_range_begin) {
    // For the driver the address is only a hint, but a tenant's pointers must be exactly where the scheduler has
    // announced them.
    cuda.cuMemAddressFree(reserved, order_.device_range_bytes);
    result = CUDA_ERROR_INVALID_ADDRESS_SPACE;
  }
  if (result != CUDA_SUCCESS) {
    *error = std::string("cuda: reserving the session's device addresses: ") +
             services_.device->NameOf(result);
    return false;
  }
  address_reserved_ = true;
  return true;
}

bool DeviceMemory::OwnsDevice(uint64_t address_untrusted, uint64_t size_bytes_untrusted) const {
  return space_.Contains(address_untrusted, size_bytes_untrusted) ||
         accessible_.Contains(address_untrusted, size_bytes_untrusted) ||
         named_.Contains(address_untrusted, size_bytes_untrusted);
}

bool DeviceMemory::IsStillThere(uint64_t address, uint64_t size_bytes, bool to_write) const {
  if (space_.Holds(address, size_bytes) || named_.Contains(address, size_bytes) ||
      leaving_.Contains(address, size_bytes) || host_->pinned.Contains(address, size_bytes)) {
    return true;
  }
  const auto after = mappings_.upper_bound(address);
  if (after == mappings_.begin()) return false;
  const auto& [begin, mapping] = *std::prev(after);
  const uint64_t offset = address - begin;
  return (to_write ? mapping.access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                   : mapping.access != CU_MEM_ACCESS_FLAGS_PROT_NONE) &&
         offset < mapping.size_bytes && size_bytes <= mapping.size_bytes - offset;
}

void DeviceMemory::On(wire::Tag<wire::MemAlloc>, const wire::MemAlloc::Request& request,
                      const wire::Record& record) {
  const Caller caller = CallerOf(record);
  const uint64_t size_bytes = request.size_bytes;
  if (size_bytes == 0) return Reply<wire::MemAlloc>(caller, CUDA_ERROR_INVALID_VALUE);
  // Checked before anything is added to it: the number may be anything that 64 bits hold.
  if (size_bytes > order_.device_range_bytes) return RefuseAddresses(caller, size_bytes);
  if (size_bytes < kLargeBytes) {
    small_waiting_.emplace_back(caller, size_bytes);
    return ServeSmall(CUDA_SUCCESS);
  }
  const uint64_t span_bytes = RoundUpToGranule(size_bytes);
  if (KeptMemory::Block kept; kept_.TakeMapped(span_bytes, &kept)) {
    space_.AddLarge(kept.address, span_bytes, size_bytes);
    return Reply<wire::MemAlloc>(caller, CUDA_SUCCESS, {wire::DevicePtr{kept.address}});
  }
  // Nothing of that size was kept: the addresses are chosen here, the memory is the scheduler's.
  const uint64_t address = space_.ReserveSpan(span_bytes);
  if (address == 0) return RefuseAddresses(caller, size_bytes);
  MapNew(address, span_bytes, [this, caller, address, span_bytes, size_bytes](CUresult result) {
    if (result == CUDA_SUCCESS) {
      space_.AddLarge(address, span_bytes, size_bytes);
    } else {
      space_.ReleaseSpan(address, span_bytes);
    }
    Reply<wire::MemAlloc>(caller, result, {wire::DevicePtr{address}});
  });
}

// There are no addresses for it. If the quota would refuse it as well, that is left to the scheduler, which counts the
// refusal and reports it. A quota that has been raised meanwhile may have room, and gets the memory back.
void DeviceMemory::RefuseAddresses(Caller caller, uint64_t size_bytes) {
  if (size_bytes <= order_.memory_quota_bytes) {
    return Reply<wire::MemAlloc>(caller, CUDA_ERROR_OUT_OF_MEMORY);
  }
  Charge(size_bytes, [this, caller](CUresult, const DeviceChargeRef&) {
    Reply<wire::MemAlloc>(caller, CUDA_ERROR_OUT_OF_MEMORY);
  });
}

// Answers requests for small allocations while there is room, and obtains another slab for the
// rest.
void DeviceMemory::ServeSmall(CUresult failure) {
  while (!small_waiting_.empty()) {
    const auto [caller, size_bytes] = small_waiting_.front();
    const uint64_t address = space_.TakeSlice(size_bytes);
    if (address == 0 && failure == CUDA_SUCCESS) return AskForSlab();
    small_waiting_.pop_front();
    Reply<wire::MemAlloc>(caller, address != 0 ? CUDA_SUCCESS : failure,
                          {wire::DevicePtr{address}});
  }
}

// One slab at a time: whoever waits is served from it in turn, and asks for the next one if it is
// not enough.
void DeviceMemory::AskForSlab() {
  if (slab_coming_) return;
  if (KeptMemory::Block kept; kept_.TakeMapped(kGranuleBytes, &kept)) {
    space_.AddSlab(kept.address);
    return ServeSmall(CUDA_SUCCESS);
  }
  const uint64_t address = space_.ReserveSpan(kGranuleBytes);
  // With a failure ServeSmall answers all that wait and comes back here no more.
  if (address == 0) return ServeSmall(CUDA_ERROR_OUT_OF_MEMORY);
  slab_coming_ = true;
  MapNew(address, kGranuleBytes, [this, address](CUresult result) {
    slab_coming_ = false;
    if (result == CUDA_SUCCESS) {
      space_.AddSlab(address);
    } else {
      space_.ReleaseSpan(address, kGranuleBytes);
    }
    ServeSmall(result);
  });
}

void DeviceMemory::On(wire::Tag<wire::MemFree>, const wire::MemFree::Request& request,
                      const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  const Caller caller = CallerOf(record);
  // Retired at once: no later command may name it.
  if (!space_.Retire(address)) return Reply<wire::MemFree>(caller, CUDA_ERROR_INVALID_VALUE);
  FreeAllocation(address, record.ticket,
                 [this, caller] { Reply<wire::MemFree>(caller, CUDA_SUCCESS); });
}

void DeviceMemory::On(wire::Tag<wire::MemFreeLater>, const wire::MemFreeLater::Request& request,
                      const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  if (!space_.Retire(address)) return Refuse(wire::Fatal::kBadRange);
  FreeAllocation(address, record.ticket, [] {});
}

// Frees a retired allocation once the work before `ticket` is done. The tenant may know before us
// that it is done, and ask how much memory is free.
void DeviceMemory::FreeAllocation(uint64_t address, wire::Ticket ticket,
                                  std::function<void()> done) {
  const uint64_t span_bytes = space_.SpanBytes(address);
  freeing_bytes_ += span_bytes;
  AfterEarlierWork(ticket, [this, address, span_bytes, done = std::move(done)] {
    freeing_bytes_ -= span_bytes;
    const DeviceSpace::Span span = space_.Free(address);
    if (span.size_bytes == 0) return done();
    // Its span, or the slab that has become empty.
    const auto block = blocks_.find(span.address);
    if (MayKeep(*block->second) && kept_.Keep({block->second, span.address, now_ns()})) {
      return done();
    }
    PhysicalRef memory = std::move(block->second);
    blocks_.erase(block);
    Unmap(span.address, std::move(memory), [this, span, done] {
      space_.ReleaseSpan(span.address, span.size_bytes);
      done();
    });
  });
}

// Memory that is kept or on its way back counts as free: a tenant that has freed it must see that.
void DeviceMemory::On(wire::Tag<wire::MemInfo>, const wire::MemInfo::Request&,
                      const wire::Record& record) {
  if (returning_ != 0) {
    asking_memory_.push_back(CallerOf(record));
  } else {
    AnswerMemoryInfo(CallerOf(record));
  }
}

void DeviceMemory::AnswerMemoryInfo(Caller caller) {
  ++outstanding_;
  // The scheduler sees these bytes as charged when it reads the question, whatever happens
  // meanwhile.
  const uint64_t kept_bytes = kept_.size_bytes() + freeing_bytes_;
  services_.scheduler->Ask(
      control::MemoryInfoRequest{id()}, [this, caller, kept_bytes](control::Incoming* answer) {
        --outstanding_;
        control::MemoryInfo info;
        if (!answer->As(&info)) return Reply<wire::MemInfo>(caller, CUDA_ERROR_UNKNOWN);
        Reply<wire::MemInfo>(
            caller, CUDA_SUCCESS,
            {std::min(info.free_bytes + kept_bytes, info.total_bytes), info.total_bytes});
      });
}

}  // namespace gpuloom::executor
