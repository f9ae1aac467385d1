// SPDX-License-Identifier: Apache-2.0
// Arrays, rectangles, textures, surfaces and tensor maps.
#include <vector>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr CUdeviceptr kNowhere = 0x1234'5678'9000;

CUDA_ARRAY_DESCRIPTOR Plain() {
  CUDA_ARRAY_DESCRIPTOR d{};
  d.Width = 64;
  d.Height = 64;
  d.Format = CU_AD_FORMAT_FLOAT;
  d.NumChannels = 1;
  return d;
}

CUDA_ARRAY3D_DESCRIPTOR Solid(unsigned flags = 0) {
  CUDA_ARRAY3D_DESCRIPTOR d{};
  d.Width = d.Height = d.Depth = 16;
  d.Format = CU_AD_FORMAT_FLOAT;
  d.NumChannels = 1;
  d.Flags = flags;
  return d;
}

}  // namespace

void WrongArrays(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUarray array = nullptr, other = nullptr;
  CUmipmappedArray mipmapped = nullptr, no_mipmapped = nullptr;
  CUDA_ARRAY_DESCRIPTOR d = Plain();
  CUDA_ARRAY3D_DESCRIPTOR d3 = Solid();
  const auto create = [&] { return cu.cuArrayCreate_v2(&other, &d); };
  const auto create_3d = [&] { return cu.cuArray3DCreate_v2(&other, &d3); };
  c("cuArrayCreate without output", [&] { return cu.cuArrayCreate_v2(nullptr, &d); });
  c("cuArrayCreate without a description", [&] { return cu.cuArrayCreate_v2(&other, nullptr); });
  c("cuArrayCreate of width 0", [&] {
    d.Width = 0;
    return create();
  });
  c("cuArrayCreate of 3 channels", [&] {
    d = Plain();
    d.NumChannels = 3;
    return create();
  });
  c("cuArrayCreate of 0 channels", [&] {
    d = Plain();
    d.NumChannels = 0;
    return create();
  });
  c("cuArrayCreate of an unknown format", [&] {
    d = Plain();
    d.Format = static_cast<CUarray_format>(0x77);
    return create();
  });
  c("cuArrayCreate of width 2^30", [&] {
    d = Plain();
    d.Width = 1 << 30;
    return create();
  });
  c("cuArray3DCreate without a description",
    [&] { return cu.cuArray3DCreate_v2(&other, nullptr); });
  c("cuArray3DCreate with unknown flags", [&] {
    d3 = Solid(0x4000'0000);
    return create_3d();
  });
  c("cuArray3DCreate of a cube that is none", [&] {
    d3 = Solid(CUDA_ARRAY3D_CUBEMAP);
    return create_3d();
  });
  c("cuArray3DCreate of a depth of 2^20", [&] {
    d3 = Solid();
    d3.Depth = 1 << 20;
    return create_3d();
  });
  c("cuArray3DCreate of depth without height", [&] {
    d3 = Solid();
    d3.Height = 0;
    return create_3d();
  });
  c("cuArrayDestroy of none", [&] { return cu.cuArrayDestroy(nullptr); });
  c("cuMipmappedArrayDestroy of none", [&] { return cu.cuMipmappedArrayDestroy(nullptr); });
  c("cuMipmappedArrayCreate without a description",
    [&] { return cu.cuMipmappedArrayCreate(&no_mipmapped, nullptr, 1); });
  c("cuArrayGetDescriptor of none", [&] { return cu.cuArrayGetDescriptor_v2(&d, nullptr); });
  d = Plain();
  if (!c.Has("cuArrayCreate", cu.cuArrayCreate_v2(&array, &d))) return;
  c("cuArrayGetDescriptor without output",
    [&] { return cu.cuArrayGetDescriptor_v2(nullptr, array); });
  c("cuArray3DGetDescriptor without output",
    [&] { return cu.cuArray3DGetDescriptor_v2(nullptr, array); });
  c("cuArrayGetPlane of a plain one", [&] { return cu.cuArrayGetPlane(&other, array, 0); });
  c("cuArrayGetPlane 5 of a plain one", [&] { return cu.cuArrayGetPlane(&other, array, 5); });
  c("cuArrayGetSparseProperties of a plain one", [&] {
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    return cu.cuArrayGetSparseProperties(&sparse, array);
  });
  std::vector<char> host(64 << 10);
  c("cuMemcpyHtoA beyond the end",
    [&] { return cu.cuMemcpyHtoA_v2(array, 0, host.data(), 32 << 10); });
  c("cuMemcpyHtoA behind the end",
    [&] { return cu.cuMemcpyHtoA_v2(array, 1 << 20, host.data(), 16); });
  c("cuMemcpyHtoA from NULL", [&] { return cu.cuMemcpyHtoA_v2(array, 0, nullptr, 16); });
  c("cuMemcpyHtoA to none", [&] { return cu.cuMemcpyHtoA_v2(nullptr, 0, host.data(), 16); });
  c("cuMemcpyAtoH beyond the end",
    [&] { return cu.cuMemcpyAtoH_v2(host.data(), array, 0, 32 << 10); });
  c("cuMemcpyDtoA from nowhere", [&] { return cu.cuMemcpyDtoA_v2(array, 0, kNowhere, 16); });
  d3 = Solid();
  c("cuMipmappedArrayCreate of 0 levels",
    [&] { return cu.cuMipmappedArrayCreate(&no_mipmapped, &d3, 0); });
  c("cuMipmappedArrayCreate of 100 levels",
    [&] { return cu.cuMipmappedArrayCreate(&no_mipmapped, &d3, 100); });
  if (!c.Has("cuMipmappedArrayCreate", cu.cuMipmappedArrayCreate(&mipmapped, &d3, 3))) return;
  c("cuMipmappedArrayGetLevel 3 of 3",
    [&] { return cu.cuMipmappedArrayGetLevel(&other, mipmapped, 3); });
  c("cuMipmappedArrayGetLevel without output",
    [&] { return cu.cuMipmappedArrayGetLevel(nullptr, mipmapped, 0); });
  c("cuArrayDestroy of a level", [&] {
    CUarray level = nullptr;
    (void)cu.cuMipmappedArrayGetLevel(&level, mipmapped, 0);
    return cu.cuArrayDestroy(level);
  });
  c("cuArrayDestroy at last", [&] { return cu.cuArrayDestroy(array); });
}

void WrongRectangles(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUdeviceptr memory = 0;
  constexpr size_t kSize = 1 << 20;
  std::vector<char> host(kSize);
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&memory, kSize))) return;
  CUDA_MEMCPY2D copy{};
  const auto plain = [&] {
    copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = host.data();
    copy.srcPitch = 256;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = memory;
    copy.dstPitch = 512;
    copy.WidthInBytes = 128;
    copy.Height = 16;
  };
  c("cuMemcpy2D without a description", [&] { return cu.cuMemcpy2D_v2(nullptr); });
  c("cuMemcpy2D of width 0", [&] {
    plain();
    copy.WidthInBytes = 0;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D of height 0", [&] {
    plain();
    copy.Height = 0;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D of a source pitch below the width", [&] {
    plain();
    copy.srcPitch = 64;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D of a target pitch below the width", [&] {
    plain();
    copy.dstPitch = 64;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D of pitches of 0", [&] {
    plain();
    copy.srcPitch = copy.dstPitch = 0;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D from an unknown kind of memory", [&] {
    plain();
    copy.srcMemoryType = static_cast<CUmemorytype>(99);
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D from NULL", [&] {
    plain();
    copy.srcHost = nullptr;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D to nowhere", [&] {
    plain();
    copy.dstDevice = kNowhere;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D beyond the end", [&] {
    plain();
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = memory;
    copy.srcPitch = 256;
    copy.Height = 1 << 20;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D of a pitch of 2^31", [&] {
    plain();
    copy.dstPitch = size_t{1} << 31;
    copy.Height = 1;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2D to no array", [&] {
    plain();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    return cu.cuMemcpy2D_v2(&copy);
  });
  c("cuMemcpy2DUnaligned of a source pitch below the width", [&] {
    plain();
    copy.srcPitch = 64;
    return cu.cuMemcpy2DUnaligned_v2(&copy);
  });
  c("cuMemcpy2DAsync to nowhere", [&] {
    plain();
    copy.dstDevice = kNowhere;
    return cu.cuMemcpy2DAsync_v2(&copy, nullptr);
  });
  CUDA_MEMCPY3D solid{};
  const auto plain_3d = [&] {
    solid = {};
    solid.srcMemoryType = CU_MEMORYTYPE_HOST;
    solid.srcHost = host.data();
    solid.srcPitch = 64;
    solid.srcHeight = 8;
    solid.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    solid.dstDevice = memory;
    solid.dstPitch = 64;
    solid.dstHeight = 8;
    solid.WidthInBytes = 32;
    solid.Height = 4;
    solid.Depth = 2;
  };
  c("cuMemcpy3D without a description", [&] { return cu.cuMemcpy3D_v2(nullptr); });
  c("cuMemcpy3D of depth 0", [&] {
    plain_3d();
    solid.Depth = 0;
    return cu.cuMemcpy3D_v2(&solid);
  });
  c("cuMemcpy3D of a height below that of the box", [&] {
    plain_3d();
    solid.srcHeight = 2;
    return cu.cuMemcpy3D_v2(&solid);
  });
  c("cuMemcpy3D of a pitch below the width", [&] {
    plain_3d();
    solid.dstPitch = 16;
    return cu.cuMemcpy3D_v2(&solid);
  });
  c("cuMemcpy3D with reserved words set", [&] {
    plain_3d();
    solid.reserved0 = &solid;
    return cu.cuMemcpy3D_v2(&solid);
  });
  c("cuMemcpy3D of a level of no array", [&] {
    plain_3d();
    solid.srcLOD = 3;
    return cu.cuMemcpy3D_v2(&solid);
  });
  c("cuMemcpy3D to nowhere", [&] {
    plain_3d();
    solid.dstDevice = kNowhere;
    return cu.cuMemcpy3D_v2(&solid);
  });
  c("cuMemcpy3DPeer without a description", [&] { return cu.cuMemcpy3DPeer(nullptr); });
  c("cuCtxSynchronize after all of them", [&] { return cu.cuCtxSynchronize(); });
  (void)at;
}

void WrongTextures(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUdeviceptr memory = 0;
  CUarray array = nullptr;
  CUtexObject texture = 0;
  CUsurfObject surface = 0;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC how{};
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&memory, 1 << 20))) return;
  const auto linear = [&] {
    resource = {};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = memory;
    resource.res.linear.format = CU_AD_FORMAT_FLOAT;
    resource.res.linear.numChannels = 1;
    resource.res.linear.sizeInBytes = 4096;
    how = {};
  };
  const auto create = [&] { return cu.cuTexObjectCreate(&texture, &resource, &how, nullptr); };
  c("cuTexObjectCreate without output", [&] {
    linear();
    return cu.cuTexObjectCreate(nullptr, &resource, &how, nullptr);
  });
  c("cuTexObjectCreate without a resource",
    [&] { return cu.cuTexObjectCreate(&texture, nullptr, &how, nullptr); });
  c("cuTexObjectCreate without a description",
    [&] { return cu.cuTexObjectCreate(&texture, &resource, nullptr, nullptr); });
  c("cuTexObjectCreate of an unknown kind", [&] {
    linear();
    resource.resType = static_cast<CUresourcetype>(99);
    return create();
  });
  c("cuTexObjectCreate of no memory", [&] {
    linear();
    resource.res.linear.devPtr = 0;
    return create();
  });
  c("cuTexObjectCreate at an address of 4", [&] {
    linear();
    resource.res.linear.devPtr += 4;
    return create();
  });
  c("cuTexObjectCreate of 0 bytes", [&] {
    linear();
    resource.res.linear.sizeInBytes = 0;
    return create();
  });
  c("cuTexObjectCreate of 3 channels", [&] {
    linear();
    resource.res.linear.numChannels = 3;
    return create();
  });
  c("cuTexObjectCreate of an unknown format", [&] {
    linear();
    resource.res.linear.format = static_cast<CUarray_format>(0x77);
    return create();
  });
  c("cuTexObjectCreate with reserved flags", [&] {
    linear();
    resource.flags = 1;
    return create();
  });
  c("cuTexObjectCreate with an unknown filter", [&] {
    linear();
    how.filterMode = static_cast<CUfilter_mode>(99);
    return create();
  });
  c("cuTexObjectCreate of a pitch of 33", [&] {
    resource = {};
    how = {};
    resource.resType = CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D.devPtr = memory;
    resource.res.pitch2D.format = CU_AD_FORMAT_UNSIGNED_INT8;
    resource.res.pitch2D.numChannels = 1;
    resource.res.pitch2D.width = 16;
    resource.res.pitch2D.height = 16;
    resource.res.pitch2D.pitchInBytes = 33;
    return create();
  });
  c("cuTexObjectCreate of no array", [&] {
    resource = {};
    how = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    return create();
  });
  c("cuTexObjectGetResourceDesc without output",
    [&] { return cu.cuTexObjectGetResourceDesc(nullptr, 1); });
  c("cuTexObjectDestroy of none", [&] { return cu.cuTexObjectDestroy(0); });
  c("cuSurfObjectDestroy of none", [&] { return cu.cuSurfObjectDestroy(0); });
  c("cuSurfObjectCreate without a resource",
    [&] { return cu.cuSurfObjectCreate(&surface, nullptr); });
  c("cuSurfObjectCreate of linear memory", [&] {
    linear();
    return cu.cuSurfObjectCreate(&surface, &resource);
  });
  CUtensorMap map{};
  cuuint64_t extent[2] = {64, 64};
  cuuint64_t stride[1] = {256};
  cuuint32_t box[2] = {16, 16};
  cuuint32_t step[2] = {1, 1};
  const auto encode = [&](CUtensorMap* out, cuuint32_t rank, CUdeviceptr at,
                          CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE) {
    return cu.cuTensorMapEncodeTiled(
        out, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, rank, reinterpret_cast<void*>(at), extent, stride,
        box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  c("cuTensorMapEncodeTiled without output", [&] { return encode(nullptr, 2, memory); });
  c("cuTensorMapEncodeTiled of rank 0", [&] { return encode(&map, 0, memory); });
  c("cuTensorMapEncodeTiled of rank 6", [&] { return encode(&map, 6, memory); });
  c("cuTensorMapEncodeTiled at NULL", [&] { return encode(&map, 2, 0); });
  c("cuTensorMapEncodeTiled at an address of 4", [&] { return encode(&map, 2, memory + 4); });
  c("cuTensorMapEncodeTiled with an unknown swizzle",
    [&] { return encode(&map, 2, memory, static_cast<CUtensorMapSwizzle>(99)); });
  c("cuTensorMapEncodeTiled of rows too wide for the swizzle",
    [&] { return encode(&map, 2, memory, CU_TENSOR_MAP_SWIZZLE_32B); });
  c("cuTensorMapEncodeTiled of a box of 512", [&] {
    box[0] = 512;
    return encode(&map, 2, memory);
  });
  c("cuTensorMapEncodeTiled of a stride of 100", [&] {
    box[0] = 16;
    stride[0] = 100;
    return encode(&map, 2, memory);
  });
  c("cuTensorMapEncodeTiled of an extent of 0", [&] {
    stride[0] = 256;
    extent[1] = 0;
    return encode(&map, 2, memory);
  });
  c("cuTensorMapReplaceAddress of a map of zeros", [&] {
    map = {};
    return cu.cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(memory + 4));
  });
  CUDA_ARRAY_DESCRIPTOR plain = Plain();
  if (!c.Has("cuArrayCreate", cu.cuArrayCreate_v2(&array, &plain))) return;
  resource = {};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  how = {};
  c("cuSurfObjectCreate of an array not made for it",
    [&] { return cu.cuSurfObjectCreate(&surface, &resource); });
  c("cuTexObjectCreate with an unknown address mode", [&] {
    how.addressMode[0] = static_cast<CUaddress_mode>(99);
    return create();
  });
  c("cuTexObjectCreate wrapping unnormalized coordinates", [&] {
    how = {};
    how.addressMode[0] = how.addressMode[1] = CU_TR_ADDRESS_MODE_WRAP;
    return create();
  });
  c("cuTexObjectCreate of an anisotropy of 100", [&] {
    how = {};
    how.maxAnisotropy = 100;
    return create();
  });
}

}  // namespace gpuloom::conformance
