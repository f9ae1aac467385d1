// cuMemcpy*: linear copies, pitched copies. A name with _ptds or _ptsz takes NULL for the thread's
// own default stream.
#include "agent/softgpu/context.h"
#include "agent/softgpu/copy.h"
#include "agent/softgpu/state.h"

using namespace gpuloom::softgpu;  // NOLINT: this file only defines CUDA's C functions

namespace {

constexpr bool kLegacy = false;
constexpr bool kPerThread = true;

CUresult Submit(CUstream handle, bool per_thread, const Copy& copy, bool wait) {
  Context* context = nullptr;
  const CUresult result = RequireContext(context);
  if (result != CUDA_SUCCESS) return result;
  const auto stream = FindStream(*context, handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return SubmitCopy(*stream, copy, wait);
}

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

Copy Linear(uint64_t to, Side to_side, uint64_t from, Side from_side, size_t size_bytes) {
  Copy copy;
  copy.to = {to, to_side, 0, 0};
  copy.from = {from, from_side, 0, 0};
  copy.width_bytes = size_bytes;
  return copy;
}

// Where one side of a pitched copy begins. False for arrays, which are not offered, and for types
// that do not exist.
bool EndOf(CUmemorytype type, const void* host, CUdeviceptr device, CopyEnd& end) {
  switch (type) {
    case CU_MEMORYTYPE_HOST:
      end.address = Address(host);
      end.side = Side::kHost;
      return true;
    case CU_MEMORYTYPE_DEVICE:
      end.address = device;
      end.side = Side::kDevice;
      return true;
    case CU_MEMORYTYPE_UNIFIED:
      end.address = device;
      end.side = Side::kAny;
      return true;
    default:
      return false;
  }
}

CUresult Unknown(CUmemorytype to, CUmemorytype from) {
  return to == CU_MEMORYTYPE_ARRAY || from == CU_MEMORYTYPE_ARRAY ? CUDA_ERROR_NOT_SUPPORTED
                                                                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult Submit2D(const CUDA_MEMCPY2D* params, CUstream stream, bool per_thread, bool wait) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  if (!EndOf(params->dstMemoryType, params->dstHost, params->dstDevice, copy.to) ||
      !EndOf(params->srcMemoryType, params->srcHost, params->srcDevice, copy.from)) {
    return Unknown(params->dstMemoryType, params->srcMemoryType);
  }
  copy.width_bytes = params->WidthInBytes;
  copy.height = params->Height;
  // A pitch of 0 means rows without a gap.
  copy.to.pitch_bytes = params->dstPitch != 0 ? params->dstPitch : params->WidthInBytes;
  copy.from.pitch_bytes = params->srcPitch != 0 ? params->srcPitch : params->WidthInBytes;
  if (copy.to.pitch_bytes < params->dstXInBytes + params->WidthInBytes ||
      copy.from.pitch_bytes < params->srcXInBytes + params->WidthInBytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  copy.to.address += params->dstY * copy.to.pitch_bytes + params->dstXInBytes;
  copy.from.address += params->srcY * copy.from.pitch_bytes + params->srcXInBytes;
  return Submit(stream, per_thread, copy, wait);
}

CUresult Submit3D(const CUDA_MEMCPY3D* params, CUstream stream, bool per_thread, bool wait) {
  if (params == nullptr || params->srcLOD != 0 || params->dstLOD != 0)
    return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  if (!EndOf(params->dstMemoryType, params->dstHost, params->dstDevice, copy.to) ||
      !EndOf(params->srcMemoryType, params->srcHost, params->srcDevice, copy.from)) {
    return Unknown(params->dstMemoryType, params->srcMemoryType);
  }
  copy.width_bytes = params->WidthInBytes;
  copy.height = params->Height;
  copy.depth = params->Depth;
  copy.to.pitch_bytes = params->dstPitch != 0 ? params->dstPitch : params->WidthInBytes;
  copy.from.pitch_bytes = params->srcPitch != 0 ? params->srcPitch : params->WidthInBytes;
  const size_t to_height = params->dstHeight != 0 ? params->dstHeight : params->Height;
  const size_t from_height = params->srcHeight != 0 ? params->srcHeight : params->Height;
  if (copy.to.pitch_bytes < params->dstXInBytes + params->WidthInBytes ||
      copy.from.pitch_bytes < params->srcXInBytes + params->WidthInBytes ||
      to_height < params->dstY + params->Height || from_height < params->srcY + params->Height) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  copy.to.slice_bytes = copy.to.pitch_bytes * to_height;
  copy.from.slice_bytes = copy.from.pitch_bytes * from_height;
  copy.to.address +=
      params->dstZ * copy.to.slice_bytes + params->dstY * copy.to.pitch_bytes + params->dstXInBytes;
  copy.from.address += params->srcZ * copy.from.slice_bytes + params->srcY * copy.from.pitch_bytes +
                       params->srcXInBytes;
  return Submit(stream, per_thread, copy, wait);
}

Copy HostToDevice(CUdeviceptr to, const void* from, size_t size_bytes) {
  return Linear(to, Side::kDevice, Address(from), Side::kHost, size_bytes);
}

Copy DeviceToHost(void* to, CUdeviceptr from, size_t size_bytes) {
  return Linear(Address(to), Side::kHost, from, Side::kDevice, size_bytes);
}

Copy DeviceToDevice(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return Linear(to, Side::kDevice, from, Side::kDevice, size_bytes);
}

Copy AnyToAny(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return Linear(to, Side::kAny, from, Side::kAny, size_bytes);
}

}  // namespace

extern "C" {

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size_bytes) {
  return Submit(nullptr, kLegacy, HostToDevice(to, from, size_bytes), true);
}
CUresult cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void* from, size_t size_bytes) {
  return Submit(nullptr, kPerThread, HostToDevice(to, from, size_bytes), true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size_bytes,
                              CUstream stream) {
  return Submit(stream, kLegacy, HostToDevice(to, from, size_bytes), false);
}
CUresult cuMemcpyHtoDAsync_v2_ptsz(CUdeviceptr to, const void* from, size_t size_bytes,
                                   CUstream stream) {
  return Submit(stream, kPerThread, HostToDevice(to, from, size_bytes), false);
}

CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size_bytes) {
  return Submit(nullptr, kLegacy, DeviceToHost(to, from, size_bytes), true);
}
CUresult cuMemcpyDtoH_v2_ptds(void* to, CUdeviceptr from, size_t size_bytes) {
  return Submit(nullptr, kPerThread, DeviceToHost(to, from, size_bytes), true);
}

CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return Submit(stream, kLegacy, DeviceToHost(to, from, size_bytes), false);
}
CUresult cuMemcpyDtoHAsync_v2_ptsz(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return Submit(stream, kPerThread, DeviceToHost(to, from, size_bytes), false);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return Submit(nullptr, kLegacy, DeviceToDevice(to, from, size_bytes), true);
}
CUresult cuMemcpyDtoD_v2_ptds(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return Submit(nullptr, kPerThread, DeviceToDevice(to, from, size_bytes), true);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                              CUstream stream) {
  return Submit(stream, kLegacy, DeviceToDevice(to, from, size_bytes), false);
}
CUresult cuMemcpyDtoDAsync_v2_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                                   CUstream stream) {
  return Submit(stream, kPerThread, DeviceToDevice(to, from, size_bytes), false);
}

CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return Submit(nullptr, kLegacy, AnyToAny(to, from, size_bytes), true);
}
CUresult cuMemcpy_ptds(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return Submit(nullptr, kPerThread, AnyToAny(to, from, size_bytes), true);
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return Submit(stream, kLegacy, AnyToAny(to, from, size_bytes), false);
}
CUresult cuMemcpyAsync_ptsz(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream stream) {
  return Submit(stream, kPerThread, AnyToAny(to, from, size_bytes), false);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t size_bytes) {
  return Submit(nullptr, kLegacy, DeviceToDevice(to, from, size_bytes), true);
}
CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                           size_t size_bytes) {
  return Submit(nullptr, kPerThread, DeviceToDevice(to, from, size_bytes), true);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                           size_t size_bytes, CUstream stream) {
  return Submit(stream, kLegacy, DeviceToDevice(to, from, size_bytes), false);
}
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                                size_t size_bytes, CUstream stream) {
  return Submit(stream, kPerThread, DeviceToDevice(to, from, size_bytes), false);
}

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* params) {
  return Submit2D(params, nullptr, kLegacy, true);
}
CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* params) {
  return Submit2D(params, nullptr, kPerThread, true);
}

CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* params) {
  return Submit2D(params, nullptr, kLegacy, true);
}
CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* params) {
  return Submit2D(params, nullptr, kPerThread, true);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* params, CUstream stream) {
  return Submit2D(params, stream, kLegacy, false);
}
CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* params, CUstream stream) {
  return Submit2D(params, stream, kPerThread, false);
}

CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* params) {
  return Submit3D(params, nullptr, kLegacy, true);
}
CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* params) {
  return Submit3D(params, nullptr, kPerThread, true);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* params, CUstream stream) {
  return Submit3D(params, stream, kLegacy, false);
}
CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* params, CUstream stream) {
  return Submit3D(params, stream, kPerThread, false);
}

}  // extern "C"
