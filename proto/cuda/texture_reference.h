// SPDX-License-Identifier: Apache-2.0
// Texture and surface references, as the shim and the software driver share them: what the getters
// tell is kept here in one form, texture_reference_api.cc has CUDA's functions, and each library
// makes references and lets launches see what they are bound to.
//
// From any thread.
#pragma once

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct TextureReference {
  bool bound;
  unsigned times_bound;         // anew, to something or nothing
  CUDA_RESOURCE_DESC resource;  // when bound
  CUDA_TEXTURE_DESC sampler;
  // What linear memory is read as; of an array that is bound, its own.
  CUarray_format format;
  unsigned channels;
};

// Each library's own.

// As every function of references begins.
[[nodiscard]] CUresult NeedReferences();
// Runs `change` on a copy of the reference. When it succeeds, what the reference is then bound to is how
// launches from here on see it: as bound to nothing, where that cannot be read, because the memory was
// freed or never there. Otherwise nothing has changed. CUDA_ERROR_INVALID_HANDLE for what is no
// reference.
using ReferenceChange = CUresult (*)(TextureReference* reference, void* argument);
[[nodiscard]] CUresult ChangeReference(CUtexref handle, ReferenceChange change, void* argument);
// False: it is no reference.
[[nodiscard]] bool ReadReference(CUtexref handle, TextureReference* reference);
// Of no module.
[[nodiscard]] CUresult MakeReference(CUtexref* handle);
[[nodiscard]] CUresult DestroyReference(CUtexref handle);
[[nodiscard]] bool IsOfModule(CUtexref handle);

[[nodiscard]] CUresult BindReference(CUsurfref handle, CUarray array);
// False: it is no reference. `*array` is null when nothing is bound.
[[nodiscard]] bool ReadReference(CUsurfref handle, CUarray* array);

}  // namespace gpuloom
