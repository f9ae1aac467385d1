// Device memory: asked of the scheduler in granules, mapped here, cut by DeviceSpace.
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

// Puts new memory behind reserved addresses. `done` is called exactly once, on the ring thread.
void Session::MapNew(uint64_t address, uint64_t size_bytes, std::function<void(CUresult)> done) {
  ++outstanding_;
  place_.scheduler->Ask(
      control::MemoryRequest{id(), size_bytes},
      [this, address, size_bytes, done = std::move(done)](control::Incoming* answer) {
        OnGranted(address, size_bytes, answer, [this, done](CUresult result) {
          --outstanding_;
          done(result);
        });
      });
}

void Session::OnGranted(uint64_t address, uint64_t size_bytes, control::Incoming* answer,
                        std::function<void(CUresult)> done) {
  control::MemoryGranted granted;
  if (!answer->As(&granted) || granted.session_id != id()) {
    return done(CUDA_ERROR_OUT_OF_MEMORY);
  }
  if (granted.result != CUDA_SUCCESS) return done(static_cast<CUresult>(granted.result));
  if (answer->fd_count != 1 || granted.size_bytes != size_bytes) {
    place_.scheduler->Send(control::MemoryReturn{id(), granted.memory_id});
    return done(CUDA_ERROR_OUT_OF_MEMORY);
  }
  struct Mapping {
    channel::UniqueFd fd;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = CUDA_SUCCESS;
  };
  auto mapping = std::make_shared<Mapping>();
  mapping->fd = std::move(answer->fds[0]);
  memory_.Post(
      [mapping, address, size_bytes, &cuda = place_.device->cuda(),
       device = place_.device->device()] {
        void* fd = reinterpret_cast<void*>(static_cast<uintptr_t>(mapping->fd.get()));
        mapping->result = cuda.cuMemImportFromShareableHandle(
            &mapping->handle, fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        mapping->fd.Reset();
        if (mapping->result != CUDA_SUCCESS) return;
        mapping->result = cuda.cuMemMap(address, size_bytes, 0, mapping->handle, 0);
        if (mapping->result == CUDA_SUCCESS) {
          CUmemAccessDesc access = {};
          access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
          access.location.id = device;
          access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
          mapping->result = cuda.cuMemSetAccess(address, size_bytes, &access, 1);
          if (mapping->result != CUDA_SUCCESS) cuda.cuMemUnmap(address, size_bytes);
        }
        if (mapping->result != CUDA_SUCCESS) cuda.cuMemRelease(mapping->handle);
      },
      [this, mapping, address, size_bytes, granted, done = std::move(done)] {
        place_.device->Judge(mapping->result);
        if (mapping->result != CUDA_SUCCESS) {
          Log(LogLevel::kError, "cuda: mapping memory for session %llu (%s): %s",
              static_cast<unsigned long long>(id()), label(),
              place_.device->NameOf(mapping->result));
          place_.scheduler->Send(control::MemoryReturn{id(), granted.memory_id});
          return done(mapping->result);
        }
        blocks_[address] = {granted.memory_id, mapping->handle, size_bytes};
        if (granted.must_clear == 0) return done(CUDA_SUCCESS);
        place_.internal->Clear(address, size_bytes,
                               [this, address, size_bytes, done](CUresult result) {
                                 if (result == CUDA_SUCCESS) return done(CUDA_SUCCESS);
                                 Unmap({address, size_bytes}, [done, result] { done(result); });
                               });
      });
}

void Session::On(wire::Tag<wire::MemFree>, const wire::MemFree::Request& request,
                 const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.address);
  const Asker asker = AskerOf(record);
  // Retired at once: no later command may name it.
  if (!space_.Retire(address)) return Reply<wire::MemFree>(asker, CUDA_ERROR_INVALID_VALUE);
  AfterEarlierWork(record.ticket, [this, asker, address] {
    const DeviceSpace::Span span = space_.Free(address);
    if (span.size_bytes == 0) return Reply<wire::MemFree>(asker, CUDA_SUCCESS);
    Unmap(span, [this, asker, span] {
      space_.ReleaseSpan(span.address, span.size_bytes);
      Reply<wire::MemFree>(asker, CUDA_SUCCESS);
    });
  });
}

// Takes the memory away and gives it back; `done` when the scheduler has it.
void Session::Unmap(DeviceSpace::Span span, std::function<void()> done) {
  const Block block = blocks_.at(span.address);
  blocks_.erase(span.address);
  ++outstanding_;
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post(
      [result, span, handle = block.handle, &cuda = place_.device->cuda()] {
        *result = cuda.cuMemUnmap(span.address, span.size_bytes);
        if (*result == CUDA_SUCCESS) *result = cuda.cuMemRelease(handle);
      },
      [this, result, block, done = std::move(done)] {
        place_.device->Judge(*result);
        if (*result != CUDA_SUCCESS) {
          Log(LogLevel::kError, "cuda: unmapping memory of session %llu (%s): %s",
              static_cast<unsigned long long>(id()), label(), place_.device->NameOf(*result));
        }
        place_.scheduler->Ask(control::MemoryReturn{id(), block.memory_id},
                              [this, done](control::Incoming*) {
                                --outstanding_;
                                done();
                              });
      });
}

void Session::On(wire::Tag<wire::MemInfo>, const wire::MemInfo::Request&,
                 const wire::Record& record) {
  ++outstanding_;
  place_.scheduler->Ask(
      control::MemoryInfoRequest{id()}, [this, asker = AskerOf(record)](control::Incoming* answer) {
        --outstanding_;
        control::MemoryInfo info;
        if (!answer->As(&info)) {
          return Reply<wire::MemInfo>(asker, CUDA_ERROR_UNKNOWN);
        }
        Reply<wire::MemInfo>(asker, CUDA_SUCCESS, {info.free_bytes, info.total_bytes});
      });
}

}  // namespace gpuloom::executor
