// SPDX-License-Identifier: Apache-2.0
// Texture and surface objects: numbers that kernels get, and what they stand for. A view shares
// ownership of the array that it looks at. Linear memory may be freed before the view; reading it
// then faults. Each view belongs to a context and ends with it. Safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "agent/softgpu/driver/array.h"
#include "agent/softgpu/exec/machine/image.h"
#include "proto/cuda/cuda_all.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

struct TextureView {
  Context* context = nullptr;
  Texture texture;
  std::vector<std::shared_ptr<Array>> arrays;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC sampler{};
  CUDA_RESOURCE_VIEW_DESC view{};
  bool has_view = false;
};

struct SurfaceView {
  Context* context = nullptr;
  std::shared_ptr<Array> array;
  CUDA_RESOURCE_DESC resource{};
};

// Applies CUDA's rules for textures. The view has no handle yet.
[[nodiscard]] CUresult MakeView(Context* context, const CUDA_RESOURCE_DESC& resource,
                                const CUDA_TEXTURE_DESC& sampler,
                                const CUDA_RESOURCE_VIEW_DESC* view,
                                std::shared_ptr<TextureView>* made);

class Views {
 public:
  static Views& Instance();

  uint64_t Add(std::shared_ptr<TextureView> view);
  uint64_t Add(std::shared_ptr<SurfaceView> view);
  [[nodiscard]] std::shared_ptr<const TextureView> FindTextureView(uint64_t handle) const;
  [[nodiscard]] std::shared_ptr<const SurfaceView> FindSurfaceView(uint64_t handle) const;
  // Unknown handles are ignored.
  void RemoveTexture(uint64_t handle);
  void RemoveSurface(uint64_t handle);
  void DestroyAllOf(const Context& context);

  // The machine's questions.
  [[nodiscard]] std::shared_ptr<const Texture> FindTexture(uint64_t handle) const;
  [[nodiscard]] std::shared_ptr<const Image> FindSurface(uint64_t handle) const;

 private:
  mutable SharedMutex mutex_;
  uint64_t last_ GPULOOM_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, std::shared_ptr<TextureView>> textures_ GPULOOM_GUARDED_BY(mutex_);
  std::map<uint64_t, std::shared_ptr<SurfaceView>> surfaces_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::softgpu
