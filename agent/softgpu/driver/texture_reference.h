// SPDX-License-Identifier: Apache-2.0
// Texture and surface references. Those of a module stand for the variables that its kernels name.
// A launch carries what they are bound to at that time, so that they can be bound anew while it
// waits or runs. No kernel sees a texture reference that a program makes by itself.
//
// Handles are the objects' addresses, known to a Registry. Safe from any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "agent/softgpu/driver/view.h"
#include "agent/softgpu/exec/machine/module.h"
#include "proto/cuda/texture_reference.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

struct Context;
class ModuleReferences;

// CUtexref and CUsurfref.
struct LoadedReference {
  LoadedReference();

  Context* context = nullptr;
  std::weak_ptr<ModuleReferences> module;
  size_t number = 0;  // in the module
  bool of_module = false;
  bool is_surface = false;
  Mutex mutex;
  TextureReference texture GPULOOM_GUARDED_BY(mutex);
  CUarray array GPULOOM_GUARDED_BY(mutex) = nullptr;  // for a surface reference
};

// By the references' numbers. Immutable.
using BoundImages = std::shared_ptr<const std::vector<BoundImage>>;

class ModuleReferences : public std::enable_shared_from_this<ModuleReferences> {
 public:
  ModuleReferences(Context& context, const std::vector<ImageReference>& names)
      : context_(context), names_(names), made_(names.size()) {
    bound_ = std::make_shared<const std::vector<BoundImage>>(names.size());
  }

  // Returns the same object every time; nullptr if there is none of that name and kind.
  std::shared_ptr<LoadedReference> Find(std::string_view name, bool is_surface);
  void Bind(size_t number, BoundImage image);
  [[nodiscard]] bool HasName(std::string_view name) const;
  [[nodiscard]] BoundImages Bound() const;
  // Invalidates the handles.
  void Retire();

 private:
  Context& context_;
  const std::vector<ImageReference> names_;
  mutable Mutex mutex_;
  std::vector<std::shared_ptr<LoadedReference>> made_ GPULOOM_GUARDED_BY(mutex_);  // by number
  BoundImages bound_ GPULOOM_GUARDED_BY(mutex_);
};

// Call when a CUarray or CUmipmappedArray is destroyed: what was bound to it becomes unbound.
void UnbindArray(const void* array);

// Destroys the context's references that belong to no module.
void DestroyReferencesOf(const Context& context);

}  // namespace gpuloom::softgpu
