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
  CUDA_RESOURCE_DESC resource;  // when bound
  CUDA_TEXTURE_DESC sampler;
  // What linear memory is read as; of an array that is bound, its own.
  CUarray_format format;
  unsigned channels;
};

// Whether both look at the same place, however they read it. What was bound may be freed meanwhile:
// then how it would be read can be changed all the same.
inline bool SamePlace(const TextureReference& a, const TextureReference& b) {
  if (a.bound != b.bound || a.resource.resType != b.resource.resType) return false;
  switch (a.resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      return a.resource.res.array.hArray == b.resource.res.array.hArray;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      return a.resource.res.mipmap.hMipmappedArray == b.resource.res.mipmap.hMipmappedArray;
    case CU_RESOURCE_TYPE_LINEAR:
      return a.resource.res.linear.devPtr == b.resource.res.linear.devPtr &&
             a.resource.res.linear.sizeInBytes == b.resource.res.linear.sizeInBytes;
    default:
      return a.resource.res.pitch2D.devPtr == b.resource.res.pitch2D.devPtr &&
             a.resource.res.pitch2D.height == b.resource.res.pitch2D.height &&
             a.resource.res.pitch2D.pitchInBytes == b.resource.res.pitch2D.pitchInBytes;
  }
}

// Each library's own.

// As every function of references begins.
[[nodiscard]] CUresult NeedReferences();
// Runs `change` on a copy of the reference, with `argument`. When it succeeds and what the reference
// is then bound to can be read, that is how launches from here on see it; otherwise nothing has
// changed, unless the place is the SamePlace as before. CUDA_ERROR_INVALID_VALUE for what is no
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
