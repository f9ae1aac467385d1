// SPDX-License-Identifier: Apache-2.0
// Memory of every kind: made, looked at, freed.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

constexpr size_t kMostBuffers = 24;
constexpr size_t kMostWords = size_t{3} << 20;
constexpr size_t kGranuleBytes = size_t{2} << 20;

std::vector<uint32_t> Pattern(World& world, uint32_t count) {
  std::vector<uint32_t> words(count);
  Random random(world.random().Next());
  for (uint32_t& word : words) word = static_cast<uint32_t>(random.Next());
  return words;
}

bool HasRoom(World& world) {
  return world.buffers.size() < kMostBuffers && world.words() < kMostWords;
}

uint32_t AnySize(World& world) {
  const uint32_t number = world.random().Below(100);
  if (number < 65) return world.random().Between(1, 2048);
  if (number < 85) return world.random().Between(2048, 64u << 10);
  return world.random().Between(256u << 10, 700u << 10);
}

BufferRef NewBuffer(World& world, Place place, uint32_t size) {
  auto buffer = std::make_shared<Buffer>();
  buffer->place = place;
  buffer->number = world.NextNumber();
  buffer->words.resize(size);
  world.buffers.push_back(buffer);
  world.journal().Note("%s %u of %u words", NameOf(place), buffer->number, size);
  return buffer;
}

bool AllocDevice(World& world) {
  if (!HasRoom(world)) return false;
  const BufferRef buffer = NewBuffer(world, Place::kDevice, AnySize(world));
  if (world.random().Chance(20)) {
    size_t pitch = 0;
    DO(cuMemAllocPitch_v2, &buffer->device, &pitch, size_t{buffer->size()} * 4, 1, 4);
  } else {
    DO(cuMemAlloc_v2, &buffer->device, size_t{buffer->size()} * 4);
  }
  Fill(world, buffer);
  return true;
}

bool AllocPooled(World& world) {
  if (!HasRoom(world)) return false;
  const BufferRef buffer = NewBuffer(world, Place::kPooled, AnySize(world));
  const StreamRef stream = world.AnyStream();
  const size_t bytes = size_t{buffer->size()} * 4;
  if (!world.pools.empty() && world.random().Chance(50)) {
    buffer->pool = world.random().Of(world.pools);
    DO(cuMemAllocFromPoolAsync, &buffer->device, bytes, buffer->pool->handle, stream->handle);
  } else {
    DO(cuMemAllocAsync, &buffer->device, bytes, stream->handle);
  }
  buffer->uses.push_back({stream, nullptr});
  Fill(world, buffer);
  return true;
}

bool AllocManaged(World& world) {
  if (!HasRoom(world)) return false;
  const BufferRef buffer = NewBuffer(world, Place::kManaged, std::min(AnySize(world), 64u << 10));
  const unsigned flags = world.random().Chance(50) ? CU_MEM_ATTACH_GLOBAL : CU_MEM_ATTACH_HOST;
  DO(cuMemAllocManaged, &buffer->device, size_t{buffer->size()} * 4, flags);
  buffer->host = reinterpret_cast<uint32_t*>(buffer->device);
  if (flags == CU_MEM_ATTACH_HOST) {
    const StreamRef stream = world.AnyStream();
    DO(cuStreamAttachMemAsync, stream->handle, buffer->device, 0, CU_MEM_ATTACH_GLOBAL);
    DO(cuStreamSynchronize, stream->handle);
  }
  Fill(world, buffer);
  return true;
}

bool AllocPinned(World& world) {
  if (!HasRoom(world)) return false;
  const BufferRef buffer = NewBuffer(world, Place::kPinned, std::min(AnySize(world), 128u << 10));
  const size_t bytes = size_t{buffer->size()} * 4;
  void* host = nullptr;
  if (world.random().Chance(30)) {
    DO(cuMemAllocHost_v2, &host, bytes);
  } else {
    unsigned flags = CU_MEMHOSTALLOC_DEVICEMAP;
    if (world.random().Chance(30)) flags |= CU_MEMHOSTALLOC_PORTABLE;
    DO(cuMemHostAlloc, &host, bytes, flags);
  }
  buffer->host = static_cast<uint32_t*>(host);
  DO(cuMemHostGetDevicePointer_v2, &buffer->device, host, 0);
  Fill(world, buffer);
  return true;
}

bool Register(World& world) {
  if (!HasRoom(world)) return false;
  const uint32_t size = std::min(AnySize(world), 64u << 10);
  const BufferRef buffer = NewBuffer(world, Place::kRegistered, size);
  const size_t bytes = size_t{size} * 4;
  const size_t offset = world.random().Chance(50) ? 0 : world.random().Below(16) * 64;
  buffer->pages_bytes = (offset + bytes + 4095) / 4096 * 4096;
  buffer->pages = mmap(nullptr, buffer->pages_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer->pages == MAP_FAILED) Fail("no memory to register");
  buffer->host = reinterpret_cast<uint32_t*>(static_cast<char*>(buffer->pages) + offset);
  const auto words = Pattern(world, size);
  std::memcpy(buffer->host, words.data(), bytes);
  DO(cuMemHostRegister_v2, buffer->host, bytes, CU_MEMHOSTREGISTER_DEVICEMAP);
  DO(cuMemHostGetDevicePointer_v2, &buffer->device, buffer->host, 0);
  buffer->words = words;
  return true;
}

CUmemAllocationProp PhysicalProperties(World& world) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = world.shared().device;
  return properties;
}

bool Map(World& world) {
  if (!HasRoom(world)) return false;
  const CUmemAllocationProp properties = PhysicalProperties(world);
  const uint32_t size = world.random().Chance(80) ? 4096 : (kGranuleBytes / 4) + 1000;
  const BufferRef buffer = NewBuffer(world, Place::kMapped, size);
  const size_t bytes = (size_t{size} * 4 + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  buffer->reserved_bytes = bytes;
  DO(cuMemCreate, &buffer->physical, bytes, &properties, 0);
  DO(cuMemAddressReserve, &buffer->device, bytes, 0, 0, 0);
  DO(cuMemMap, buffer->device, bytes, 0, buffer->physical, 0);
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  DO(cuMemSetAccess, buffer->device, bytes, &access, 1);
  if (world.random().Chance(50)) {
    // The mapping keeps it.
    DO(cuMemRelease, buffer->physical);
    buffer->physical = 0;
  }
  Fill(world, buffer);
  return true;
}

// The same physical memory elsewhere.
bool MapElsewhere(World& world) {
  const BufferRef buffer =
      world.AnyBuffer([](const Buffer& b) { return b.place == Place::kMapped && b.physical != 0; });
  if (buffer == nullptr) return false;
  world.journal().Note("mapped %u", buffer->number);
  world.Finish(&buffer->uses);
  const size_t bytes = buffer->reserved_bytes;
  CUdeviceptr elsewhere = 0;
  DO(cuMemAddressReserve, &elsewhere, bytes, 0, 0, 0);
  // Graphs name the old place.
  for (size_t i = world.execs.size(); i-- > 0;) {
    for (const BufferRef& used : world.execs[i]->buffers) {
      if (used != buffer) continue;
      world.DestroyExec(world.execs[i]);
      break;
    }
  }
  // An executable graph of another thread has no buffers of ours.
  const bool both = world.random().Chance(50);  // for a while
  if (!both) DO(cuMemUnmap, buffer->device, bytes);
  DO(cuMemMap, elsewhere, bytes, 0, buffer->physical, 0);
  CUmemAccessDesc access = {};
  access.location = PhysicalProperties(world).location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  DO(cuMemSetAccess, elsewhere, bytes, &access, 1);
  if (both) DO(cuMemUnmap, buffer->device, bytes);
  DO(cuMemAddressFree, buffer->device, bytes);
  buffer->device = elsewhere;
  return true;
}

bool FreeAny(World& world) {
  if (world.buffers.empty()) return false;
  world.Free(world.random().Of(world.buffers));
  return true;
}

bool VerifyAny(World& world) {
  if (world.buffers.empty()) return false;
  const BufferRef buffer = world.random().Of(world.buffers);
  world.journal().Note("%s %u", NameOf(buffer->place), buffer->number);
  world.Verify(buffer);
  return true;
}

bool Advise(World& world) {
  const BufferRef buffer =
      world.AnyBuffer([](const Buffer& b) { return b.place == Place::kManaged; });
  if (buffer == nullptr) return false;
  const size_t bytes = size_t{buffer->size()} * 4;
  CUmemLocation location = {};
  location.type =
      world.random().Chance(50) ? CU_MEM_LOCATION_TYPE_DEVICE : CU_MEM_LOCATION_TYPE_HOST;
  location.id = 0;
  const CUmem_advise advice = world.random().Chance(50) ? CU_MEM_ADVISE_SET_PREFERRED_LOCATION
                                                        : CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
  DO(cuMemAdvise_v2, buffer->device, bytes, advice, location);
  if (world.random().Chance(50)) {
    const StreamRef stream = world.AnyStream();
    world.Join(stream, &buffer->uses);
    DO(cuMemPrefetchAsync_v2, buffer->device, bytes, location, 0, stream->handle);
  }
  return true;
}

bool MakePool(World& world) {
  if (world.pools.size() >= 3) return false;
  auto pool = std::make_shared<PoolObject>();
  pool->number = world.NextNumber();
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = world.shared().device;
  DO(cuMemPoolCreate, &pool->handle, &properties);
  uint64_t threshold = world.random().Chance(50) ? UINT64_MAX : 0;
  DO(cuMemPoolSetAttribute, pool->handle, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
  world.pools.push_back(pool);
  world.journal().Note("pool %u", pool->number);
  return true;
}

// What is allocated from it stays until it is freed.
bool DestroyPool(World& world) {
  if (world.pools.empty()) return false;
  const PoolRef pool = world.random().Of(world.pools);
  world.journal().Note("pool %u", pool->number);
  // An allocation keeps the driver's pool; it must be freed, though, before the context ends.
  Remove(&world.pools, pool);
  DO(cuMemPoolDestroy, pool->handle);
  return true;
}

bool TrimPool(World& world) {
  CUmemoryPool pool = nullptr;
  if (!world.pools.empty() && world.random().Chance(60)) {
    pool = world.random().Of(world.pools)->handle;
  } else {
    DO(cuDeviceGetDefaultMemPool, &pool, world.shared().device);
  }
  DO(cuMemPoolTrimTo, pool, 0);
  return true;
}

bool AskAboutPointer(World& world) {
  if (world.buffers.empty()) return false;
  const BufferRef buffer = world.random().Of(world.buffers);
  if (buffer->place == Place::kRegistered || buffer->place == Place::kMapped) return false;
  unsigned type = 0;
  const CUdeviceptr inside = buffer->device + world.random().Below(buffer->size()) * 4;
  DO(cuPointerGetAttribute, &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside);
  if (buffer->place != Place::kManaged &&
      (type == CU_MEMORYTYPE_HOST) != (buffer->place == Place::kPinned)) {
    Fail(std::string("a pointer to ") + NameOf(buffer->place) + " memory has memory type " +
         std::to_string(type));
  }
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  DO(cuMemGetAddressRange_v2, &begin, &bytes, inside);
  if (begin != buffer->device || bytes < size_t{buffer->size()} * 4) {
    Fail("the range of " + std::string(NameOf(buffer->place)) + " " +
         std::to_string(buffer->number) + " is not what was allocated");
  }
  return true;
}

bool AskForFree(World&) {
  size_t free_bytes = 0, total_bytes = 0;
  DO(cuMemGetInfo_v2, &free_bytes, &total_bytes);
  if (free_bytes > total_bytes) Fail("more memory is free than there is");
  return true;
}

}  // namespace

void Fill(World& world, const BufferRef& buffer) {
  Random& random = world.random();
  const auto words = Pattern(world, buffer->size());
  const size_t bytes = words.size() * 4;
  if (buffer->host != nullptr && random.Chance(70)) {
    world.Finish(&buffer->uses);
    std::memcpy(buffer->host, words.data(), bytes);
    buffer->words = words;
    return;
  }
  switch (random.Below(3)) {
    case 0: {
      const StreamRef stream = world.AnyStream();
      world.Join(stream, &buffer->uses);
      // From pageable memory, which may be used again at once.
      DO(cuMemcpyHtoDAsync_v2, buffer->device, words.data(), bytes, stream->handle);
      buffer->words = words;
      return;
    }
    case 1:
      world.Finish(&buffer->uses);
      // Staged when it returns; the rest follows in the legacy stream.
      DO(cuMemcpyHtoD_v2, buffer->device, words.data(), bytes);
      buffer->words = words;
      buffer->uses.push_back({world.streams[0], nullptr});
      return;
    default: {
      const StreamRef stream = world.AnyStream();
      world.Join(stream, &buffer->uses);
      DO(cuMemsetD32Async, buffer->device, words[0], words.size(), stream->handle);
      std::fill(buffer->words.begin(), buffer->words.end(), words[0]);
    }
  }
}

std::vector<Step> MemorySteps() {
  return {{"memory.device", 8, AllocDevice},   {"memory.pooled", 10, AllocPooled},
          {"memory.managed", 4, AllocManaged}, {"memory.pinned", 6, AllocPinned},
          {"memory.register", 3, Register},    {"memory.map", 3, Map},
          {"memory.remap", 2, MapElsewhere},   {"memory.free", 26, FreeAny},
          {"memory.verify", 20, VerifyAny},    {"memory.advise", 3, Advise},
          {"pool.make", 2, MakePool},          {"pool.destroy", 1, DestroyPool},
          {"pool.trim", 2, TrimPool},          {"memory.pointer", 4, AskAboutPointer},
          {"memory.info", 1, AskForFree}};
}

}  // namespace gpuloom::sequences
