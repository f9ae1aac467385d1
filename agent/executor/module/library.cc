// SPDX-License-Identifier: Apache-2.0
// Libraries that are loaded: their kernels' names, their global variables, their end. See
// library_load.cc for their beginning.
#include <algorithm>
#include <cstring>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/memory/device_memory.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/module/libraries.h"

namespace gpuloom::executor {
namespace {

// The driver compiles PTX when any kernel is requested, whatever its name.
void CompileText(const Driver& cuda, CUlibrary library) {
  CUkernel none = nullptr;
  (void)cuda.cuLibraryGetKernel(&none, library, "-");
}

// A library's names in the making, with what they take from the session's budget. Charged before
// each is added: names are the image's, and may be as many and as long as it likes.
struct Listed {
  explicit Listed(std::shared_ptr<SessionBudget> budget)
      : charge(std::make_shared<HostCharge>(std::move(budget))) {}

  void Add(std::string_view name) {
    // Twice, because a growing string copies itself.
    if (!charge->Add(2 * (name.size() + 1))) {
      result = CUDA_ERROR_OUT_OF_MEMORY;
      return;
    }
    names.append(name);
    names.push_back('\0');
    ++count;
  }

  std::shared_ptr<HostCharge> charge;
  CUresult result = CUDA_SUCCESS;
  std::string names;
  uint32_t count = 0;
};

// For drivers before CUDA 12.4.
void ListFromImage(const ImageRef& image, Listed* listed) {
  if (image == nullptr || image->layouts == nullptr) {
    listed->result = CUDA_ERROR_NOT_SUPPORTED;
    return;
  }
  for (const std::string_view name : image->layouts->Names()) {
    if (listed->result == CUDA_SUCCESS) listed->Add(name);
  }
}

}  // namespace

Library* Libraries::FindLibrary(wire::LibraryId id_untrusted) {
  Library* library = libraries_.Find(id_untrusted);
  // One that is being loaded, or waits for a place for its managed variables, is refused.
  if (library != nullptr && library->loaded != nullptr) return library;
  Refuse(wire::Fatal::kBadHandle);
  return nullptr;
}

Library* Libraries::FindLoaded(wire::LibraryId id, const LibraryRef& loaded) {
  Library* library = libraries_.Find(id);
  return library != nullptr && library->loaded == loaded ? library : nullptr;
}

// Two steps as in KernelGet: PTX that the driver still has to compile is compiled on a worker
// first. All sessions wait during a quiet moment, so nothing may be compiled in one.
void Libraries::UseLibrary(const LibraryRef& library, Lookup work, std::function<void()> done) {
  // Both paths hold the library: unloading it waits for the device, but not for a worker.
  if (library->usable) {
    return modules_.Post([work = std::move(work)] { (void)work(); },
                         [library, done = std::move(done)] { done(); });
  }
  modules_.Post(
      [&cuda = services_.device->cuda(), handle = library->handle] { CompileText(cuda, handle); },
      [this, library, work = std::move(work), done = std::move(done)] {
        if (!serving()) return;
        // Another look-up may have put it on the device meanwhile.
        if (library->usable) return UseLibrary(library, work, done);
        LoadCode(library, work, done);
      });
}

void Libraries::LoadCode(const LibraryRef& library, Lookup work, std::function<void()> done) {
  auto loaded = std::make_shared<bool>(false);
  ++outstanding_;
  auto load = [loaded, work = std::move(work)] { *loaded = work(); };
  auto then = [this, library, loaded, done = std::move(done)] {
    --outstanding_;
    // A look-up that found nothing may not have put the library on the device: the next one
    // waits again.
    library->usable |= *loaded;
    done();
  };
  // The driver itself waits for the device only for a library's first.
  if (!library->usable) return services_.quiet->Need(owner(), std::move(load), std::move(then));
  services_.quiet->NeedOrBesideOwn(owner(), std::move(load), std::move(then));
}

// The id and what was looked up in the library go at once, in pieces; the library itself with its
// last user (LoadedLibrary's destructor). Answered without waiting for that: nothing tells the
// program when the driver has unloaded it.
void Libraries::On(wire::Tag<wire::LibraryUnload>, const wire::LibraryUnload::Request& request,
                   const wire::Record& record) {
  const Library* found = libraries_.Find(request.library);
  const bool unplaced = found != nullptr && found->placing != nullptr;
  if (!unplaced && FindLibrary(request.library) == nullptr) return;
  chores_.Do([this, library = std::shared_ptr<Library>(libraries_.Take(request.library)),
              caller = CallerOf(record), ticket = record.ticket,
              globals = std::vector<uint64_t>()]() mutable {
    size_t left = Chores::kPiece;
    const auto forget = [&left](auto* names, auto drop) {
      for (; left != 0 && !names->empty(); --left, names->pop_back()) drop(names->back());
      return names->empty();
    };
    if (!forget(&library->kernels, [this](wire::KernelId id) { kernels_.Take(id); }) ||
        !forget(&library->globals,
                [&](uint64_t begin) {
                  device_memory_->RetireNamed(begin);
                  globals.push_back(begin);
                }) ||
        !forget(&library->references, [this](wire::ReferenceId id) { references_.Take(id); })) {
      return false;
    }
    // Kernels hold their library; copies that name its variables do not, and may still wait here,
    // for example behind a host function.
    if (!globals.empty()) {
      AfterEarlierWork(ticket, [this, held = library->loaded, globals = std::move(globals)] {
        chores_.Do([this, held, globals]() mutable {
          size_t piece = Chores::kPiece;
          for (; piece != 0 && !globals.empty(); --piece, globals.pop_back()) {
            device_memory_->ForgetNamed(globals.back());
          }
          return globals.empty();
        });
      });
    }
    device_memory_->NoteUnloading();
    Reply<wire::LibraryUnload>(caller, CUDA_SUCCESS);
    return true;
  });
}

// From an offset on, as much as an answer holds: the shim asks until it has all.
void Libraries::AnswerNames(Caller caller, uint32_t offset_untrusted,
                            const LoadedLibrary& library) {
  const std::string& names = library.names;
  const size_t from = std::min<size_t>(offset_untrusted, names.size());
  const size_t bytes = std::min<size_t>(names.size() - from, wire::kReplyPayloadBytes);
  Reply<wire::LibraryKernels>(caller, CUDA_SUCCESS,
                              {library.name_count, static_cast<uint32_t>(names.size())},
                              {reinterpret_cast<const uint8_t*>(names.data()) + from, bytes});
}

void Libraries::On(wire::Tag<wire::LibraryKernels>, const wire::LibraryKernels::Request& request,
                   const wire::Record& record) {
  const Library* library = FindLibrary(request.library);
  if (library == nullptr) return;
  const Caller caller = CallerOf(record);
  if (library->loaded->has_names) {
    return AnswerNames(caller, request.offset_bytes, *library->loaded);
  }
  auto listed = std::make_shared<Listed>(host_->budget);
  // Neither waits for anything nor puts anything on the device (measured).
  modules_.Post(
      [listed, &cuda = services_.device->cuda(), handle = library->loaded->handle,
       image = library->loaded->image] {
        CompileText(cuda, handle);
        if (cuda.cuLibraryGetKernelCount == nullptr) return ListFromImage(image, listed.get());
        unsigned count = 0;
        listed->result = cuda.cuLibraryGetKernelCount(&count, handle);
        if (listed->result != CUDA_SUCCESS || count == 0) return;
        // Names may overlap in the image, so together they can be longer than it.
        if (!listed->charge->Add(count * sizeof(CUkernel))) {
          listed->result = CUDA_ERROR_OUT_OF_MEMORY;
          return;
        }
        std::vector<CUkernel> kernels(count);
        listed->result = cuda.cuLibraryEnumerateKernels(kernels.data(), count, handle);
        for (unsigned i = 0; i < count && listed->result == CUDA_SUCCESS; ++i) {
          const char* name = nullptr;
          listed->result = cuda.cuKernelGetName(&name, kernels[i]);
          if (listed->result == CUDA_SUCCESS) listed->Add(name);
        }
      },
      [this, listed, caller, loaded = library->loaded, offset = request.offset_bytes] {
        // Also ends a list that memory ran out for: a list that is not complete is useless.
        if (services_.device->JudgeImage(listed->result) != CUDA_SUCCESS) {
          return Reply<wire::LibraryKernels>(caller, listed->result);
        }
        loaded->names = std::move(listed->names);
        loaded->name_count = listed->count;
        loaded->names_charge = std::move(listed->charge);
        loaded->has_names = true;
        AnswerNames(caller, offset, *loaded);
      });
}

// The variable's range is one that the tenant may name from now on, until the library is unloaded.
void Libraries::On(wire::Tag<wire::GlobalGet>, const wire::GlobalGet::Request& request,
                   const wire::Record& record) {
  const Library* library = FindLibrary(request.library);
  if (library == nullptr) return;
  struct Found {
    std::string name;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    CUdeviceptr address = 0;
    size_t size_bytes = 0;
  };
  auto found = std::make_shared<Found>();
  found->name.assign(record.payload.begin(), record.payload.end());
  UseLibrary(
      library->loaded,
      [found, &cuda = services_.device->cuda(), handle = library->loaded->handle] {
        found->result = cuda.cuLibraryGetGlobal(&found->address, &found->size_bytes, handle,
                                                found->name.c_str());
        // Looking up a name that does not exist also loads it onto the device (measured).
        return found->result == CUDA_SUCCESS || found->result == CUDA_ERROR_NOT_FOUND;
      },
      [this, found, caller = CallerOf(record), id = request.library, loaded = library->loaded] {
        services_.device->JudgeImage(found->result);
        Library* owner = FindLoaded(id, loaded);
        if (owner == nullptr) found->result = CUDA_ERROR_INVALID_HANDLE;
        if (found->result == CUDA_SUCCESS &&
            device_memory_->AddNamed(found->address, found->size_bytes)) {
          owner->globals.push_back(found->address);
        }
        Reply<wire::GlobalGet>(caller, found->result,
                               {wire::DevicePtr{found->address}, found->size_bytes});
      });
}

}  // namespace gpuloom::executor
