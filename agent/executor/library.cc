// Libraries: modules that a tenant loads, and their global variables.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "agent/executor/session.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/fatbin_unpack.h"

namespace gpuloom::executor {
namespace {

// Larger than any image of CUDA's own libraries by far; bounds what one load can make us copy.
constexpr uint64_t kMaxImageBytes = 1u << 30;

// True when every length in the image lies inside it, so that the driver can be given it.
bool IsWhole(std::span<const uint8_t> bytes) {
  Image image;
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone) return false;
  if (image.kind != ImageKind::kFatbin) return true;
  FatbinReader members(image.bytes, image.size_bytes);
  FatbinMember member;
  while (members.Next(&member)) {
  }
  return members.error() == ImageError::kNone;
}

}  // namespace

struct Session::Loading {
  using Clock = std::chrono::steady_clock;
  std::vector<uint8_t> image;  // with a NUL behind it, which ends PTX
  ImageHash hash{};
  bool has_variables = true;
  bool prints = true;
  bool undecided = false;  // loaded, but the driver has not looked at the text yet
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  CUlibrary library = nullptr;
  LibraryRef loaded;  // ring thread: the same, once it is there
  uint32_t kernel_count = 0;
  char log[wire::kReplyPayloadBytes] = {};
  double copy_ms = 0;
  double hash_ms = 0;
  double look_ms = 0;
  double load_ms = 0;

  static double Since(Clock::time_point begin) {
    return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }
  std::span<const uint8_t> bytes() const { return {image.data(), image.size() - 1}; }

  // The tenant may write on while we look: only the copy counts.
  bool Copy(const HostMemory& host, uint64_t address, uint64_t size_bytes,
            const LibraryCache& cache) {
    const auto begin = Clock::now();
    image.resize(size_bytes + 1);
    if (!host.Read(address, image.data(), size_bytes)) return false;
    copy_ms = Since(begin);
    const auto copied = Clock::now();
    hash = cache.HashImage(bytes());
    hash_ms = Since(copied);
    return true;
  }

  CUresult LoadImage(const Driver& cuda, const void* data) {
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    return cuda.cuLibraryLoadData(&library, data, options, values, 2, nullptr, nullptr, 0);
  }

  // Loads PTX text by way of the driver's linker: a library that is loaded lazily shows what is
  // wrong with its PTX only when a kernel is asked for, and cuModuleLoadData must show it at once.
  // CUDA_ERROR_NOT_SUPPORTED: no PTX, or a driver without a linker, which then reads PTX itself.
  CUresult Compile(Device* device) {
    const Driver& cuda = device->cuda();
    Image found;
    if (FindImage(image.data(), bytes().size(), &found) != ImageError::kNone ||
        found.kind != ImageKind::kPtx || cuda.cuLinkCreate_v2 == nullptr) {
      return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
    CUlinkState link = nullptr;
    std::lock_guard lock(device->linker());
    CUresult linked = cuda.cuLinkCreate_v2(2, options, values, &link);
    if (linked != CUDA_SUCCESS) return linked;
    void* cubin = nullptr;
    size_t cubin_bytes = 0;
    linked = cuda.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, image.data(), image.size(), "ptx", 0,
                                   nullptr, nullptr);
    if (linked == CUDA_SUCCESS) linked = cuda.cuLinkComplete(link, &cubin, &cubin_bytes);
    if (linked == CUDA_SUCCESS) linked = LoadImage(cuda, cubin);
    cuda.cuLinkDestroy(link);  // and with it `cubin`, which LoadImage has copied
    if (linked != CUDA_ERROR_UNKNOWN) return linked;
    // It found no definition of something. For a module that may be no error: the driver shall say.
    undecided = true;
    return CUDA_ERROR_NOT_SUPPORTED;
  }

  // Asks for a kernel, whatever its name, so that the driver reads the text.
  void Decide(const Driver& cuda) {
    CUkernel kernel = nullptr;
    const CUresult found = cuda.cuLibraryGetKernel(&kernel, library, "-");
    if (found == CUDA_SUCCESS || found == CUDA_ERROR_NOT_FOUND) return;
    result = found;
  }

  void Load(Device* device) {
    const Driver& cuda = device->cuda();
    if (!IsWhole(bytes())) {
      snprintf(log, sizeof(log), "gpuloom: the image is cut short or is no fatbin, cubin or PTX");
      return;
    }
    const auto begin = Clock::now();
    has_variables = HasVariables(bytes());
    prints = MayPrint(bytes());
    look_ms = Since(begin);
    const auto looked = Clock::now();
    result = Compile(device);
    if (result == CUDA_ERROR_NOT_SUPPORTED) result = LoadImage(cuda, image.data());
    load_ms = Since(looked);
    if (result != CUDA_SUCCESS) return;
    unsigned count = 0;
    if (cuda.cuLibraryGetKernelCount != nullptr &&
        cuda.cuLibraryGetKernelCount(&count, library) == CUDA_SUCCESS) {
      kernel_count = count;
    }
  }
};

void Session::On(wire::Tag<wire::LibraryLoad>, const wire::LibraryLoad::Request& request,
                 const wire::Record& record) {
  const auto address = static_cast<uint64_t>(request.image);
  if (request.image_bytes == 0 || !host_->range.Contains(address, request.image_bytes)) {
    return Refuse(wire::Fatal::kBadRange);
  }
  if (libraries_.Add(request.library) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const Asker asker = AskerOf(record);
  if (request.image_bytes > kMaxImageBytes) {
    libraries_.Take(request.library);
    return Reply<wire::LibraryLoad>(asker, CUDA_ERROR_INVALID_IMAGE);
  }
  auto loading = std::make_shared<Loading>();
  modules_.Post(
      [loading, host = host_, cache = place_.libraries, address, bytes = request.image_bytes] {
        if (!loading->Copy(*host, address, bytes, *cache)) loading->image.clear();
      },
      [this, loading, asker, id = request.library] {
        if (state_ != State::kServing) return;
        if (loading->image.empty()) {
          libraries_.Take(id);
          return Reply<wire::LibraryLoad>(asker, CUDA_ERROR_INVALID_IMAGE);
        }
        if (LibraryRef known = place_.libraries->Find(loading->hash, now_ns_)) {
          const uint32_t count = known->kernel_count;
          Log(LogLevel::kDebug, "load: known bytes=%zu copy=%.2f hash=%.2f ms",
              loading->bytes().size(), loading->copy_ms, loading->hash_ms);
          libraries_.Find(id)->loaded = std::move(known);
          return Reply<wire::LibraryLoad>(asker, CUDA_SUCCESS, {count, 0});
        }
        LoadNew(asker, id, loading);
      });
}

void Session::LoadNew(Asker asker, wire::LibraryId id, std::shared_ptr<Loading> loading) {
  modules_.Post([loading, device = place_.device] { loading->Load(device); },
                [this, loading, asker, id] {
                  if (loading->library != nullptr) {
                    loading->loaded =
                        std::make_shared<LoadedLibrary>(place_.quiet, &place_.device->cuda());
                    loading->loaded->handle = loading->library;
                  }
                  if (!loading->undecided || loading->result != CUDA_SUCCESS) {
                    return AnswerLoad(asker, id, loading);
                  }
                  ++outstanding_;
                  place_.quiet->Need(
                      this, [loading, &cuda = place_.device->cuda()] { loading->Decide(cuda); },
                      [this, loading, asker, id] {
                        --outstanding_;
                        AnswerLoad(asker, id, loading);
                      });
                });
}

void Session::AnswerLoad(Asker asker, wire::LibraryId id, const std::shared_ptr<Loading>& loading) {
  place_.device->JudgeImage(loading->result);
  Log(LogLevel::kDebug,
      "load: new bytes=%zu copy=%.2f hash=%.2f look=%.2f load=%.2f ms variables=%d result=%d",
      loading->bytes().size(), loading->copy_ms, loading->hash_ms, loading->look_ms,
      loading->load_ms, loading->has_variables ? 1 : 0, static_cast<int>(loading->result));
  if (loading->result == CUDA_SUCCESS) {
    LoadedLibrary& loaded = *loading->loaded;
    loaded.kernel_count = loading->kernel_count;
    loaded.prints = loading->prints;
    if (!loading->has_variables) place_.libraries->Add(loading->hash, loading->loaded, now_ns_);
    libraries_.Find(id)->loaded = loading->loaded;
  } else {
    libraries_.Take(id);
  }
  const auto* log = reinterpret_cast<const uint8_t*>(loading->log);
  Reply<wire::LibraryLoad>(asker, loading->result, {loading->kernel_count, 0},
                           {log, strnlen(loading->log, sizeof(loading->log))});
}

Session::Library* Session::FindLibrary(wire::LibraryId id_untrusted) {
  Library* library = libraries_.Find(id_untrusted);
  if (library != nullptr && library->loaded != nullptr) return library;
  Refuse(wire::Fatal::kBadHandle);
  return nullptr;
}

void Session::UseLibrary(const LibraryRef& library, std::function<void()> work,
                         std::function<void()> done) {
  if (library->usable) return modules_.Post(std::move(work), std::move(done));
  ++outstanding_;
  place_.quiet->Need(this, std::move(work), [this, library, done = std::move(done)] {
    --outstanding_;
    library->usable = true;
    done();
  });
}

void Session::On(wire::Tag<wire::LibraryUnload>, const wire::LibraryUnload::Request& request,
                 const wire::Record& record) {
  if (FindLibrary(request.library) == nullptr) return;
  const std::unique_ptr<Library> library = libraries_.Take(request.library);
  for (const wire::KernelId kernel : library->kernels) kernels_.Take(kernel);
  for (const uint64_t global : library->globals) globals_.Remove(global);
  Reply<wire::LibraryUnload>(AskerOf(record), CUDA_SUCCESS);
}

void Session::AnswerNames(Asker asker, uint32_t offset_untrusted, const LoadedLibrary& library) {
  const std::string& names = library.names;
  const size_t from = std::min<size_t>(offset_untrusted, names.size());
  const size_t bytes = std::min<size_t>(names.size() - from, wire::kReplyPayloadBytes);
  Reply<wire::LibraryKernels>(asker, CUDA_SUCCESS,
                              {static_cast<uint32_t>(std::count(names.begin(), names.end(), '\0')),
                               static_cast<uint32_t>(names.size())},
                              {reinterpret_cast<const uint8_t*>(names.data()) + from, bytes});
}

void Session::On(wire::Tag<wire::LibraryKernels>, const wire::LibraryKernels::Request& request,
                 const wire::Record& record) {
  const Library* library = FindLibrary(request.library);
  if (library == nullptr) return;
  const Asker asker = AskerOf(record);
  if (library->loaded->has_names) {
    return AnswerNames(asker, request.offset_bytes, *library->loaded);
  }
  struct Listed {
    CUresult result = CUDA_SUCCESS;
    std::string names;
  };
  auto listed = std::make_shared<Listed>();
  UseLibrary(
      library->loaded,
      [listed, &cuda = place_.device->cuda(), handle = library->loaded->handle] {
        unsigned count = 0;
        listed->result = cuda.cuLibraryGetKernelCount(&count, handle);
        if (listed->result != CUDA_SUCCESS) return;
        std::vector<CUkernel> kernels(count);
        listed->result = cuda.cuLibraryEnumerateKernels(kernels.data(), count, handle);
        for (unsigned i = 0; i < count && listed->result == CUDA_SUCCESS; ++i) {
          const char* name = nullptr;
          listed->result = cuda.cuKernelGetName(&name, kernels[i]);
          if (listed->result == CUDA_SUCCESS) listed->names.append(name).push_back('\0');
        }
      },
      [this, listed, asker, loaded = library->loaded, offset = request.offset_bytes] {
        if (place_.device->JudgeImage(listed->result) != CUDA_SUCCESS) {
          return Reply<wire::LibraryKernels>(asker, listed->result);
        }
        loaded->names = std::move(listed->names);
        loaded->has_names = true;
        AnswerNames(asker, offset, *loaded);
      });
}

void Session::On(wire::Tag<wire::GlobalGet>, const wire::GlobalGet::Request& request,
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
      [found, &cuda = place_.device->cuda(), handle = library->loaded->handle] {
        found->result = cuda.cuLibraryGetGlobal(&found->address, &found->size_bytes, handle,
                                                found->name.c_str());
      },
      [this, found, asker = AskerOf(record), id = request.library] {
        place_.device->JudgeImage(found->result);
        Library* owner = libraries_.Find(id);
        if (owner == nullptr) found->result = CUDA_ERROR_INVALID_HANDLE;  // unloaded meanwhile
        if (found->result == CUDA_SUCCESS && globals_.Add(found->address, found->size_bytes)) {
          owner->globals.push_back(found->address);
        }
        Reply<wire::GlobalGet>(asker, found->result,
                               {wire::DevicePtr{found->address}, found->size_bytes});
      });
}

}  // namespace gpuloom::executor
