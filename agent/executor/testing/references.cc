// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/references.h"

#include <cstring>
#include <utility>

#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

struct References {
  Mutex mutex;
  std::vector<std::string> calls GPULOOM_GUARDED_BY(mutex);
  CUresult failure GPULOOM_GUARDED_BY(mutex) = CUDA_SUCCESS;
};

References& R() {
  static auto* const kReferences = new References;
  return *kReferences;
}

constexpr const char* kTextures[] = {"texture", "other"};
constexpr const char* kSurfaces[] = {"surface"};

template <typename Handle>
const char* NameOf(Handle handle) {
  return reinterpret_cast<const char*>(handle);
}

template <typename Handle, size_t kCount>
CUresult Find(const char* const (&names)[kCount], const char* name, Handle* handle) {
  for (const char* known : names) {
    if (std::strcmp(known, name) != 0) continue;
    *handle = reinterpret_cast<Handle>(const_cast<char*>(known));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

template <typename Handle>
CUresult Record(Handle handle, const std::string& what) {
  const MutexLock lock(R().mutex);
  R().calls.push_back(std::string(NameOf(handle)) + " " + what);
  return R().failure;
}

std::string Number(const void* handle) {
  return std::to_string(reinterpret_cast<uintptr_t>(handle));
}

}  // namespace

void ForgetReferences() {
  const MutexLock lock(R().mutex);
  R().calls.clear();
  R().failure = CUDA_SUCCESS;
}

void FillReferenceTable(Driver* d) {
  d->cuLibraryGetModule = [](CUmodule* module, CUlibrary library) {
    return *module = reinterpret_cast<CUmodule>(library), CUDA_SUCCESS;
  };
  d->cuModuleGetTexRef = [](CUtexref* texture, CUmodule, const char* name) {
    return Find(kTextures, name, texture);
  };
  d->cuModuleGetSurfRef = [](CUsurfref* surface, CUmodule, const char* name) {
    return Find(kSurfaces, name, surface);
  };
  d->cuTexRefCreate = [](CUtexref* texture) { return Find(kTextures, "other", texture); };
  d->cuTexRefDestroy = [](CUtexref) { return CUDA_SUCCESS; };
  d->cuTexRefGetFormat = [](CUarray_format* format, int* channels, CUtexref) {
    *format = CU_AD_FORMAT_FLOAT;
    return *channels = 1, CUDA_SUCCESS;
  };
  d->cuTexRefGetAddressMode = [](CUaddress_mode* mode, CUtexref, int) {
    return *mode = CU_TR_ADDRESS_MODE_CLAMP, CUDA_SUCCESS;
  };
  d->cuTexRefGetFilterMode = [](CUfilter_mode* mode, CUtexref) {
    return *mode = CU_TR_FILTER_MODE_POINT, CUDA_SUCCESS;
  };
  d->cuTexRefGetFlags = [](unsigned* flags, CUtexref) { return *flags = 0, CUDA_SUCCESS; };
  d->cuTexRefGetMipmapFilterMode = [](CUfilter_mode* mode, CUtexref) {
    return *mode = CU_TR_FILTER_MODE_POINT, CUDA_SUCCESS;
  };
  d->cuTexRefGetMipmapLevelBias = [](float* bias, CUtexref) { return *bias = 0, CUDA_SUCCESS; };
  d->cuTexRefGetMipmapLevelClamp = [](float* least, float* most, CUtexref) {
    return *least = *most = 0, CUDA_SUCCESS;
  };
  d->cuTexRefGetBorderColor = [](float* color, CUtexref) {
    for (int i = 0; i < 4; ++i) color[i] = 0;
    return CUDA_SUCCESS;
  };
  d->cuTexRefGetMaxAnisotropy = [](int* most, CUtexref) { return *most = 0, CUDA_SUCCESS; };
  d->cuTexRefSetFlags = [](CUtexref texture, unsigned flags) {
    return Record(texture, "flags " + std::to_string(flags));
  };
  d->cuTexRefSetFormat = [](CUtexref texture, CUarray_format format, int channels) {
    return Record(texture, "format " + std::to_string(format) + " " + std::to_string(channels));
  };
  d->cuTexRefSetAddressMode = [](CUtexref texture, int dimension, CUaddress_mode mode) {
    return Record(texture, "mode " + std::to_string(dimension) + " " + std::to_string(mode));
  };
  d->cuTexRefSetFilterMode = [](CUtexref texture, CUfilter_mode mode) {
    return Record(texture, "filter " + std::to_string(mode));
  };
  d->cuTexRefSetMipmapFilterMode = [](CUtexref texture, CUfilter_mode mode) {
    return Record(texture, "mipmap filter " + std::to_string(mode));
  };
  d->cuTexRefSetMipmapLevelBias = [](CUtexref texture, float) { return Record(texture, "bias"); };
  d->cuTexRefSetMipmapLevelClamp = [](CUtexref texture, float, float) {
    return Record(texture, "levels");
  };
  d->cuTexRefSetMaxAnisotropy = [](CUtexref texture, unsigned) {
    return Record(texture, "anisotropy");
  };
  d->cuTexRefSetBorderColor = [](CUtexref texture, float*) { return Record(texture, "border"); };
  d->cuTexRefSetArray = [](CUtexref texture, CUarray array, unsigned) {
    return Record(texture, "array " + Number(array));
  };
  d->cuTexRefSetMipmappedArray = [](CUtexref texture, CUmipmappedArray array, unsigned) {
    return Record(texture, "mipmap " + Number(array));
  };
  d->cuTexRefSetAddress_v2 = [](size_t* offset, CUtexref texture, CUdeviceptr address,
                                size_t size_bytes) {
    *offset = 0;
    return Record(texture, address == 0 ? std::string("none")
                                        : "address " + std::to_string(address) + " " +
                                              std::to_string(size_bytes));
  };
  d->cuTexRefSetAddress2D_v3 = [](CUtexref texture, const CUDA_ARRAY_DESCRIPTOR*,
                                  CUdeviceptr address, size_t pitch_bytes) {
    return Record(texture, "rows " + std::to_string(address) + " " + std::to_string(pitch_bytes));
  };
  d->cuSurfRefSetArray = [](CUsurfref surface, CUarray array, unsigned) {
    return Record(surface, array == nullptr ? std::string("none") : "array " + Number(array));
  };
}

std::vector<std::string> TakeReferenceCalls() {
  const MutexLock lock(R().mutex);
  return std::exchange(R().calls, {});
}

void RefuseBinding(CUresult result) {
  const MutexLock lock(R().mutex);
  R().failure = result;
}

}  // namespace gpuloom::executor
