// SPDX-License-Identifier: Apache-2.0
// Arrays: charged by the scheduler, made and cleared by a worker. The driver cuts them from pools of
// its own, where a neighbour's array may have lain, so each is cleared before its tenant can reach
// it.
#include "agent/executor/image/array.h"

#include <bit>
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/device_charge.h"
#include "agent/executor/device/internal_stream.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/image/arrays.h"
#include "proto/cuda/array_format.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {
namespace {

// Larger than CUDA allows in any direction.
constexpr uint64_t kMaxExtent = 1u << 20;
// More than log2 of kMaxExtent: no array has so many levels.
constexpr uint32_t kMaxLevels = 32;
// The driver cuts arrays from its pools in pieces; the charge is an upper bound.
constexpr uint64_t kChargeStepBytes = 64u << 10;

uint64_t RoundUp(uint64_t number, uint64_t step) { return (number + step - 1) / step * step; }

// Sparse and deferred arrays, which have no memory of their own, are not offered.
constexpr uint32_t kOfferedFlags = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST |
                                   CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
                                   CUDA_ARRAY3D_COLOR_ATTACHMENT;

struct Extent {
  uint64_t width;
  uint64_t height;
  uint64_t depth;
};

// The number of layers and faces is the same at all levels; everything else halves from level to
// level.
Extent ExtentOf(const wire::ArrayCreate::Request& r, uint32_t level) {
  const bool layered = (r.flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
  const auto halved = [level](uint64_t n) { return std::max<uint64_t>(n >> level, 1); };
  return {halved(r.width), halved(r.height),
          layered ? std::max<uint64_t>(r.depth, 1) : halved(r.depth)};
}

// Fills the array with zeros, and waits; on a worker. By copies, because no memset takes an array.
// The zeros are pageable, so the driver has read them when a copy's call returns. Not in a stream of
// its own: the driver would wait for all that runs when it has none to spare (driver_objects.h).
CUresult Clear(const Driver& cuda, CUstream stream, CUarray array, const Extent& extent,
               uint32_t element_bytes) {
  static const uint8_t kZeros[1u << 20] = {};
  CUresult result = CUDA_SUCCESS;
  // As much at a time as there are zeros: some bytes of a row, some rows, or some whole slices.
  const uint64_t row_bytes = extent.width * element_bytes;
  const uint64_t piece_bytes = std::min<uint64_t>(row_bytes, sizeof(kZeros));
  const uint64_t rows =
      std::min<uint64_t>(std::max<uint64_t>(sizeof(kZeros) / row_bytes, 1), extent.height);
  const uint64_t slices =
      rows < extent.height ? 1 : std::max<uint64_t>(sizeof(kZeros) / (row_bytes * rows), 1);
  for (uint64_t z = 0; z < extent.depth; z += slices) {
    for (uint64_t y = 0; y < extent.height; y += rows) {
      for (uint64_t x = 0; x < row_bytes && result == CUDA_SUCCESS; x += piece_bytes) {
        CUDA_MEMCPY3D copy = {};
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = kZeros;
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = array;
        copy.dstXInBytes = x;
        copy.dstY = y;
        copy.dstZ = z;
        copy.WidthInBytes = std::min(piece_bytes, row_bytes - x);
        copy.Height = std::min(rows, extent.height - y);
        copy.Depth = std::min(slices, extent.depth - z);
        copy.srcPitch = copy.WidthInBytes;
        copy.srcHeight = copy.Height;
        result = cuda.cuMemcpy3DAsync_v2(&copy, stream);
      }
    }
  }
  // Also after a failure: copies that were submitted must not outlast the array.
  const CUresult done = cuda.cuStreamSynchronize(stream);
  return result != CUDA_SUCCESS ? result : done;
}

}  // namespace

uint64_t ArrayBytes(const wire::ArrayCreate::Request& r) {
  const uint32_t element_bytes = PlainElementBytes(r.format, r.channels);
  // Keeps everything below from overflowing, for any extent that a device might have. The driver refuses what is larger
  // than its limits, whatever was charged.
  if (r.width > kMaxExtent || r.height > kMaxExtent || r.depth > kMaxExtent) return UINT64_MAX;
  uint64_t sum = 0;
  for (uint32_t level = 0; level < std::max(r.levels, 1u) && level < kMaxLevels; ++level) {
    const Extent extent = ExtentOf(r, level);
    // The device lays textures out in tiles of 64 bytes by 8 rows, and those in blocks whose height
    // is a power of two up to 16.
    const uint64_t tiles = (extent.height + 7) / 8;
    const uint64_t rows =
        extent.height == 1
            ? 1
            : RoundUp(extent.height, 8 * std::min<uint64_t>(std::bit_ceil(tiles), 16));
    sum += RoundUp(extent.width * element_bytes, 64) * rows * extent.depth;
    // All further levels would have the same size.
    if (extent.width == 1 && extent.height == 1 && extent.depth == 1) break;
  }
  return RoundUp(sum, kChargeStepBytes);
}

DeviceArray::~DeviceArray() {
  if (array == nullptr && mipmap == nullptr) return;
  quiet->Retire(
      [cuda = cuda, array = array, mipmap = mipmap] {
        if (mipmap != nullptr) {
          cuda->cuMipmappedArrayDestroy(mipmap);
        } else {
          cuda->cuArrayDestroy(array);
        }
      },
      // The charge goes behind it, on this thread.
      [charge = std::move(charge)] {});
}

// Levels of a mipmapped array are cleared one by one; the driver may give it fewer than requested. After a failure the
// destructor destroys what there is.
CUresult DeviceArray::Make(CUstream stream) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor = {};
  descriptor.Width = request.width;
  descriptor.Height = request.height;
  descriptor.Depth = request.depth;
  descriptor.Format = static_cast<CUarray_format>(request.format);
  descriptor.NumChannels = request.channels;
  descriptor.Flags = request.flags;
  const uint32_t element_bytes = PlainElementBytes(request.format, request.channels);
  if (request.levels == 0) {
    CUDA_RETURN_IF_ERROR(cuda->cuArray3DCreate_v2(&array, &descriptor));
    return Clear(*cuda, stream, array, ExtentOf(request, 0), element_bytes);
  }
  CUDA_RETURN_IF_ERROR(cuda->cuMipmappedArrayCreate(&mipmap, &descriptor, request.levels));
  CUarray level = nullptr;
  while (levels < request.levels &&
         cuda->cuMipmappedArrayGetLevel(&level, mipmap, levels) == CUDA_SUCCESS) {
    CUDA_RETURN_IF_ERROR(Clear(*cuda, stream, level, ExtentOf(request, levels), element_bytes));
    ++levels;
  }
  return CUDA_SUCCESS;
}

void DeviceArray::Destroy() {
  if (mipmap != nullptr) {
    cuda->cuMipmappedArrayDestroy(mipmap);
  } else if (array != nullptr) {
    cuda->cuArrayDestroy(array);
  }
  mipmap = nullptr;
  array = nullptr;
}

void Arrays::On(wire::Tag<wire::ArrayCreate>, const wire::ArrayCreate::Request& request,
                const wire::Record& record) {
  if (arrays_.Add(request.array) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const Caller caller = CallerOf(record);
  const auto fail = [this, caller, id = request.array](CUresult result) {
    arrays_.Take(id);
    Reply<wire::ArrayCreate>(caller, result);
  };
  // Formats whose elements have no plain size, such as planar and block-compressed ones.
  if (PlainElementBytes(request.format, request.channels) == 0 ||
      (request.flags & ~kOfferedFlags) != 0) {
    return fail(CUDA_ERROR_NOT_SUPPORTED);
  }
  const uint64_t size_bytes = ArrayBytes(request);
  if (request.width == 0 || size_bytes == UINT64_MAX || request.levels > kMaxLevels) {
    return fail(CUDA_ERROR_INVALID_VALUE);
  }
  Charge(size_bytes, [this, caller, request, fail](CUresult charged, DeviceChargeRef charge) {
    // Goes on even if the session has ended: its end waits for the memory lane, and the array is
    // destroyed with its last reference.
    if (charged != CUDA_SUCCESS) return fail(charged);
    MakeArray(caller, request, std::move(charge));
  });
}

void Arrays::MakeArray(Caller caller, const wire::ArrayCreate::Request& request,
                       DeviceChargeRef charge) {
  auto whole = std::make_shared<DeviceArray>(services_.quiet, &services_.device->cuda(), request);
  whole->charge = std::move(charge);
  auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
  CUstream stream = nullptr;
  *result = services_.internal->ForArrays(&stream);
  memory_.Post(
      [whole, stream, result] {
        if (*result == CUDA_SUCCESS) *result = whole->Make(stream);
      },
      [this, caller, whole, result, id = request.array] {
        services_.device->Judge(*result);
        if (*result != CUDA_SUCCESS) {
          arrays_.Take(id);
          return Reply<wire::ArrayCreate>(caller, *result);
        }
        // nullptr if the session has ended meanwhile: the array is then destroyed at once.
        if (ArrayEntry* entry = arrays_.Find(id); entry != nullptr) {
          entry->array = whole->array;
          entry->whole = whole;
        }
        Reply<wire::ArrayCreate>(caller, CUDA_SUCCESS, {whole->levels, 0});
      });
}

ArrayEntry* Arrays::FindArray(wire::ArrayId id_untrusted) {
  ArrayEntry* entry = arrays_.Find(id_untrusted);
  if (entry != nullptr && entry->whole != nullptr) return entry;
  Refuse(wire::Fatal::kBadHandle);
  return nullptr;
}

void Arrays::On(wire::Tag<wire::ArrayLevel>, const wire::ArrayLevel::Request& request,
                const wire::Record& record) {
  ArrayEntry* whole = FindArray(request.whole);
  if (whole == nullptr) return;
  // A plain array, or itself a level, has no levels.
  if (whole->array != nullptr) return Refuse(wire::Fatal::kBadHandle);
  ArrayEntry* level = arrays_.Add(request.array);
  if (level == nullptr) return Refuse(wire::Fatal::kBadHandle);
  // Only a look-up, so it is made on this thread. The driver checks the level's number.
  const CUresult result = services_.device->Judge(services_.device->cuda().cuMipmappedArrayGetLevel(
      &level->array, whole->whole->mipmap, request.level));
  if (result == CUDA_SUCCESS) {
    level->whole = whole->whole;
    level->level = request.level;
    whole->levels.push_back(request.array);
  } else {
    arrays_.Take(request.array);
  }
  Reply<wire::ArrayLevel>(CallerOf(record), result);
}

void Arrays::On(wire::Tag<wire::ArrayDestroy>, const wire::ArrayDestroy::Request& request,
                const wire::Record& record) {
  const ArrayEntry* entry = FindArray(request.array);
  if (entry == nullptr) return;
  // A level goes with its array.
  if (entry->level) return Refuse(wire::Fatal::kBadHandle);
  // No later command can name it or its levels; earlier ones hold the array.
  chores_.Do([this, named = std::shared_ptr<ArrayEntry>(arrays_.Take(request.array)),
              caller = CallerOf(record), ticket = record.ticket] {
    std::vector<wire::ArrayId>& levels = named->levels;
    for (size_t left = Chores::kPiece; left != 0 && !levels.empty(); --left, levels.pop_back()) {
      arrays_.Take(levels.back());
    }
    if (!levels.empty()) return false;
    AfterEarlierWork(
        ticket, [this, caller, whole = std::move(named->whole)] { DestroyArray(caller, whole); });
    return true;
  });
}

// All earlier work is done, so only views, bindings of references and graphs can still hold the array.
void Arrays::DestroyArray(Caller caller, const ArrayRef& whole) {
  on_destroy_(whole);
  // A view or graph that still uses it destroys it later.
  if (whole.use_count() > 1) return Reply<wire::ArrayDestroy>(caller, CUDA_SUCCESS);
  ++outstanding_;
  services_.quiet->Need(
      owner(), [whole] { whole->Destroy(); },
      [this, caller, whole] {
        // When the tenant gets its answer, its quota must be free again.
        whole->charge->Return([this, caller] {
          --outstanding_;
          Reply<wire::ArrayDestroy>(caller, CUDA_SUCCESS);
        });
      });
}

}  // namespace gpuloom::executor
