// A library on its way from the tenant's image to the driver. For library.cc and
// managed_variables.cc: made and finished on the ring thread, worked on by one worker at a time.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "agent/executor/managed_image.h"
#include "agent/executor/session.h"
#include "proto/cuda/fatbin.h"
#include "proto/cuda/fatbin_unpack.h"

namespace gpuloom::executor {

// True when every length in the image lies inside it, so that the driver can be given it.
inline bool IsWhole(std::span<const uint8_t> bytes) {
  Image image;
  if (FindImage(bytes.data(), bytes.size(), &image) != ImageError::kNone) return false;
  if (image.kind != ImageKind::kFatbin) return true;
  FatbinReader members(image.bytes, image.size_bytes);
  FatbinMember member;
  while (members.Next(&member)) {
  }
  return members.error() == ImageError::kNone;
}

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
  std::unique_ptr<ManagedImage> managed;  // that waits for a place, or has it
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
    if (has_variables) managed = ManagedImage::Find(device, bytes(), log);
    if (managed != nullptr) {
      result = CUDA_SUCCESS;
      return;
    }
    result = Compile(device);
    if (result == CUDA_ERROR_NOT_SUPPORTED) result = LoadImage(cuda, image.data());
    load_ms = Since(looked);
    CountKernels(cuda);
  }

  // Loads the managed image, which has got its place.
  void LoadAt(const Driver& cuda, const HostMemory& host, uint64_t place) {
    result = managed->Load(cuda, host, place, log, &library);
    CountKernels(cuda);
  }

  void CountKernels(const Driver& cuda) {
    if (result != CUDA_SUCCESS) return;
    unsigned count = 0;
    if (cuda.cuLibraryGetKernelCount != nullptr &&
        cuda.cuLibraryGetKernelCount(&count, library) == CUDA_SUCCESS) {
      kernel_count = count;
    }
  }
};

template <typename C>
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
  Reply<C>(asker, loading->result, {loading->kernel_count, 0},
           {log, strnlen(loading->log, sizeof(loading->log))});
}

}  // namespace gpuloom::executor
