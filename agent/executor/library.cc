// Libraries: modules that a tenant loads, and their global variables.
#include <cstring>

#include "agent/executor/session.h"
#include "proto/cuda/fatbin.h"

namespace gpuloom::executor {
namespace {

// Larger than any image of CUDA's own libraries by far; bounds what one load can make us copy.
constexpr uint64_t kMaxImageBytes = 1u << 30;

struct Loading {
  CUresult result = CUDA_ERROR_INVALID_IMAGE;
  CUlibrary library = nullptr;
  uint32_t kernel_count = 0;
  char log[wire::kReplyPayloadBytes] = {};
};

// True when every length in the image lies inside it, so that the driver can be given it.
bool IsWhole(const std::vector<uint8_t>& bytes, size_t size_bytes) {
  Image image;
  if (FindImage(bytes.data(), size_bytes, &image) != ImageError::kNone) return false;
  if (image.kind != ImageKind::kFatbin) return true;
  FatbinReader members(image.bytes, image.size_bytes);
  FatbinMember member;
  while (members.Next(&member)) {
  }
  return members.error() == ImageError::kNone;
}

void Load(const Driver& cuda, const HostMemory& host, uint64_t address, uint64_t size_bytes,
          Loading* loading) {
  // The tenant may write on while we look: only the copy counts. The NUL ends PTX.
  std::vector<uint8_t> image(size_bytes + 1);
  if (!host.Read(address, image.data(), size_bytes)) return;
  if (!IsWhole(image, size_bytes)) {
    snprintf(loading->log, sizeof(loading->log),
             "gpuloom: the image is cut short or is no fatbin, cubin or PTX");
    return;
  }
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {loading->log, reinterpret_cast<void*>(sizeof(loading->log))};
  loading->result = cuda.cuLibraryLoadData(&loading->library, image.data(), options, values, 2,
                                           nullptr, nullptr, 0);
  if (loading->result != CUDA_SUCCESS) return;
  unsigned count = 0;
  if (cuda.cuLibraryGetKernelCount != nullptr &&
      cuda.cuLibraryGetKernelCount(&count, loading->library) == CUDA_SUCCESS) {
    loading->kernel_count = count;
  }
}

}  // namespace

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
  modules_.Post([loading, host = host_, &cuda = place_.device->cuda(), address,
                 bytes = request.image_bytes] { Load(cuda, *host, address, bytes, loading.get()); },
                [this, loading, asker, id = request.library] {
                  place_.device->Judge(loading->result);
                  if (loading->result == CUDA_SUCCESS) {
                    libraries_.Find(id)->cuda = loading->library;
                  } else {
                    libraries_.Take(id);
                  }
                  const auto* log = reinterpret_cast<const uint8_t*>(loading->log);
                  Reply<wire::LibraryLoad>(asker, loading->result, {loading->kernel_count, 0},
                                           {log, strnlen(loading->log, sizeof(loading->log))});
                });
}

void Session::On(wire::Tag<wire::LibraryUnload>, const wire::LibraryUnload::Request& request,
                 const wire::Record& record) {
  Library* found = libraries_.Find(request.library);
  if (found == nullptr || found->cuda == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const std::unique_ptr<Library> library = libraries_.Take(request.library);
  for (const wire::KernelId kernel : library->kernels) kernels_.Take(kernel);
  for (const uint64_t global : library->globals) globals_.Remove(global);
  place_.graveyard->Bury(
      [&cuda = place_.device->cuda(), handle = library->cuda] { cuda.cuLibraryUnload(handle); },
      {});
  Reply<wire::LibraryUnload>(AskerOf(record), CUDA_SUCCESS);
}

void Session::On(wire::Tag<wire::GlobalGet>, const wire::GlobalGet::Request& request,
                 const wire::Record& record) {
  const Library* library = libraries_.Find(request.library);
  if (library == nullptr || library->cuda == nullptr) return Refuse(wire::Fatal::kBadHandle);
  struct Found {
    std::string name;
    CUresult result = CUDA_ERROR_NOT_FOUND;
    CUdeviceptr address = 0;
    size_t size_bytes = 0;
  };
  auto found = std::make_shared<Found>();
  found->name.assign(record.payload.begin(), record.payload.end());
  modules_.Post(
      [found, &cuda = place_.device->cuda(), handle = library->cuda] {
        found->result = cuda.cuLibraryGetGlobal(&found->address, &found->size_bytes, handle,
                                                found->name.c_str());
      },
      [this, found, asker = AskerOf(record), id = request.library] {
        place_.device->Judge(found->result);
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
