// SPDX-License-Identifier: Apache-2.0
// Memory of every kind: granted, pinned, mapped, shared, laid out by the driver.
#include <algorithm>

#include "tests/hostile/requests.h"

namespace gpuloom::testing {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGranuleBytes = 2 * kMiB;
constexpr uint64_t kMappedRoom = 4 * kGranuleBytes;
constexpr uint32_t kFormatFloat = 0x20;    // CU_AD_FORMAT_FLOAT
constexpr uint32_t kSurfaceLoadStore = 2;  // CUDA_ARRAY3D_SURFACE_LDST

}  // namespace

void Requests::FillMemory() {
  On<wire::MemAlloc>([this](auto* request, Draft* draft) {
    // Mostly little; sometimes more than the quota.
    request->size_bytes =
        random_.Chance(10) ? uint64_t{1} << (20 + random_.Below(44)) : 1 + random_.Below(3 << 20);
    OnAnswer<wire::MemAlloc>(draft, [this, size = request->size_bytes](bool ok, const auto& reply) {
      if (ok) memory_.push_back({static_cast<uint64_t>(reply.address), size});
    });
    return memory_.size() < 8;
  });
  const auto free = [this](auto* request, Draft*) {
    Part part;
    if (!frees_ || !Take(&memory_, &part)) return false;
    request->address = wire::DevicePtr{part.begin};
    return true;
  };
  On<wire::MemFree>(free);
  On<wire::MemFreeLater>(free);
  On<wire::MemInfo>([](auto*, Draft*) { return true; });
  On<wire::HostRegister>([this](auto* request, Draft* draft) {
    const uint32_t slot = pinned_slots_.New(&random_);
    const Part part = {host_begin_ + kPinnedBegin + slot * kPinnedRoom,
                       uint64_t{4096} << random_.Below(5)};
    if (random_.Chance(90)) std::memset(arena_ + (part.begin - host_begin_), 1, part.size_bytes);
    *request = {wire::HostPtr{part.begin}, random_.Chance(3) ? 512 * kMiB : part.size_bytes};
    if (!Expect(&pinned_slots_, slot, draft)) return false;
    OnAnswer<wire::HostRegister>(draft, [this, slot, part](bool ok, const auto&) {
      pinned_slots_.Answer(slot, ok);
      if (ok) registered_[slot] = part;
    });
    return true;
  });
  On<wire::HostUnregister>([this](auto* request, Draft*) {
    const uint32_t slot = pinned_slots_.Used(&random_);
    if (slot == 0 || !frees_) return false;
    const Part part = registered_[slot];
    registered_.erase(slot);
    pinned_slots_.Drop(slot);
    *request = {wire::HostPtr{part.begin}, part.size_bytes};
    return true;
  });
  On<wire::Copy>([this](auto* request, Draft*) {
    const auto kind = static_cast<wire::CopyKind>(random_.Below(4));
    const bool to_device =
        kind == wire::CopyKind::kHostToDevice || kind == wire::CopyKind::kDeviceToDevice;
    const bool from_device =
        kind == wire::CopyKind::kDeviceToHost || kind == wire::CopyKind::kDeviceToDevice;
    const Part to = to_device ? AnyDevicePart(kMiB) : AnyHostPart(kMiB);
    const Part from = from_device ? AnyDevicePart(kMiB) : AnyHostPart(kMiB);
    *request = {AnyStream(), kind, to.begin, from.begin, std::min(to.size_bytes, from.size_bytes)};
    return !memory_.empty();
  });
  On<wire::CopyInline>([this](auto* request, Draft* draft) {
    const Part to = AnyDevicePart(60000);
    *request = {AnyStream(), 0, wire::DevicePtr{to.begin}};
    draft->payload = Bytes(to.size_bytes);
    return !memory_.empty();
  });
  On<wire::Fill>([this](auto* request, Draft*) {
    const Part to = AnyPart(kMiB);
    const uint32_t element = 1u << random_.Below(3);
    *request = {AnyStream(), element, random_.Below(256), 0, to.begin, to.size_bytes / element};
    return !memory_.empty() && !registered_.empty();
  });
  On<wire::CopyBlock>([this](auto* request, Draft*) {
    const Part to = AnyDevicePart(65536), from = AnyDevicePart(65536);
    uint64_t width = 1 + random_.Below(64);
    uint64_t height = std::min(to.size_bytes, from.size_bytes) / 64;
    request->stream = AnyStream();
    request->copy.to = {wire::GraphCopySpace::kDevice, 0, to.begin, 64, height, 0, 0, 0};
    request->copy.from = {wire::GraphCopySpace::kDevice, 0, from.begin, 64, height, 0, 0, 0};
    if (const uint32_t array = AnyArray(); array != 0 && random_.Chance(40)) {
      auto& end = random_.Chance(50) ? request->copy.to : request->copy.from;
      end = {wire::GraphCopySpace::kArray, array, 0, 0, 0, 0, 0, 0};
      width = 4;
      height = 1;
    }
    request->copy.width_bytes = width;
    request->copy.height = height;
    request->copy.depth = 1;
    return !memory_.empty() && height != 0;
  });
  On<wire::FillBlock>([this](auto* request, Draft*) {
    const Part to = AnyDevicePart(65536);
    request->stream = AnyStream();
    request->fill = {to.begin,           64, 1 + random_.Below(16), to.size_bytes / 64,
                     random_.Below(256), 4};
    return !memory_.empty() && to.size_bytes >= 64;
  });
}

void Requests::FillSharing() {
  On<wire::AddressSpace>([this](auto*, Draft* draft) {
    OnAnswer<wire::AddressSpace>(draft, [this](bool ok, const auto& reply) {
      if (ok) space_ = {reply.begin, reply.size_bytes};
    });
    return true;
  });
  On<wire::PhysicalCreate>([this](auto* request, Draft* draft) {
    const uint32_t physical = physicals_.New(&random_);
    request->physical = wire::PhysicalId{physical};
    request->size_bytes = random_.Chance(10) ? uint64_t{1} << (21 + random_.Below(43))
                                             : kGranuleBytes * (1 + random_.Below(2));
    physical_bytes_[physical] = request->size_bytes;
    return Expect(&physicals_, physical, draft);
  });
  On<wire::PhysicalRelease>([this](auto* request, Draft*) {
    const uint32_t physical = physicals_.Used(&random_);
    physicals_.Drop(physical);
    request->physical = wire::PhysicalId{physical};
    return physical != 0;
  });
  const auto learn_token = [this](bool ok, const auto& reply) {
    if (ok) tokens_.push_back(reply.token);
  };
  On<wire::PhysicalExport>([this, learn_token](auto* request, Draft* draft) {
    request->physical = wire::PhysicalId{physicals_.Used(&random_)};
    OnAnswer<wire::PhysicalExport>(draft, learn_token);
    return request->physical != wire::PhysicalId{0};
  });
  On<wire::PhysicalImport>([this](auto* request, Draft* draft) {
    const uint32_t physical = physicals_.New(&random_);
    *request = {wire::PhysicalId{physical}, 0, AnyToken()};
    if (!Expect(&physicals_, physical, draft)) return false;
    OnAnswer<wire::PhysicalImport>(draft, [this, physical](bool ok, const auto& reply) {
      physicals_.Answer(physical, ok);
      if (ok) physical_bytes_[physical] = reply.size_bytes;
    });
    return true;
  });
  On<wire::MemExport>([this, learn_token](auto* request, Draft* draft) {
    if (memory_.empty()) return false;
    request->address = wire::DevicePtr{random_.Of(memory_).begin};
    OnAnswer<wire::MemExport>(draft, learn_token);
    return true;
  });
  On<wire::MemMap>([this](auto* request, Draft* draft) {
    const uint32_t slot = mapped_slots_.New(&random_), physical = physicals_.Used(&random_);
    if (slot == 0 || physical == 0 || space_.begin == 0) return false;
    const Part part = {space_.begin + slot * kMappedRoom, physical_bytes_[physical]};
    if (part.size_bytes > kMappedRoom) return false;
    *request = {wire::DevicePtr{part.begin}, part.size_bytes, wire::PhysicalId{physical}, 0};
    mapped_slots_.Add(slot, false);
    OnAnswer<wire::MemMap>(draft, [this, slot, part](bool ok, const auto&) {
      mapped_slots_.Answer(slot, ok);
      if (ok) mapped_[slot] = part;
    });
    return true;
  });
  On<wire::MemUnmap>([this](auto* request, Draft*) {
    const uint32_t slot = mapped_slots_.Used(&random_);
    if (slot == 0 || !frees_) return false;
    mapped_slots_.Drop(slot);
    *request = {wire::DevicePtr{mapped_[slot].begin}, mapped_[slot].size_bytes};
    return true;
  });
  On<wire::MemSetAccess>([this](auto* request, Draft*) {
    const uint32_t slot = mapped_slots_.Used(&random_);
    if (slot == 0 || !frees_) return false;
    const uint32_t flags = random_.Of<uint32_t>({0, 1, 3, 3});
    *request = {wire::DevicePtr{mapped_[slot].begin}, mapped_[slot].size_bytes, flags, 0};
    return true;
  });
  On<wire::ManagedSpace>([this](auto*, Draft* draft) {
    OnAnswer<wire::ManagedSpace>(draft, [this](bool ok, const auto& reply) {
      if (ok) managed_space_ = {reply.begin, reply.size_bytes};
    });
    return true;
  });
  // Physical memory; the registered parts of the arena are too small.
  On<wire::ManagedMap>([this](auto* request, Draft* draft) {
    const uint32_t slot = managed_slots_.New(&random_), physical = physicals_.Used(&random_);
    if (slot == 0 || physical == 0 || managed_space_.begin == 0) return false;
    const Part part = {managed_space_.begin + slot * wire::kManagedStepBytes,
                       physical_bytes_[physical]};
    if (part.size_bytes > wire::kManagedStepBytes) return false;
    *request = {wire::DevicePtr{part.begin}, part.size_bytes, wire::PhysicalId{physical}, 0, {}};
    managed_slots_.Add(slot, false);
    OnAnswer<wire::ManagedMap>(draft, [this, slot, part](bool ok, const auto&) {
      managed_slots_.Answer(slot, ok);
      if (ok) managed_[slot] = part;
    });
    return true;
  });
  On<wire::ManagedUnmap>([this](auto* request, Draft*) {
    const uint32_t slot = managed_slots_.Used(&random_);
    if (slot == 0 || !frees_) return false;
    managed_slots_.Drop(slot);
    *request = {wire::DevicePtr{managed_[slot].begin}, managed_[slot].size_bytes};
    return true;
  });
  On<wire::EventShare>([this, learn_token](auto* request, Draft* draft) {
    request->event = wire::EventId{events_.Used(&random_)};
    OnAnswer<wire::EventShare>(draft, learn_token);
    return request->event != wire::EventId{0};
  });
  On<wire::EventOpen>([this](auto* request, Draft* draft) {
    *request = {wire::EventId{events_.New(&random_)}, 0, AnyToken()};
    return Expect(&events_, static_cast<uint32_t>(request->event), draft);
  });
  On<wire::EventDone>([this](auto* request, Draft*) {
    *request = {wire::EventId{events_.Used(&random_)}, random_.Below(2)};
    return request->event != wire::EventId{0};
  });
  On<wire::PoolShare>([this, learn_token](auto* request, Draft* draft) {
    request->pool = wire::PoolId{pools_.New(&random_)};
    const auto pool = static_cast<uint32_t>(request->pool);
    if (pool == 0) return false;
    pools_.Add(pool, false);
    OnAnswer<wire::PoolShare>(draft, [this, learn_token, pool](bool ok, const auto& reply) {
      pools_.Answer(pool, ok);
      learn_token(ok, reply);
    });
    return true;
  });
  On<wire::PoolOpen>([this](auto* request, Draft* draft) {
    *request = {wire::PoolId{pools_.New(&random_)}, 0, AnyToken()};
    return Expect(&pools_, static_cast<uint32_t>(request->pool), draft);
  });
  On<wire::PoolClose>([this](auto* request, Draft*) {
    const uint32_t pool = pools_.Used(&random_);
    pools_.Drop(pool);
    request->pool = wire::PoolId{pool};
    return pool != 0;
  });
  On<wire::PoolPut>([this](auto* request, Draft* draft) {
    const uint32_t pool = pools_.Used(&random_);
    if (memory_.empty() || pool == 0) return false;
    *request = {wire::PoolId{pool}, 0, wire::DevicePtr{random_.Of(memory_).begin}};
    OnAnswer<wire::PoolPut>(draft, [this, pool](bool ok, const auto& reply) {
      if (ok) pool_memory_.emplace_back(pool, reply.memory);
    });
    return true;
  });
  On<wire::PoolTake>([this](auto* request, Draft* draft) {
    const uint32_t pool = pools_.Used(&random_);
    if (pool == 0) return false;
    const uint64_t memory =
        pool_memory_.empty() ? random_.Below(3) : random_.Of(pool_memory_).second;
    *request = {wire::PoolId{pool}, 0, memory};
    OnAnswer<wire::PoolTake>(draft, [this](bool ok, const auto& reply) {
      if (ok) memory_.push_back({static_cast<uint64_t>(reply.address), reply.size_bytes});
    });
    return true;
  });
}

uint32_t Requests::AnyArray() {
  return random_.Chance(70) ? arrays_.Used(&random_) : levels_.Used(&random_);
}

wire::TextureCreate::Request Requests::AnyLook(uint32_t array) {
  wire::TextureCreate::Request look{};
  const Part part = AnyDevicePart(65536);
  look.resource =
      array != 0 && random_.Chance(50) ? wire::ViewResource::kArray : wire::ViewResource::kLinear;
  look.array = wire::ArrayId{array};
  look.address = part.begin & ~uint64_t{511};
  look.size_bytes = part.size_bytes;
  look.format = kFormatFloat;
  look.channels = 1;
  return look;
}

void Requests::FillArrays() {
  On<wire::ArrayCreate>([this](auto* request, Draft* draft) {
    const bool levels = random_.Chance(30);
    Names* names = levels ? &mipmaps_ : &arrays_;
    request->array = wire::ArrayId{names->New(&random_)};
    request->levels = levels ? 1 + random_.Below(3) : 0;
    request->width = 1 + random_.Below(256);
    request->height = random_.Below(64);
    request->format = kFormatFloat;
    request->channels = 1u << random_.Below(3);
    request->flags = random_.Chance(50) ? kSurfaceLoadStore : 0;
    return Expect(names, static_cast<uint32_t>(request->array), draft);
  });
  On<wire::ArrayLevel>([this](auto* request, Draft* draft) {
    const uint32_t whole = mipmaps_.Used(&random_);
    if (whole == 0) return false;
    *request = {wire::ArrayId{whole}, wire::ArrayId{levels_.New(&random_)}, random_.Below(3)};
    return Expect(&levels_, static_cast<uint32_t>(request->array), draft, whole);
  });
  On<wire::ArrayDestroy>([this](auto* request, Draft*) {
    Names* names = random_.Chance(50) ? &arrays_ : &mipmaps_;
    const uint32_t array = names->Used(&random_);
    names->Drop(array);
    levels_.DropOf(array);
    request->array = wire::ArrayId{array};
    return array != 0;
  });
  On<wire::TextureCreate>([this](auto* request, Draft* draft) {
    const uint32_t array = AnyArray();
    *request = AnyLook(array);
    OnAnswer<wire::TextureCreate>(draft, [this](bool ok, const auto& reply) {
      if (ok) textures_.push_back(reply.texture);
    });
    return array != 0 || !memory_.empty();
  });
  On<wire::TextureDestroy>(
      [this](auto* request, Draft*) { return Take(&textures_, &request->texture); });
  On<wire::SurfaceCreate>([this](auto* request, Draft* draft) {
    request->array = wire::ArrayId{AnyArray()};
    OnAnswer<wire::SurfaceCreate>(draft, [this](bool ok, const auto& reply) {
      if (ok) surfaces_.push_back(reply.surface);
    });
    return request->array != wire::ArrayId{0};
  });
  On<wire::SurfaceDestroy>(
      [this](auto* request, Draft*) { return Take(&surfaces_, &request->surface); });
  On<wire::TensorMapEncode>([this](auto* request, Draft* draft) {
    draft->learn = [this](const wire::ReplySlot& answer) {
      if (answer.result != 0) return;
      tensor_maps_.emplace_back(answer.payload, answer.payload + wire::kTensorMapBytes);
    };
    request->rank = 2;
    request->data_type = 7;  // CU_TENSOR_MAP_DATA_TYPE_FLOAT32
    request->address = AnyDevicePart(65536).begin & ~uint64_t{15};
    for (uint32_t i = 0; i < 2; ++i) {
      request->dimensions[i] = 64;
      request->strides_bytes[i] = 256;
      request->box[i] = 16;
      request->element_strides[i] = 1;
    }
    return !memory_.empty();
  });
  On<wire::TensorMapReplaceAddress>([this](auto* request, Draft*) {
    if (tensor_maps_.empty() || memory_.empty()) return false;
    request->address = AnyDevicePart(65536).begin & ~uint64_t{15};
    std::memcpy(request->map, random_.Of(tensor_maps_).data(), sizeof(request->map));
    return true;
  });
}

}  // namespace gpuloom::testing
