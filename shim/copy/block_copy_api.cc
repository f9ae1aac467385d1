// SPDX-License-Identifier: Apache-2.0
// cuMemcpy2D, cuMemcpy3D, cuMemcpyPeer, copies to and from arrays: each brought into the form of
// CUDA_MEMCPY3D. There is one device, so the peer forms differ by their contexts only.
#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/copy/block_copy.h"
#include "shim/image/array.h"

namespace gpuloom {
namespace {

constexpr DefaultStream kLegacy = DefaultStream::kLegacy;
constexpr DefaultStream kPerThread = DefaultStream::kPerThread;
constexpr CopyTiming kSync = CopyTiming::kSync;
constexpr CopyTiming kAsync = CopyTiming::kAsync;

CUresult Copy2D(const CUDA_MEMCPY2D* from, CUstream stream, DefaultStream null_means,
                CopyTiming timing) {
  if (from == nullptr) {
    const CUresult result = NeedContext();
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
  }
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = from->srcXInBytes;
  copy.srcY = from->srcY;
  copy.srcMemoryType = from->srcMemoryType;
  copy.srcHost = from->srcHost;
  copy.srcDevice = from->srcDevice;
  copy.srcArray = from->srcArray;
  copy.srcPitch = from->srcPitch;
  copy.dstXInBytes = from->dstXInBytes;
  copy.dstY = from->dstY;
  copy.dstMemoryType = from->dstMemoryType;
  copy.dstHost = from->dstHost;
  copy.dstDevice = from->dstDevice;
  copy.dstArray = from->dstArray;
  copy.dstPitch = from->dstPitch;
  copy.WidthInBytes = from->WidthInBytes;
  copy.Height = from->Height;
  copy.Depth = 1;
  return CopyBlock(copy, stream, null_means, timing);
}

CUresult Copy3D(const CUDA_MEMCPY3D* copy, CUstream stream, DefaultStream null_means,
                CopyTiming timing) {
  if (copy == nullptr) {
    const CUresult result = NeedContext();
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
  }
  return CopyBlock(*copy, stream, null_means, timing);
}

CUresult Copy3DPeer(const CUDA_MEMCPY3D_PEER* from, CUstream stream, DefaultStream null_means,
                    CopyTiming timing) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if ((from->srcMemoryType == CU_MEMORYTYPE_DEVICE && !IsContext(from->srcContext)) ||
      (from->dstMemoryType == CU_MEMORYTYPE_DEVICE && !IsContext(from->dstContext))) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = from->srcXInBytes;
  copy.srcY = from->srcY;
  copy.srcZ = from->srcZ;
  copy.srcLOD = from->srcLOD;
  copy.srcMemoryType = from->srcMemoryType;
  copy.srcHost = from->srcHost;
  copy.srcDevice = from->srcDevice;
  copy.srcArray = from->srcArray;
  copy.srcPitch = from->srcPitch;
  copy.srcHeight = from->srcHeight;
  copy.dstXInBytes = from->dstXInBytes;
  copy.dstY = from->dstY;
  copy.dstZ = from->dstZ;
  copy.dstLOD = from->dstLOD;
  copy.dstMemoryType = from->dstMemoryType;
  copy.dstHost = from->dstHost;
  copy.dstDevice = from->dstDevice;
  copy.dstArray = from->dstArray;
  copy.dstPitch = from->dstPitch;
  copy.dstHeight = from->dstHeight;
  copy.WidthInBytes = from->WidthInBytes;
  copy.Height = from->Height;
  copy.Depth = from->Depth;
  return CopyBlock(copy, stream, null_means, timing);
}

// One row between the sides that are filled in.
CUresult CopyRow(CUDA_MEMCPY3D copy, size_t size_bytes, CUstream stream, DefaultStream null_means,
                 CopyTiming timing) {
  copy.WidthInBytes = size_bytes;
  copy.Height = 1;
  copy.Depth = 1;
  return CopyBlock(copy, stream, null_means, timing);
}

void FromArray(CUDA_MEMCPY3D* copy, CUarray array, size_t offset_bytes) {
  copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy->srcArray = array;
  copy->srcXInBytes = offset_bytes;
}
void ToArray(CUDA_MEMCPY3D* copy, CUarray array, size_t offset_bytes) {
  copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy->dstArray = array;
  copy->dstXInBytes = offset_bytes;
}

CUresult AtoH(void* to, CUarray from, size_t offset, size_t size, CUstream stream,
              DefaultStream null_means, CopyTiming timing) {
  CUDA_MEMCPY3D copy = {};
  FromArray(&copy, from, offset);
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  return CopyRow(copy, size, stream, null_means, timing);
}
CUresult HtoA(CUarray to, size_t offset, const void* from, size_t size, CUstream stream,
              DefaultStream null_means, CopyTiming timing) {
  CUDA_MEMCPY3D copy = {};
  ToArray(&copy, to, offset);
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = from;
  return CopyRow(copy, size, stream, null_means, timing);
}
CUresult AtoD(CUdeviceptr to, CUarray from, size_t offset, size_t size, DefaultStream null_means) {
  CUDA_MEMCPY3D copy = {};
  FromArray(&copy, from, offset);
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = to;
  return CopyRow(copy, size, nullptr, null_means, kSync);
}
CUresult DtoA(CUarray to, size_t offset, CUdeviceptr from, size_t size, DefaultStream null_means) {
  CUDA_MEMCPY3D copy = {};
  ToArray(&copy, to, offset);
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  return CopyRow(copy, size, nullptr, null_means, kSync);
}
CUresult AtoA(CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t size,
              DefaultStream null_means) {
  CUDA_MEMCPY3D copy = {};
  ToArray(&copy, to, to_offset);
  FromArray(&copy, from, from_offset);
  return CopyRow(copy, size, nullptr, null_means, kSync);
}

CUresult Peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
              size_t size, CUstream stream, DefaultStream null_means, CopyTiming timing) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (!IsContext(to_context) || !IsContext(from_context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (null_means == kLegacy) {
    return timing == kSync ? cuMemcpyDtoD_v2(to, from, size)
                           : cuMemcpyDtoDAsync_v2(to, from, size, stream);
  }
  return timing == kSync ? cuMemcpyDtoD_v2_ptds(to, from, size)
                         : cuMemcpyDtoDAsync_v2_ptsz(to, from, size, stream);
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return Copy2D(copy, nullptr, kLegacy, kSync); }
CUresult cuMemcpy2D_v2_ptds(const CUDA_MEMCPY2D* copy) {
  return Copy2D(copy, nullptr, kPerThread, kSync);
}
CUresult cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) {
  return Copy2D(copy, nullptr, kLegacy, kSync);
}
CUresult cuMemcpy2DUnaligned_v2_ptds(const CUDA_MEMCPY2D* copy) {
  return Copy2D(copy, nullptr, kPerThread, kSync);
}
CUresult cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return Copy3D(copy, nullptr, kLegacy, kSync); }
CUresult cuMemcpy3D_v2_ptds(const CUDA_MEMCPY3D* copy) {
  return Copy3D(copy, nullptr, kPerThread, kSync);
}
CUresult cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy) {
  return Copy3DPeer(copy, nullptr, kLegacy, kSync);
}
CUresult cuMemcpy3DPeer_ptds(const CUDA_MEMCPY3D_PEER* copy) {
  return Copy3DPeer(copy, nullptr, kPerThread, kSync);
}

CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return Copy2D(copy, stream, kLegacy, kAsync);
}
CUresult cuMemcpy2DAsync_v2_ptsz(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return Copy2D(copy, stream, kPerThread, kAsync);
}

CUresult cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return Copy3D(copy, stream, kLegacy, kAsync);
}
CUresult cuMemcpy3DAsync_v2_ptsz(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return Copy3D(copy, stream, kPerThread, kAsync);
}

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return Copy3DPeer(copy, stream, kLegacy, kAsync);
}
CUresult cuMemcpy3DPeerAsync_ptsz(const CUDA_MEMCPY3D_PEER* copy, CUstream stream) {
  return Copy3DPeer(copy, stream, kPerThread, kAsync);
}

CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t size) {
  return Peer(to, to_context, from, from_context, size, nullptr, kLegacy, kSync);
}
CUresult cuMemcpyPeer_ptds(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t size) {
  return Peer(to, to_context, from, from_context, size, nullptr, kPerThread, kSync);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t size, CUstream stream) {
  return Peer(to, to_context, from, from_context, size, stream, kLegacy, kAsync);
}
CUresult cuMemcpyPeerAsync_ptsz(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, size_t size, CUstream stream) {
  return Peer(to, to_context, from, from_context, size, stream, kPerThread, kAsync);
}

CUresult cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t size) {
  return AtoH(to, from, offset, size, nullptr, kLegacy, kSync);
}
CUresult cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t size) {
  return HtoA(to, offset, from, size, nullptr, kLegacy, kSync);
}
CUresult cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t size) {
  return AtoD(to, from, offset, size, kLegacy);
}
CUresult cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t size) {
  return DtoA(to, offset, from, size, kLegacy);
}
CUresult cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                         size_t size) {
  return AtoA(to, to_offset, from, from_offset, size, kLegacy);
}
CUresult cuMemcpyAtoH_v2_ptds(void* to, CUarray from, size_t offset, size_t size) {
  return AtoH(to, from, offset, size, nullptr, kPerThread, kSync);
}
CUresult cuMemcpyHtoA_v2_ptds(CUarray to, size_t offset, const void* from, size_t size) {
  return HtoA(to, offset, from, size, nullptr, kPerThread, kSync);
}
CUresult cuMemcpyAtoD_v2_ptds(CUdeviceptr to, CUarray from, size_t offset, size_t size) {
  return AtoD(to, from, offset, size, kPerThread);
}
CUresult cuMemcpyDtoA_v2_ptds(CUarray to, size_t offset, CUdeviceptr from, size_t size) {
  return DtoA(to, offset, from, size, kPerThread);
}
CUresult cuMemcpyAtoA_v2_ptds(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                              size_t size) {
  return AtoA(to, to_offset, from, from_offset, size, kPerThread);
}
CUresult cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t size, CUstream stream) {
  return AtoH(to, from, offset, size, stream, kLegacy, kAsync);
}
CUresult cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t size,
                              CUstream stream) {
  return HtoA(to, offset, from, size, stream, kLegacy, kAsync);
}
CUresult cuMemcpyAtoHAsync_v2_ptsz(void* to, CUarray from, size_t offset, size_t size,
                                   CUstream stream) {
  return AtoH(to, from, offset, size, stream, kPerThread, kAsync);
}
CUresult cuMemcpyHtoAAsync_v2_ptsz(CUarray to, size_t offset, const void* from, size_t size,
                                   CUstream stream) {
  return HtoA(to, offset, from, size, stream, kPerThread, kAsync);
}

}  // extern "C"
