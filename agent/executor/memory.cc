// Device memory: asked of the scheduler in granules (grant.cc), cut by DeviceSpace, kept for a while
// when it is freed (KeptMemory), given back (give_back.cc).
#include <algorithm>

#include "agent/executor/session.h"

namespace gpuloom::executor {

void Session::On(wire::Tag<wire::MemAlloc>, const wire::MemAlloc::Request& request,
                 const wire::Record& record) {
  const Asker asker = AskerOf(record);
  const uint64_t size_bytes = request.size_bytes;
  if (size_bytes == 0) return Reply<wire::MemAlloc>(asker, CUDA_ERROR_INVALID_VALUE);
  if (size_bytes > order_.device_range_bytes) {
    return Reply<wire::MemAlloc>(asker, CUDA_ERROR_OUT_OF_MEMORY);
  }
  if (size_bytes < kLargeBytes) {
    small_waiting_.emplace_back(asker, size_bytes);
    return ServeSmall(CUDA_SUCCESS);
  }
  const uint64_t span_bytes = RoundUpToGranule(size_bytes);
  if (KeptMemory::Block kept; kept_.TakeMapped(span_bytes, &kept)) {
    space_.AddLarge(kept.address, span_bytes, size_bytes);
    return Reply<wire::MemAlloc>(asker, CUDA_SUCCESS, {wire::DevicePtr{kept.address}});
  }
  const uint64_t address = space_.ReserveSpan(span_bytes);
  if (address == 0) return Reply<wire::MemAlloc>(asker, CUDA_ERROR_OUT_OF_MEMORY);
  MapNew(address, span_bytes, [this, asker, address, span_bytes, size_bytes](CUresult result) {
    if (result == CUDA_SUCCESS) {
      space_.AddLarge(address, span_bytes, size_bytes);
    } else {
      space_.ReleaseSpan(address, span_bytes);
    }
    Reply<wire::MemAlloc>(asker, result, {wire::DevicePtr{address}});
  });
}

// Answers who waits for a slice, as far as there is room, and gets a slab for the rest.
void Session::ServeSmall(CUresult failure) {
  while (!small_waiting_.empty()) {
    const auto [asker, size_bytes] = small_waiting_.front();
    const uint64_t address = space_.TakeSlice(size_bytes);
    if (address == 0 && failure == CUDA_SUCCESS) return AskForSlab();
    small_waiting_.pop_front();
    Reply<wire::MemAlloc>(asker, address != 0 ? CUDA_SUCCESS : failure, {wire::DevicePtr{address}});
  }
}

void Session::AskForSlab() {
  if (slab_coming_) return;
  if (KeptMemory::Block kept; kept_.TakeMapped(kGranuleBytes, &kept)) {
    space_.AddSlab(kept.address);
    return ServeSmall(CUDA_SUCCESS);
  }
  const uint64_t address = space_.ReserveSpan(kGranuleBytes);
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

void Session::On(wire::Tag<wire::MemFree>, const wire::MemFree::Request& request,
                 const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  const Asker asker = AskerOf(record);
  // Retired at once: no later command may name it.
  if (!space_.Retire(address)) return Reply<wire::MemFree>(asker, CUDA_ERROR_INVALID_VALUE);
  FreeAllocation(address, record.ticket,
                 [this, asker] { Reply<wire::MemFree>(asker, CUDA_SUCCESS); });
}

void Session::On(wire::Tag<wire::MemFreeLater>, const wire::MemFreeLater::Request& request,
                 const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  if (!space_.Retire(address)) return Refuse(wire::Fatal::kBadRange);
  FreeAllocation(address, record.ticket, [] {});
}

// A retired allocation, once the work before `ticket` is done. The tenant may know that, and ask what
// is free, before we have seen it.
void Session::FreeAllocation(uint64_t address, wire::Ticket ticket, std::function<void()> done) {
  const uint64_t span_bytes = space_.SpanBytes(address);
  freeing_bytes_ += span_bytes;
  AfterEarlierWork(ticket, [this, address, span_bytes, done = std::move(done)] {
    freeing_bytes_ -= span_bytes;
    const DeviceSpace::Span span = space_.Free(address);
    if (span.size_bytes == 0) return done();
    const auto block = blocks_.find(span.address);
    if (MayKeep(*block->second) && kept_.Keep({block->second, span.address, now_ns_})) {
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

// What is kept, and what is on its way back, already counts: a tenant that has freed sees it.
void Session::On(wire::Tag<wire::MemInfo>, const wire::MemInfo::Request&,
                 const wire::Record& record) {
  if (returning_ != 0) {
    asking_memory_.push_back(AskerOf(record));
  } else {
    TellMemory(AskerOf(record));
  }
}

void Session::TellMemory(Asker asker) {
  ++outstanding_;
  // Charged when the scheduler reads the question, whatever becomes of it meanwhile.
  const uint64_t kept_bytes = kept_.size_bytes() + freeing_bytes_;
  place_.scheduler->Ask(
      control::MemoryInfoRequest{id()}, [this, asker, kept_bytes](control::Incoming* answer) {
        --outstanding_;
        control::MemoryInfo info;
        if (!answer->As(&info)) return Reply<wire::MemInfo>(asker, CUDA_ERROR_UNKNOWN);
        Reply<wire::MemInfo>(
            asker, CUDA_SUCCESS,
            {std::min(info.free_bytes + kept_bytes, info.total_bytes), info.total_bytes});
      });
}

}  // namespace gpuloom::executor
