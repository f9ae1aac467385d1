// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces: the driver's own objects, whose handles the tenant's kernels get as plain
// numbers. An array must be the session's own, and lives as long as its views; of linear memory
// nothing is judged.
#include "agent/executor/device/device.h"
#include "agent/executor/image/arrays.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/session/host_budget.h"
#include "proto/cuda/sampler_fields.h"

namespace gpuloom::executor {
namespace {

// The driver judges the numbers.
CUDA_RESOURCE_VIEW_DESC ViewOf(const wire::TextureCreate::Request& r) {
  CUDA_RESOURCE_VIEW_DESC view = {};
  view.format = static_cast<CUresourceViewFormat>(r.view_format);
  view.width = r.view_width;
  view.height = r.view_height;
  view.depth = r.view_depth;
  view.firstMipmapLevel = r.first_level;
  view.lastMipmapLevel = r.last_level;
  view.firstLayer = r.first_layer;
  view.lastLayer = r.last_layer;
  return view;
}

}  // namespace

// Also for texture references (texture_reference.cc). Returns false if it has refused the request.
bool Arrays::JudgeTexture(const wire::TextureCreate::Request& request, CUDA_RESOURCE_DESC* resource,
                          ArrayRef* array) {
  *resource = {};
  switch (request.resource) {
    case wire::ViewResource::kArray:
    case wire::ViewResource::kMipmap: {
      const bool mipmap = request.resource == wire::ViewResource::kMipmap;
      const ArrayEntry* entry = FindArray(request.array);
      if (entry == nullptr) return false;
      if ((entry->array == nullptr) != mipmap) {
        Refuse(wire::Fatal::kBadHandle);
        return false;
      }
      if (mipmap) {
        resource->resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        resource->res.mipmap.hMipmappedArray = entry->whole->mipmap;
      } else {
        resource->resType = CU_RESOURCE_TYPE_ARRAY;
        resource->res.array.hArray = entry->array;
      }
      *array = entry->whole;
      return true;
    }
    // Addresses are not judged, here and below: a fetch reads nothing that a kernel could not read
    // through a pointer (docs/design/arrays.md).
    case wire::ViewResource::kLinear:
      resource->resType = CU_RESOURCE_TYPE_LINEAR;
      resource->res.linear.devPtr = request.address;
      resource->res.linear.format = static_cast<CUarray_format>(request.format);
      resource->res.linear.numChannels = request.channels;
      resource->res.linear.sizeInBytes = request.size_bytes;
      return true;
    case wire::ViewResource::kPitched:
      resource->resType = CU_RESOURCE_TYPE_PITCH2D;
      resource->res.pitch2D.devPtr = request.address;
      resource->res.pitch2D.format = static_cast<CUarray_format>(request.format);
      resource->res.pitch2D.numChannels = request.channels;
      resource->res.pitch2D.width = request.width;
      resource->res.pitch2D.height = request.height;
      resource->res.pitch2D.pitchInBytes = request.pitch_bytes;
      return true;
  }
  Refuse(wire::Fatal::kBadArgument);
  return false;
}

template <wire::Command C>
bool Arrays::TakeView(Caller caller, size_t views) {
  // Counted by what is in the table: views that are being made at the same time are bounded by the
  // session's reply slots.
  if (views < wire::kMaxViews && host_->budget->Take(kViewTakesBytes)) return true;
  Reply<C>(caller, CUDA_ERROR_OUT_OF_MEMORY);
  return false;
}

void Arrays::On(wire::Tag<wire::TextureCreate>, const wire::TextureCreate::Request& request,
                const wire::Record& record) {
  const Caller caller = CallerOf(record);
  struct Made {
    CUDA_RESOURCE_DESC resource{};
    ArrayRef array;
    CUtexObject texture = 0;
    CUresult result = CUDA_SUCCESS;
  };
  auto made = std::make_shared<Made>();
  if (!JudgeTexture(request, &made->resource, &made->array)) return;
  if (!TakeView<wire::TextureCreate>(caller, textures_.size())) return;
  memory_.Post(
      [made, request, &cuda = services_.device->cuda()] {
        const CUDA_TEXTURE_DESC sampler = SamplerOf(request);
        const CUDA_RESOURCE_VIEW_DESC view = ViewOf(request);
        made->result = cuda.cuTexObjectCreate(&made->texture, &made->resource, &sampler,
                                              request.has_view != 0 ? &view : nullptr);
      },
      [this, caller, made, request] {
        if (services_.device->Judge(made->result) == CUDA_SUCCESS) {
          // Handles are the driver's numbers, and kernels know them: the table says which of them
          // are this session's.
          textures_[made->texture] = {request, made->array};
        } else {
          host_->budget->Give(kViewTakesBytes);
        }
        Reply<wire::TextureCreate>(caller, made->result, {made->texture});
      });
}

void Arrays::On(wire::Tag<wire::TextureDestroy>, const wire::TextureDestroy::Request& request,
                const wire::Record& record) {
  const auto found = textures_.find(request.texture);
  if (found == textures_.end()) return Refuse(wire::Fatal::kBadHandle);
  // The array must exist until the driver has destroyed the texture.
  const ArrayRef array = found->second.array;
  // No second destruction: by the time the driver has destroyed it, the number may be another
  // session's.
  textures_.erase(found);
  host_->budget->Give(kViewTakesBytes);
  AfterEarlierWork(record.ticket, [this, caller = CallerOf(record), array,
                                   texture = request.texture] {
    auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
    memory_.Post([result, texture,
                  &cuda = services_.device->cuda()] { *result = cuda.cuTexObjectDestroy(texture); },
                 [this, caller, result, array] {
                   Reply<wire::TextureDestroy>(caller, services_.device->Judge(*result));
                 });
  });
}

void Arrays::On(wire::Tag<wire::SurfaceCreate>, const wire::SurfaceCreate::Request& request,
                const wire::Record& record) {
  const ArrayEntry* entry = FindArray(request.array);
  if (entry == nullptr) return;
  if (entry->array == nullptr) return Refuse(wire::Fatal::kBadHandle);
  const Caller caller = CallerOf(record);
  if (!TakeView<wire::SurfaceCreate>(caller, surfaces_.size())) return;
  struct Made {
    CUarray array;
    Surface of;
    CUsurfObject surface = 0;
    CUresult result = CUDA_SUCCESS;
  };
  auto made =
      std::make_shared<Made>(Made{entry->array, {entry->whole, entry->level}, 0, CUDA_SUCCESS});
  memory_.Post(
      [made, &cuda = services_.device->cuda()] {
        CUDA_RESOURCE_DESC resource = {};
        resource.resType = CU_RESOURCE_TYPE_ARRAY;
        resource.res.array.hArray = made->array;
        made->result = cuda.cuSurfObjectCreate(&made->surface, &resource);
      },
      [this, caller, made] {
        if (services_.device->Judge(made->result) == CUDA_SUCCESS) {
          surfaces_[made->surface] = made->of;
        } else {
          host_->budget->Give(kViewTakesBytes);
        }
        Reply<wire::SurfaceCreate>(caller, made->result, {made->surface});
      });
}

void Arrays::On(wire::Tag<wire::SurfaceDestroy>, const wire::SurfaceDestroy::Request& request,
                const wire::Record& record) {
  const auto found = surfaces_.find(request.surface);
  if (found == surfaces_.end()) return Refuse(wire::Fatal::kBadHandle);
  const ArrayRef array = found->second.array;
  surfaces_.erase(found);
  host_->budget->Give(kViewTakesBytes);
  AfterEarlierWork(record.ticket,
                   [this, caller = CallerOf(record), array, surface = request.surface] {
                     auto result = std::make_shared<CUresult>(CUDA_SUCCESS);
                     memory_.Post(
                         [result, surface, &cuda = services_.device->cuda()] {
                           *result = cuda.cuSurfObjectDestroy(surface);
                         },
                         [this, caller, result, array] {
                           Reply<wire::SurfaceDestroy>(caller, services_.device->Judge(*result));
                         });
                   });
}

// Call at the end of the session: destroys one piece, and returns true if that was the last. The
// arrays are released after them, by `done`.
bool Arrays::DestroyViews() {
  struct Views {
    std::vector<std::pair<CUtexObject, ArrayRef>> textures;
    std::vector<std::pair<CUsurfObject, ArrayRef>> surfaces;
  };
  auto views = std::make_shared<Views>();
  size_t left = Chores::kPiece;
  for (; left != 0 && !textures_.empty(); --left) {
    views->textures.emplace_back(textures_.begin()->first, textures_.begin()->second.array);
    textures_.erase(textures_.begin());
  }
  for (; left != 0 && !surfaces_.empty(); --left) {
    views->surfaces.emplace_back(surfaces_.begin()->first, surfaces_.begin()->second.array);
    surfaces_.erase(surfaces_.begin());
  }
  if (left == Chores::kPiece) return true;
  host_->budget->Give((Chores::kPiece - left) * kViewTakesBytes);
  memory_.Post(
      [views, &cuda = services_.device->cuda()] {
        for (const auto& [texture, array] : views->textures) cuda.cuTexObjectDestroy(texture);
        for (const auto& [surface, array] : views->surfaces) cuda.cuSurfObjectDestroy(surface);
      },
      [views] {});
  return left != 0;
}

}  // namespace gpuloom::executor
