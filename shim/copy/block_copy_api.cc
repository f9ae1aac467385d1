// SPDX-License-Identifier: Apache-2.0
// cuMemcpy2D, cuMemcpy3D, cuMemcpyPeer, copies to and from arrays: each brought into the form of
// CUDA_MEMCPY3D. There is one device, so the peer forms differ by their contexts only.
#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/copy/block_copy.h"
#include "shim/image/array.h"

namespace gpuloom {
namespace {

constexpr CopyTiming kSync = CopyTiming::kSync;
constexpr CopyTiming kAsync = CopyTiming::kAsync;

// A null pointer is INVALID_VALUE only where a context is current; CUDA looks at the context first.
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

// The contexts must exist, and mean nothing more: all memory is one device's.
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
// CUDA has no asynchronous forms of the following three.
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

// With unified addressing the addresses say all.
CUresult Peer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
              size_t size, CUstream stream, DefaultStream null_means, CopyTiming timing) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  if (!IsContext(to_context) || !IsContext(from_context)) return CUDA_ERROR_INVALID_CONTEXT;
  return timing == kSync ? api::cuMemcpyDtoD_v2(to, from, size, null_means)
                         : api::cuMemcpyDtoDAsync_v2(to, from, size, stream, null_means);
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy, DefaultStream null_means) {
  return Copy2D(copy, nullptr, null_means, kSync);
}
CUresult api::cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy, DefaultStream null_means) {
  return Copy2D(copy, nullptr, null_means, kSync);
}
CUresult api::cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy, DefaultStream null_means) {
  return Copy3D(copy, nullptr, null_means, kSync);
}
CUresult api::cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* copy, DefaultStream null_means) {
  return Copy3DPeer(copy, nullptr, null_means, kSync);
}

CUresult api::cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream,
                                 DefaultStream null_means) {
  return Copy2D(copy, stream, null_means, kAsync);
}

CUresult api::cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream,
                                 DefaultStream null_means) {
  return Copy3D(copy, stream, null_means, kAsync);
}

CUresult api::cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* copy, CUstream stream,
                                  DefaultStream null_means) {
  return Copy3DPeer(copy, stream, null_means, kAsync);
}

CUresult api::cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                           CUcontext from_context, size_t size, DefaultStream null_means) {
  return Peer(to, to_context, from, from_context, size, nullptr, null_means, kSync);
}
CUresult api::cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, size_t size, CUstream stream,
                                DefaultStream null_means) {
  return Peer(to, to_context, from, from_context, size, stream, null_means, kAsync);
}

CUresult api::cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t size,
                              DefaultStream null_means) {
  return AtoH(to, from, offset, size, nullptr, null_means, kSync);
}
CUresult api::cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t size,
                              DefaultStream null_means) {
  return HtoA(to, offset, from, size, nullptr, null_means, kSync);
}
CUresult api::cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t size,
                              DefaultStream null_means) {
  return AtoD(to, from, offset, size, null_means);
}
CUresult api::cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t size,
                              DefaultStream null_means) {
  return DtoA(to, offset, from, size, null_means);
}
CUresult api::cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                              size_t size, DefaultStream null_means) {
  return AtoA(to, to_offset, from, from_offset, size, null_means);
}
CUresult api::cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t size,
                                   CUstream stream, DefaultStream null_means) {
  return AtoH(to, from, offset, size, stream, null_means, kAsync);
}
CUresult api::cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t size,
                                   CUstream stream, DefaultStream null_means) {
  return HtoA(to, offset, from, size, stream, null_means, kAsync);
}
