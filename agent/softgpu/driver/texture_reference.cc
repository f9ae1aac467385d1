// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/texture_reference.h"

#include <algorithm>
#include <utility>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/library.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"
#include "proto/sync/mutex.h"

// CUDA deprecates these functions, but programs still call them.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace gpuloom::softgpu {
namespace {

// The initial state after cuTexRefCreate and after the load of a module: CUDA's defaults, one
// channel of floats and clamped coordinates.
TextureReference Fresh() {
  TextureReference reference{};
  for (CUaddress_mode& mode : reference.sampler.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
  reference.format = CU_AD_FORMAT_FLOAT;
  reference.channels = 1;
  return reference;
}

// Leaves out flags that references may have and texture objects may not.
CUDA_TEXTURE_DESC AsItIsRead(CUDA_TEXTURE_DESC sampler) {
  constexpr unsigned kNamed = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES |
                              CU_TRSF_SRGB | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  sampler.flags &= kNamed;
  if (sampler.filterMode != CU_TR_FILTER_MODE_LINEAR) sampler.filterMode = CU_TR_FILTER_MODE_POINT;
  return sampler;
}

// Texture and surface references share a registry: a handle of the other kind is none.
std::shared_ptr<LoadedReference> FindReference(const void* handle, bool is_surface) {
  auto reference = Registry<LoadedReference>::Instance().Find(handle);
  return reference != nullptr && reference->is_surface == is_surface ? reference : nullptr;
}

CUresult Require(CUmodule handle, std::shared_ptr<LoadedModule>& module) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  module = Registry<LoadedModule>::Instance().Find(handle);
  return module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// One function for both kinds. A name that exists, but is of the other kind, is NOT_FOUND.
template <typename Handle>
CUresult FindInModule(Handle* out, CUmodule handle, const char* name, bool is_surface) {
  std::shared_ptr<LoadedModule> module;
  CUDA_RETURN_IF_ERROR(Require(handle, module));
  if (out == nullptr || name == nullptr || *name == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto reference =
      module->references == nullptr ? nullptr : module->references->Find(name, is_surface);
  if (reference == nullptr) return CUDA_ERROR_NOT_FOUND;
  *out = reinterpret_cast<Handle>(reference.get());
  return CUDA_SUCCESS;
}

}  // namespace

LoadedReference::LoadedReference() : texture(Fresh()) {}

std::shared_ptr<LoadedReference> ModuleReferences::Find(std::string_view name, bool is_surface) {
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < names_.size(); ++i) {
    if (names_[i].name != name || names_[i].is_surface != is_surface) continue;
    std::shared_ptr<LoadedReference>& reference = made_[i];
    if (reference == nullptr) {
      reference = std::make_shared<LoadedReference>();
      reference->context = &context_;
      reference->module = weak_from_this();
      reference->number = i;
      reference->of_module = true;
      reference->is_surface = is_surface;
      Registry<LoadedReference>::Instance().Add(reference);
    }
    return reference;
  }
  return nullptr;
}

// A new table instead of a change in the old one: launches in streams hold the table that was there
// when they were made (Bound).
void ModuleReferences::Bind(size_t number, BoundImage image) {
  const MutexLock lock(mutex_);
  auto bound = std::make_shared<std::vector<BoundImage>>(*bound_);
  (*bound)[number] = std::move(image);
  bound_ = std::move(bound);
}

BoundImages ModuleReferences::Bound() const {
  const MutexLock lock(mutex_);
  return bound_;
}

void ModuleReferences::Retire() {
  const MutexLock lock(mutex_);
  for (const auto& reference : made_) {
    if (reference != nullptr) Registry<LoadedReference>::Instance().Take(reference.get());
  }
}

bool ModuleReferences::HasName(std::string_view name) const {
  return std::any_of(names_.begin(), names_.end(),
                     [name](const ImageReference& one) { return one.name == name; });
}

// Under the reference's lock, so that it does not tear down what another thread is binding.
// References that belong to no module have none to notify.
void UnbindArray(const void* array) {
  for (const auto& reference : Registry<LoadedReference>::Instance().All()) {
    const MutexLock lock(reference->mutex);
    const CUDA_RESOURCE_DESC& resource = reference->texture.resource;
    const bool looks_at_it = reference->is_surface       ? reference->array == array
                             : !reference->texture.bound ? false
                             : resource.resType == CU_RESOURCE_TYPE_ARRAY
                                 ? resource.res.array.hArray == array
                                 : resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
                                       resource.res.mipmap.hMipmappedArray == array;
    if (!looks_at_it) continue;
    reference->texture.bound = false;
    reference->array = nullptr;
    if (const auto module = reference->module.lock()) module->Bind(reference->number, {});
  }
}

// A module's references are destroyed with the module (Retire).
void DestroyReferencesOf(const Context& context) {
  Registry<LoadedReference>::Instance().TakeIf([&](const LoadedReference& reference) {
    return reference.context == &context && !reference.of_module;
  });
}

}  // namespace gpuloom::softgpu

namespace gpuloom {

using namespace gpuloom::softgpu;  // this file joins the two

CUresult NeedReferences() {
  Context* context = nullptr;
  return RequireContext(context);
}

// A change is made on a copy: one that is refused leaves the reference as it was.
CUresult ChangeReference(CUtexref handle, ReferenceChange change, void* argument) {
  const auto reference = FindReference(handle, false);
  if (reference == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const MutexLock lock(reference->mutex);
  TextureReference changed = reference->texture;
  CUDA_RETURN_IF_ERROR(change(&changed, argument));
  // Settings are changed one by one, so a combination that no texture may have is kept, and bound
  // as nothing.
  std::shared_ptr<TextureView> view;
  if (changed.bound && MakeView(reference->context, changed.resource, AsItIsRead(changed.sampler),
                                /*view=*/nullptr, &view) != CUDA_SUCCESS) {
    view = nullptr;
  }
  reference->texture = changed;
  if (const auto module = reference->module.lock()) {
    // Points into the view, and keeps it alive.
    module->Bind(reference->number,
                 {view == nullptr ? nullptr : std::shared_ptr<const Texture>(view, &view->texture),
                  nullptr});
  }
  return CUDA_SUCCESS;
}

bool ReadReference(CUtexref handle, TextureReference* texture) {
  const auto reference = FindReference(handle, false);
  if (reference == nullptr) return false;
  const MutexLock lock(reference->mutex);
  *texture = reference->texture;
  return true;
}

CUresult MakeReference(CUtexref* handle) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  auto reference = std::make_shared<LoadedReference>();
  reference->context = context;
  *handle = reinterpret_cast<CUtexref>(reference.get());
  Registry<LoadedReference>::Instance().Add(std::move(reference));
  return CUDA_SUCCESS;
}

CUresult DestroyReference(CUtexref handle) {
  if (FindReference(handle, false) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return Registry<LoadedReference>::Instance().Take(handle) == nullptr ? CUDA_ERROR_INVALID_HANDLE
                                                                       : CUDA_SUCCESS;
}

bool IsOfModule(CUtexref handle) {
  const auto reference = FindReference(handle, false);
  return reference != nullptr && reference->of_module;
}

CUresult BindReference(CUsurfref handle, CUarray array) {
  const auto reference = FindReference(handle, true);
  const auto image = FindArray(array);
  if (reference == nullptr || image == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const MutexLock lock(reference->mutex);
  reference->array = array;
  if (const auto module = reference->module.lock()) {
    module->Bind(reference->number, {nullptr, std::shared_ptr<const Image>(image, &image->image)});
  }
  return CUDA_SUCCESS;
}

bool ReadReference(CUsurfref handle, CUarray* array) {
  const auto reference = FindReference(handle, true);
  if (reference == nullptr) return false;
  const MutexLock lock(reference->mutex);
  *array = reference->array;
  return true;
}

}  // namespace gpuloom

using namespace gpuloom::softgpu;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuModuleGetTexRef(CUtexref* reference, CUmodule module, const char* name) {
  return FindInModule(reference, module, name, false);
}

CUresult cuModuleGetSurfRef(CUsurfref* reference, CUmodule module, const char* name) {
  return FindInModule(reference, module, name, true);
}

}  // extern "C"
