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
  Obtain(address, size_bytes,
         [this, address, done = std::move(done)](CUresult result, const PhysicalRef& memory) {
           if (result == CUDA_SUCCESS) blocks_[address] = memory;
           done(result);
         });
}

// New memory, held once; mapped at `address` unless that is 0. `done` is called exactly once, on
// the ring thread.
void Session::Obtain(uint64_t address, uint64_t size_bytes, OnMemory done) {
  ++outstanding_;
  place_.scheduler->Ask(
      control::MemoryRequest{id(), size_bytes},
      [this, address, size_bytes, done = std::move(done)](control::Incoming* answer) {
        OnGranted(address, size_bytes, answer,
                  [this, done](CUresult result, const PhysicalRef& memory) {
                    --outstanding_;
                    done(result, memory);
                  });
      });
}

// A granted piece on its way to the tenant's address. Its functions run on a worker.
struct Session::NewMemory {
  uint64_t memory_id = 0;
  uint64_t address = 0;  // 0: it is not mapped yet
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
      if (address != 0) result = MapAt(cuda, device, address);
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
    if (result == CUDA_SUCCESS && address != 0) result = MapAt(cuda, device, address);
    if (result != CUDA_SUCCESS) cuda.cuMemRelease(handle);
  }
};

void Session::OnGranted(uint64_t address, uint64_t size_bytes, control::Incoming* answer,
                        OnMemory done) {
  control::MemoryGranted granted;
  if (!answer->As(&granted) || granted.session_id != id()) {
    return done(CUDA_ERROR_OUT_OF_MEMORY, nullptr);
  }
  if (granted.result != CUDA_SUCCESS) return done(static_cast<CUresult>(granted.result), nullptr);
  if (answer->fd_count != 1 || granted.size_bytes != size_bytes) {
    place_.scheduler->Send(control::MemoryReturn{id(), granted.memory_id});
    return done(CUDA_ERROR_OUT_OF_MEMORY, nullptr);
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

void Session::Keep(const NewMemory& memory, const OnMemory& done) {
  if (place_.device->Judge(memory.result) != CUDA_SUCCESS) {
    Log(LogLevel::kError, "cuda: mapping memory for session %llu (%s): %s",
        static_cast<unsigned long long>(id()), label(), place_.device->NameOf(memory.result));
    place_.scheduler->Send(control::MemoryReturn{id(), memory.memory_id});
    return done(memory.result, nullptr);
  }
  auto physical = std::make_shared<Physical>();
  physical->charged_session = id();
  physical->memory_id = memory.memory_id;
  physical->handle = memory.handle;
  physical->size_bytes = memory.size_bytes;
  Hold(physical);
  done(CUDA_SUCCESS, physical);
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

// A retired allocation, once the work before `ticket` is done.
void Session::FreeAllocation(uint64_t address, wire::Ticket ticket, std::function<void()> done) {
  AfterEarlierWork(ticket, [this, address, done = std::move(done)] {
    const DeviceSpace::Span span = space_.Free(address);
    if (span.size_bytes == 0) return done();
    const auto block = blocks_.find(span.address);
    PhysicalRef memory = std::move(block->second);
    blocks_.erase(block);
    Unmap(span.address, std::move(memory), [this, span, done] {
      space_.ReleaseSpan(span.address, span.size_bytes);
      done();
    });
  });
}

// Takes the memory away and lets go of it; `done` when the scheduler has what nobody holds.
void Session::Unmap(uint64_t address, PhysicalRef memory, std::function<void()> done) {
  ++outstanding_;
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  memory_.Post([result, address, size_bytes = memory->size_bytes,
                &cuda = place_.device->cuda()] { *result = cuda.cuMemUnmap(address, size_bytes); },
               [this, result, memory, done = std::move(done)] {
                 place_.device->Judge(*result);
                 if (*result != CUDA_SUCCESS) {
                   Log(LogLevel::kError, "cuda: unmapping memory of session %llu (%s): %s",
                       static_cast<unsigned long long>(id()), label(),
                       place_.device->NameOf(*result));
                 }
                 Drop(memory, [this, done] {
                   --outstanding_;
                   done();
                 });
               });
}

// True when nobody holds it any more.
bool Session::LetGo(const PhysicalRef& memory) {
  const auto holder = memory->holders.find(id());
  if (holder != memory->holders.end() && --holder->second == 0) memory->holders.erase(holder);
  if (!memory->holders.empty()) return false;
  place_.shared->Forget(*memory);
  return true;
}

// One hold less. `done` when the scheduler has it, if it was the last.
void Session::Drop(const PhysicalRef& memory, std::function<void()> done) {
  if (!LetGo(memory)) return done();
  ++outstanding_;
  memory_.Post(
      [handle = memory->handle, &cuda = place_.device->cuda()] { cuda.cuMemRelease(handle); },
      [this, memory, done = std::move(done)] {
        place_.scheduler->Ask(control::MemoryReturn{memory->charged_session, memory->memory_id},
                              [this, done](control::Incoming*) {
                                --outstanding_;
                                done();
                              });
      });
}

// This session ends: what it is charged with and others still hold.
void Session::LeaveToOthers(const PhysicalRef& memory) {
  if (memory->charged_session != id() || memory->holders.empty()) return;
  const uint64_t heir = memory->holders.begin()->first;
  place_.scheduler->Send(control::MemoryTransfer{id(), heir, memory->memory_id});
  memory->charged_session = heir;
}

// What is on its way back already counts: a tenant that has freed sees it.
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
  place_.scheduler->Ask(control::MemoryInfoRequest{id()}, [this, asker](control::Incoming* answer) {
    --outstanding_;
    control::MemoryInfo info;
    if (!answer->As(&info)) {
      return Reply<wire::MemInfo>(asker, CUDA_ERROR_UNKNOWN);
    }
    Reply<wire::MemInfo>(asker, CUDA_SUCCESS, {info.free_bytes, info.total_bytes});
  });
}

}  // namespace gpuloom::executor
