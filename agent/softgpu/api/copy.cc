// SPDX-License-Identifier: Apache-2.0
// cuMemcpy*: linear copies, pitched copies, and those to and from arrays. All forms become one
// (CUDA_MEMCPY3D where they are described, Copy where they run); peers are devices of the same
// process, whose contexts say nothing that the addresses do not.
#include "agent/softgpu/driver/copy.h"

#include "agent/softgpu/driver/array.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::softgpu;

namespace {

// Makes a node of it. Pageable memory is read or written when the graph runs.
CUresult RecordCopy(const Copy& copy, const CUDA_MEMCPY3D* described, Context& context,
                    graph::NodeParams* node) {
  std::function<void()> unused;
  CUDA_RETURN_IF_ERROR(PrepareCopy(copy, unused));
  const auto type_of = [](Side side) {
    return side == Side::kDevice ? CU_MEMORYTYPE_DEVICE
           : side == Side::kHost ? CU_MEMORYTYPE_HOST
                                 : CU_MEMORYTYPE_UNIFIED;
  };
  *node = graph::LinearCopy(type_of(copy.to.side), copy.to.address, type_of(copy.from.side),
                            copy.from.address, copy.width_bytes, context.handle());
  if (described != nullptr) node->memcpy.copy = *described;
  return CUDA_SUCCESS;
}

// `described`: the program's own description, for the node of a capture; without one the node is
// made from the linear copy.
CUresult Submit(CUstream handle, DefaultStream null_means, const Copy& copy, bool wait,
                const CUDA_MEMCPY3D* described = nullptr) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const auto stream = FindStream(*context, handle, null_means);
  if (stream == nullptr) return NoStream(handle);
  // A call that waits would wait for a captured stream, which runs nothing.
  if (wait) CUDA_RETURN_IF_ERROR(RefuseInCapture(*stream));
  CUresult captured = CUDA_SUCCESS;
  if (!wait && Records(*stream, &captured, [&](graph::NodeParams* node) {
        return RecordCopy(copy, described, *context, node);
      })) {
    return captured;
  }
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

// One side of a pitched copy, as in CUDA_MEMCPY3D.
struct Given {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  CUarray array;
  size_t x_bytes, y, z, pitch_bytes, height;
};

// Fills in one end of a copy whose width, height and depth are set already.
CUresult EndOf(const Given& given, const Copy& copy, CopyEnd& end) {
  switch (given.type) {
    case CU_MEMORYTYPE_HOST:
      end.address = Address(given.host);
      end.side = Side::kHost;
      break;
    case CU_MEMORYTYPE_DEVICE:
      end.address = given.device;
      end.side = Side::kDevice;
      break;
    case CU_MEMORYTYPE_UNIFIED:
      end.address = given.device;
      end.side = Side::kAny;
      break;
    case CU_MEMORYTYPE_ARRAY:
      return EndOfArray(given.array, copy, given.x_bytes, given.y, given.z, end);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t row_bytes = 0;
  uint64_t rows = 0;
  if (__builtin_add_overflow(given.x_bytes, copy.width_bytes, &row_bytes) ||
      __builtin_add_overflow(given.y, copy.height, &rows)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A pitch or height of 0 means that there is no gap. A height smaller than the copy's matters
  // only between slices.
  end.pitch_bytes = given.pitch_bytes != 0 ? given.pitch_bytes : row_bytes;
  const size_t height = given.height != 0 ? given.height : rows;
  if (end.pitch_bytes < row_bytes || (copy.depth > 1 && height < copy.height) ||
      __builtin_mul_overflow(end.pitch_bytes, height, &end.slice_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The sum may wrap: what it gives is judged as an address like any other.
  end.address += given.z * end.slice_bytes + given.y * end.pitch_bytes + given.x_bytes;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult gpuloom::softgpu::DescribeCopy(const CUDA_MEMCPY3D& described, Copy& copy) {
  const CUDA_MEMCPY3D* params = &described;
  copy.width_bytes = params->WidthInBytes;
  copy.height = params->Height;
  copy.depth = params->Depth;
  const Given to = {params->dstMemoryType, params->dstHost,     params->dstDevice,
                    params->dstArray,      params->dstXInBytes, params->dstY,
                    params->dstZ,          params->dstPitch,    params->dstHeight};
  const Given from = {params->srcMemoryType, params->srcHost,     params->srcDevice,
                      params->srcArray,      params->srcXInBytes, params->srcY,
                      params->srcZ,          params->srcPitch,    params->srcHeight};
  const CUresult result = EndOf(to, copy, copy.to);
  return result != CUDA_SUCCESS ? result : EndOf(from, copy, copy.from);
}

namespace {

CUresult Submit3D(const CUDA_MEMCPY3D* params, CUstream stream, DefaultStream null_means,
                  bool wait) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Copy copy;
  const CUresult result = DescribeCopy(*params, copy);
  return result == CUDA_SUCCESS ? Submit(stream, null_means, copy, wait, params) : result;
}

// Two dimensions are three of depth 1. Host and device sides are judged when the copy is.
CUresult Submit2D(const CUDA_MEMCPY2D* params, CUstream stream, DefaultStream null_means,
                  bool wait) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = params->srcXInBytes;
  copy.srcY = params->srcY;
  copy.srcMemoryType = params->srcMemoryType;
  copy.srcHost = params->srcHost;
  copy.srcDevice = params->srcDevice;
  copy.srcArray = params->srcArray;
  copy.srcPitch = params->srcPitch;
  copy.dstXInBytes = params->dstXInBytes;
  copy.dstY = params->dstY;
  copy.dstMemoryType = params->dstMemoryType;
  copy.dstHost = params->dstHost;
  copy.dstDevice = params->dstDevice;
  copy.dstArray = params->dstArray;
  copy.dstPitch = params->dstPitch;
  copy.WidthInBytes = params->WidthInBytes;
  copy.Height = params->Height;
  copy.Depth = 1;
  return Submit3D(&copy, stream, null_means, wait);
}

// srcContext and dstContext are left out: unified addresses tell whose memory it is.
CUresult Submit3DPeer(const CUDA_MEMCPY3D_PEER* params, CUstream stream, DefaultStream null_means,
                      bool wait) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D copy = {};
  copy.srcXInBytes = params->srcXInBytes;
  copy.srcY = params->srcY;
  copy.srcZ = params->srcZ;
  copy.srcLOD = params->srcLOD;
  copy.srcMemoryType = params->srcMemoryType;
  copy.srcHost = params->srcHost;
  copy.srcDevice = params->srcDevice;
  copy.srcArray = params->srcArray;
  copy.srcPitch = params->srcPitch;
  copy.srcHeight = params->srcHeight;
  copy.dstXInBytes = params->dstXInBytes;
  copy.dstY = params->dstY;
  copy.dstZ = params->dstZ;
  copy.dstLOD = params->dstLOD;
  copy.dstMemoryType = params->dstMemoryType;
  copy.dstHost = params->dstHost;
  copy.dstDevice = params->dstDevice;
  copy.dstArray = params->dstArray;
  copy.dstPitch = params->dstPitch;
  copy.dstHeight = params->dstHeight;
  copy.WidthInBytes = params->WidthInBytes;
  copy.Height = params->Height;
  copy.Depth = params->Depth;
  return Submit3D(&copy, stream, null_means, wait);
}

// The side that the call's name says: a host address there is a mistake only where the device's is
// meant.
Copy HostToDevice(CUdeviceptr to, const void* from, size_t size_bytes) {
  return Linear(to, Side::kDevice, Address(from), Side::kHost, size_bytes);
}

Copy DeviceToHost(void* to, CUdeviceptr from, size_t size_bytes) {
  return Linear(Address(to), Side::kHost, from, Side::kDevice, size_bytes);
}

Copy DeviceToDevice(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return Linear(to, Side::kDevice, from, Side::kDevice, size_bytes);
}

// The addresses determine the sides, as cuMemcpy demands.
Copy AnyToAny(CUdeviceptr to, CUdeviceptr from, size_t size_bytes) {
  return Linear(to, Side::kAny, from, Side::kAny, size_bytes);
}

// Copies one row between an array and linear memory.
CUresult SubmitRow(CUDA_MEMCPY3D copy, size_t size_bytes, CUstream stream, DefaultStream null_means,
                   bool wait) {
  copy.WidthInBytes = size_bytes;
  copy.Height = 1;
  copy.Depth = 1;
  return Submit3D(&copy, stream, null_means, wait);
}

CUDA_MEMCPY3D FromArray(CUarray array, size_t offset_bytes) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.srcArray = array;
  copy.srcXInBytes = offset_bytes;
  return copy;
}

CUDA_MEMCPY3D ToArray(CUarray array, size_t offset_bytes) {
  CUDA_MEMCPY3D copy = {};
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.dstXInBytes = offset_bytes;
  return copy;
}

CUDA_MEMCPY3D ToHost(CUDA_MEMCPY3D copy, void* host) {
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = host;
  return copy;
}
CUDA_MEMCPY3D ToDevice(CUDA_MEMCPY3D copy, CUdeviceptr device) {
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = device;
  return copy;
}
CUDA_MEMCPY3D FromHost(CUDA_MEMCPY3D copy, const void* host) {
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = host;
  return copy;
}
CUDA_MEMCPY3D FromDevice(CUDA_MEMCPY3D copy, CUdeviceptr device) {
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = device;
  return copy;
}
CUDA_MEMCPY3D Between(CUarray to, size_t to_offset, CUarray from, size_t from_offset) {
  CUDA_MEMCPY3D copy = FromArray(from, from_offset);
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = to;
  copy.dstXInBytes = to_offset;
  return copy;
}

}  // namespace

CUresult api::cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t size_bytes,
                              DefaultStream null_means) {
  return Submit(nullptr, null_means, HostToDevice(to, from, size_bytes), true);
}

CUresult api::cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t size_bytes,
                                   CUstream stream, DefaultStream null_means) {
  return Submit(stream, null_means, HostToDevice(to, from, size_bytes), false);
}

CUresult api::cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t size_bytes,
                              DefaultStream null_means) {
  return Submit(nullptr, null_means, DeviceToHost(to, from, size_bytes), true);
}

CUresult api::cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t size_bytes, CUstream stream,
                                   DefaultStream null_means) {
  return Submit(stream, null_means, DeviceToHost(to, from, size_bytes), false);
}

CUresult api::cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                              DefaultStream null_means) {
  return Submit(nullptr, null_means, DeviceToDevice(to, from, size_bytes), true);
}

CUresult api::cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                                   CUstream stream, DefaultStream null_means) {
  return Submit(stream, null_means, DeviceToDevice(to, from, size_bytes), false);
}

CUresult api::cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t size_bytes,
                       DefaultStream null_means) {
  return Submit(nullptr, null_means, AnyToAny(to, from, size_bytes), true);
}

CUresult api::cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t size_bytes, CUstream stream,
                            DefaultStream null_means) {
  return Submit(stream, null_means, AnyToAny(to, from, size_bytes), false);
}

CUresult api::cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                           size_t size_bytes, DefaultStream null_means) {
  return Submit(nullptr, null_means, DeviceToDevice(to, from, size_bytes), true);
}

CUresult api::cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                                size_t size_bytes, CUstream stream, DefaultStream null_means) {
  return Submit(stream, null_means, DeviceToDevice(to, from, size_bytes), false);
}

CUresult api::cuMemcpy2D_v2(const CUDA_MEMCPY2D* params, DefaultStream null_means) {
  return Submit2D(params, nullptr, null_means, true);
}

CUresult api::cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* params, DefaultStream null_means) {
  return Submit2D(params, nullptr, null_means, true);
}

CUresult api::cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* params, CUstream stream,
                                 DefaultStream null_means) {
  return Submit2D(params, stream, null_means, false);
}

CUresult api::cuMemcpy3D_v2(const CUDA_MEMCPY3D* params, DefaultStream null_means) {
  return Submit3D(params, nullptr, null_means, true);
}

CUresult api::cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* params, CUstream stream,
                                 DefaultStream null_means) {
  return Submit3D(params, stream, null_means, false);
}

CUresult api::cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER* params, DefaultStream null_means) {
  return Submit3DPeer(params, nullptr, null_means, true);
}
CUresult api::cuMemcpyAtoH_v2(void* to, CUarray from, size_t offset, size_t size_bytes,
                              DefaultStream null_means) {
  return SubmitRow(ToHost(FromArray(from, offset), to), size_bytes, nullptr, null_means, true);
}
CUresult api::cuMemcpyHtoA_v2(CUarray to, size_t offset, const void* from, size_t size_bytes,
                              DefaultStream null_means) {
  return SubmitRow(FromHost(ToArray(to, offset), from), size_bytes, nullptr, null_means, true);
}
CUresult api::cuMemcpyAtoD_v2(CUdeviceptr to, CUarray from, size_t offset, size_t size_bytes,
                              DefaultStream null_means) {
  return SubmitRow(ToDevice(FromArray(from, offset), to), size_bytes, nullptr, null_means, true);
}
CUresult api::cuMemcpyDtoA_v2(CUarray to, size_t offset, CUdeviceptr from, size_t size_bytes,
                              DefaultStream null_means) {
  return SubmitRow(FromDevice(ToArray(to, offset), from), size_bytes, nullptr, null_means, true);
}
CUresult api::cuMemcpyAtoA_v2(CUarray to, size_t to_offset, CUarray from, size_t from_offset,
                              size_t size_bytes, DefaultStream null_means) {
  return SubmitRow(Between(to, to_offset, from, from_offset), size_bytes, nullptr, null_means,
                   true);
}
CUresult api::cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER* params, CUstream stream,
                                  DefaultStream null_means) {
  return Submit3DPeer(params, stream, null_means, false);
}
CUresult api::cuMemcpyAtoHAsync_v2(void* to, CUarray from, size_t offset, size_t size_bytes,
                                   CUstream stream, DefaultStream null_means) {
  return SubmitRow(ToHost(FromArray(from, offset), to), size_bytes, stream, null_means, false);
}
CUresult api::cuMemcpyHtoAAsync_v2(CUarray to, size_t offset, const void* from, size_t size_bytes,
                                   CUstream stream, DefaultStream null_means) {
  return SubmitRow(FromHost(ToArray(to, offset), from), size_bytes, stream, null_means, false);
}
