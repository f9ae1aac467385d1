// SPDX-License-Identifier: Apache-2.0
// Texture and surface references, shared by the shim and the software driver: what the getters return is kept here in
// one form, texture_reference_api.cc has CUDA's functions, and each library creates references and lets launches see
// what they are bound to.
//
// Safe from any thread.
#pragma once

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct TextureReference {
  bool bound;
  unsigned times_bound;         // times bound or unbound
  CUDA_RESOURCE_DESC resource;  // when bound
  CUDA_TEXTURE_DESC sampler;
  // How linear memory is read; for a bound array, the array's own.
  CUarray_format format;
  unsigned channels;
};

// Provided by each library.

// The first check of every function on references.
[[nodiscard]] CUresult NeedReferences();
// Runs `change` on a copy of the reference. If it succeeds, launches from here on see the reference as bound to what
// it then is: as unbound, if that cannot be read, because the memory was freed or never there. Otherwise nothing
// changes. CUDA_ERROR_INVALID_HANDLE if it is not a reference.
using ReferenceChange = CUresult (*)(TextureReference* reference, void* argument);
[[nodiscard]] CUresult ChangeReference(CUtexref handle, ReferenceChange change, void* argument);
// Returns false if it is not a reference.
[[nodiscard]] bool ReadReference(CUtexref handle, TextureReference* reference);
// A reference that belongs to no module.
[[nodiscard]] CUresult MakeReference(CUtexref* handle);
[[nodiscard]] CUresult DestroyReference(CUtexref handle);
[[nodiscard]] bool IsOfModule(CUtexref handle);

[[nodiscard]] CUresult BindReference(CUsurfref handle, CUarray array);
// Returns false if it is not a reference. `*array` is null when nothing is bound.
[[nodiscard]] bool ReadReference(CUsurfref handle, CUarray* array);

}  // namespace gpuloom
