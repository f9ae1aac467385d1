// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/view.h"

#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

Views& Views::Instance() {
  static auto* views = new Views;  // never destroyed: kernels may run while the process exits
  return *views;
}

// Handles count up and are never used again, so a kernel that keeps an old one finds nothing.
// Textures and surfaces share the count: neither's handle is one of the other's.
uint64_t Views::Add(std::shared_ptr<TextureView> view) {
  const WriterLock lock(mutex_);
  textures_[++last_] = std::move(view);
  return last_;
}

uint64_t Views::Add(std::shared_ptr<SurfaceView> view) {
  const WriterLock lock(mutex_);
  surfaces_[++last_] = std::move(view);
  return last_;
}

std::shared_ptr<const TextureView> Views::FindTextureView(uint64_t handle) const {
  const ReaderLock lock(mutex_);
  const auto found = textures_.find(handle);
  return found == textures_.end() ? nullptr : found->second;
}

std::shared_ptr<const SurfaceView> Views::FindSurfaceView(uint64_t handle) const {
  const ReaderLock lock(mutex_);
  const auto found = surfaces_.find(handle);
  return found == surfaces_.end() ? nullptr : found->second;
}

void Views::RemoveTexture(uint64_t handle) {
  const WriterLock lock(mutex_);
  textures_.erase(handle);
}

void Views::RemoveSurface(uint64_t handle) {
  const WriterLock lock(mutex_);
  surfaces_.erase(handle);
}

void Views::DestroyAllOf(const Context& context) {
  const WriterLock lock(mutex_);
  std::erase_if(textures_, [&](const auto& entry) { return entry.second->context == &context; });
  std::erase_if(surfaces_, [&](const auto& entry) { return entry.second->context == &context; });
}

// Kernels hold what they found for as long as they use it, though the object is destroyed
// meanwhile.
std::shared_ptr<const Texture> Views::FindTexture(uint64_t handle) const {
  const auto view = FindTextureView(handle);
  // Shares the view's life.
  return view == nullptr ? nullptr : std::shared_ptr<const Texture>(view, &view->texture);
}

std::shared_ptr<const Image> Views::FindSurface(uint64_t handle) const {
  const auto view = FindSurfaceView(handle);
  return view == nullptr ? nullptr : std::shared_ptr<const Image>(view, &view->array->image);
}

}  // namespace gpuloom::softgpu
