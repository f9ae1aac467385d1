// SPDX-License-Identifier: Apache-2.0
// Arrays, textures and surfaces; textures of linear memory.
#include <algorithm>

#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

constexpr size_t kMostArrays = 6;

CUDA_TEXTURE_DESC Sampler() {
  CUDA_TEXTURE_DESC sampler = {};
  for (CUaddress_mode& mode : sampler.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
  sampler.filterMode = CU_TR_FILTER_MODE_POINT;
  sampler.flags = CU_TRSF_READ_AS_INTEGER;
  return sampler;
}

// Between the array and lines of words that follow each other.
CUDA_MEMCPY3D CopyOf(const ArrayObject& array) {
  CUDA_MEMCPY3D copy = {};
  copy.WidthInBytes = size_t{array.width} * 4;
  copy.Height = array.height;
  copy.Depth = 1;
  return copy;
}

void Write(World& world, const ArrayRef& array) {
  // By a kernel, when there is a surface, or from a buffer.
  const StreamRef stream = world.AnyStream();
  const uint32_t n = array->width * array->height;
  if (array->surface != 0 && world.random().Chance(50)) {
    world.Join(stream, &array->uses);
    const ModuleRef module = world.AnyModule();
    if (!module->shared) World::AddUse(stream, &module->uses);
    uint64_t surface = array->surface;
    uint32_t count = n, width = array->width, value = static_cast<uint32_t>(world.random().Next());
    void* pointers[] = {&surface, &count, &width, &value, nullptr};
    DO(cuLaunchKernel, module->Function("store"), (n + 63) / 64, 1, 1, 64, 1, 1, 0, stream->handle,
       pointers, nullptr);
    for (uint32_t i = 0; i < n; ++i) array->words[i] = value + i;
    return;
  }
  const BufferRef from = world.AnyBuffer([n](const Buffer& b) {
    return (b.OnDevice() || b.place == Place::kPinned) && b.size() >= n;
  });
  if (from == nullptr) {
    std::vector<uint32_t> words(n);
    for (uint32_t& word : words) word = static_cast<uint32_t>(world.random().Next());
    world.Finish(&array->uses);
    CUDA_MEMCPY3D copy = CopyOf(*array);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = words.data();
    copy.srcPitch = copy.WidthInBytes;
    copy.srcHeight = copy.Height;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array->array;
    DO(cuMemcpy3D_v2, &copy);
    array->words = words;
    array->uses.push_back({world.streams[0], nullptr});
    return;
  }
  world.Join(stream, &array->uses);
  world.Join(stream, &from->uses);
  CUDA_MEMCPY3D copy = CopyOf(*array);
  if (from->OnDevice()) {
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from->device;
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from->host;
  }
  copy.srcPitch = copy.WidthInBytes;
  copy.srcHeight = copy.Height;
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array->array;
  DO(cuMemcpy3DAsync_v2, &copy, stream->handle);
  std::copy(from->words.begin(), from->words.begin() + n, array->words.begin());
}

bool Make(World& world) {
  if (world.arrays.size() >= kMostArrays) return false;
  Random& random = world.random();
  auto array = std::make_shared<ArrayObject>();
  array->number = world.NextNumber();
  array->width = random.Between(1, 64);
  array->height = random.Between(1, 16);
  array->words.resize(array->width * array->height);
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
  descriptor.Width = array->width;
  descriptor.Height = array->height;
  descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  descriptor.NumChannels = 1;
  const bool has_surface = random.Chance(60);
  descriptor.Flags = has_surface ? CUDA_ARRAY3D_SURFACE_LDST : 0;
  if (random.Chance(30)) {
    DO(cuMipmappedArrayCreate, &array->mipmap, &descriptor, array->width > 1 ? 2 : 1);
    DO(cuMipmappedArrayGetLevel, &array->array, array->mipmap, 0);
  } else {
    DO(cuArray3DCreate_v2, &array->array, &descriptor);
  }
  world.arrays.push_back(array);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array->array;
  if (has_surface) DO(cuSurfObjectCreate, &array->surface, &resource);
  const CUDA_TEXTURE_DESC sampler = Sampler();
  DO(cuTexObjectCreate, &array->texture, &resource, &sampler, nullptr);
  world.journal().Note("array %u, %u x %u", array->number, array->width, array->height);
  Write(world, array);
  return true;
}

bool WriteOne(World& world) {
  if (world.arrays.empty()) return false;
  const ArrayRef array = world.random().Of(world.arrays);
  world.journal().Note("array %u", array->number);
  Write(world, array);
  return true;
}

bool Read(World& world) {
  if (world.arrays.empty()) return false;
  const ArrayRef array = world.random().Of(world.arrays);
  world.journal().Note("array %u", array->number);
  const uint32_t n = array->width * array->height;
  const BufferRef to = world.AnyBuffer([n](const Buffer& b) {
    return (b.OnDevice() || b.place == Place::kPinned) && b.size() >= n;
  });
  if (to == nullptr) {
    std::vector<uint32_t> words(n);
    world.Finish(&array->uses);
    CUDA_MEMCPY3D copy = CopyOf(*array);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array->array;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = words.data();
    copy.dstPitch = copy.WidthInBytes;
    copy.dstHeight = copy.Height;
    DO(cuMemcpy3D_v2, &copy);
    if (words != array->words)
      Fail("array " + std::to_string(array->number) + " holds other words");
    return true;
  }
  const StreamRef stream = world.AnyStream();
  world.journal().Note("to %u in stream %u", to->number, stream->number);
  world.Join(stream, &array->uses);
  world.Join(stream, &to->uses);
  if (world.random().Chance(50)) {
    const ModuleRef module = world.AnyModule();
    if (!module->shared) World::AddUse(stream, &module->uses);
    uint64_t address = to->device, texture = array->texture;
    uint32_t count = n, width = array->width;
    void* pointers[] = {&address, &count, &texture, &width, nullptr};
    DO(cuLaunchKernel, module->Function("fetch"), (n + 63) / 64, 1, 1, 64, 1, 1, 0, stream->handle,
       pointers, nullptr);
  } else {
    CUDA_MEMCPY3D copy = CopyOf(*array);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array->array;
    if (to->OnDevice()) {
      copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
      copy.dstDevice = to->device;
    } else {
      copy.dstMemoryType = CU_MEMORYTYPE_HOST;
      copy.dstHost = to->host;
    }
    copy.dstPitch = copy.WidthInBytes;
    copy.dstHeight = copy.Height;
    DO(cuMemcpy3DAsync_v2, &copy, stream->handle);
  }
  std::copy(array->words.begin(), array->words.end(), to->words.begin());
  return true;
}

bool Destroy(World& world) {
  if (world.arrays.empty()) return false;
  const ArrayRef array = world.random().Of(world.arrays);
  world.journal().Note("array %u", array->number);
  world.DestroyArray(array);
  return true;
}

// A texture that looks at a buffer, for one launch.
bool Line(World& world) {
  const BufferRef from = world.AnyBuffer([](const Buffer& b) { return b.place == Place::kDevice; });
  const BufferRef to = world.AnyBuffer(
      [&](const Buffer& b) { return b.OnDevice() && from != nullptr && b.number != from->number; });
  if (from == nullptr || to == nullptr) return false;
  const uint32_t n = std::min({from->size(), to->size(), 1024u});
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_LINEAR;
  resource.res.linear.devPtr = from->device;
  resource.res.linear.format = CU_AD_FORMAT_UNSIGNED_INT32;
  resource.res.linear.numChannels = 1;
  resource.res.linear.sizeInBytes = size_t{n} * 4;
  const CUDA_TEXTURE_DESC sampler = Sampler();
  CUtexObject texture = 0;
  DO(cuTexObjectCreate, &texture, &resource, &sampler, nullptr);
  const StreamRef stream = world.AnyStream();
  world.journal().Note("%u to %u in stream %u", from->number, to->number, stream->number);
  world.Join(stream, &from->uses);
  world.Join(stream, &to->uses);
  const ModuleRef module = world.AnyModule();
  if (!module->shared) World::AddUse(stream, &module->uses);
  uint64_t address = to->device, handle = texture;
  uint32_t count = n;
  void* pointers[] = {&address, &count, &handle, nullptr};
  DO(cuLaunchKernel, module->Function("fetch_line"), (n + 63) / 64, 1, 1, 64, 1, 1, 0,
     stream->handle, pointers, nullptr);
  std::copy(from->words.begin(), from->words.begin() + n, to->words.begin());
  DO(cuStreamSynchronize, stream->handle);
  DO(cuTexObjectDestroy, texture);
  return true;
}

}  // namespace

std::vector<Step> ArraySteps() {
  return {{"array.make", 4, Make},
          {"array.write", 5, WriteOne},
          {"array.read", 6, Read},
          {"array.destroy", 3, Destroy},
          {"texture.line", 2, Line}};
}

}  // namespace gpuloom::sequences
