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

// A granted piece on its way to the tenant's address. Its functions run on a worker.
struct Session::NewMemory {
  uint64_t memory_id = 0;
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  channel::UniqueFd fd;
  CUmemGenericAllocationHandle handle = 0;
  CUdeviceptr hidden = 0;  // where it lies while it is cleared
  CUresult result = CUDA_SUCCESS;

  CUresult MapAt(const Driver& cuda, CUdevice device, CUdeviceptr at) const {
    CUresult mapped = cuda.cuMemMap(at, size_bytes, 0, handle, 0);
    if (mapped != CUDA_SUCCESS) return mapped;
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    mapped = cuda.cuMemSetAccess(at, size_bytes, &access, 1);
    if (mapped != CUDA_SUCCESS) cuda.cuMemUnmap(at, size_bytes);
    return mapped;
  }

  void Import(const Driver& cuda, CUdevice device, bool must_clear) {
    void* imported = reinterpret_cast<void*>(static_cast<uintptr_t>(fd.get()));
    result = cuda.cuMemImportFromShareableHandle(&handle, imported,
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    fd.Reset();
    if (result != CUDA_SUCCESS) return;
    if (!must_clear) {
      result = MapAt(cuda, device, address);
    } else {
      // At an address that no tenant knows: one of its kernels may be running and look.
      result = cuda.cuMemAddressReserve(&hidden, size_bytes, kGranuleBytes, 0, 0);
      if (result == CUDA_SUCCESS) result = MapAt(cuda, device, hidden);
      if (result != CUDA_SUCCESS && hidden != 0) cuda.cuMemAddressFree(hidden, size_bytes);
    }
    if (result != CUDA_SUCCESS) cuda.cuMemRelease(handle);
  }

  // After it has been cleared, with the result of that.
  void Show(const Driver& cuda, CUdevice device) {
    cuda.cuMemUnmap(hidden, size_bytes);
    cuda.cuMemAddressFree(hidden, size_bytes);
    if (result == CUDA_SUCCESS) result = MapAt(cuda, device, address);
    if (result != CUDA_SUCCESS) cuda.cuMemRelease(handle);
  }
};

void Session::OnGranted(uint64_t address, uint64_t size_bytes, control::Incoming* answer,
                        std::function<void(CUresult)> done) {
  control::MemoryGranted granted;
  if (!answer->As(&granted) || granted.session_id != id()) return done(CUDA_ERROR_OUT_OF_MEMORY);
  if (granted.result != CUDA_SUCCESS) return done(static_cast<CUresult>(granted.result));
  if (answer->fd_count != 1 || granted.size_bytes != size_bytes) {
    place_.scheduler->Send(control::MemoryReturn{id(), granted.memory_id});
    return done(CUDA_ERROR_OUT_OF_MEMORY);
  }
  auto memory = std::make_shared<NewMemory>();
  memory->memory_id = granted.memory_id;
  memory->address = address;
  memory->size_bytes = size_bytes;
  memory->fd = std::move(answer->fds[0]);
  const Driver& cuda = place_.device->cuda();
  const CUdevice device = place_.device->device();
  const bool must_clear = granted.must_clear != 0;
  memory_.Post([memory, &cuda, device, must_clear] { memory->Import(cuda, device, must_clear); },
               [this, memory, &cuda, device, must_clear, done = std::move(done)] {
                 if (!must_clear || memory->result != CUDA_SUCCESS) return Keep(*memory, done);
                 place_.internal->Clear(
                     memory->hidden, memory->size_bytes,
                     [this, memory, &cuda, device, done](CUresult cleared) {
                       memory->result = cleared;
                       memory_.Post([memory, &cuda, device] { memory->Show(cuda, device); },
                                    [this, memory, done] { Keep(*memory, done); });
                     });
               });
}

void Session::Keep(const NewMemory& memory, const std::function<void(CUresult)>& done) {
  if (place_.device->Judge(memory.result) != CUDA_SUCCESS) {
    Log(LogLevel::kError, "cuda: mapping memory for session %llu (%s): %s",
        static_cast<unsigned long long>(id()), label(), place_.device->NameOf(memory.result));
    place_.scheduler->Send(control::MemoryReturn{id(), memory.memory_id});
    return done(memory.result);
  }
  blocks_[memory.address] = {memory.memory_id, memory.handle, memory.size_bytes};
  done(CUDA_SUCCESS);
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
