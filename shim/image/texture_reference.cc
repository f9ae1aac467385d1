// SPDX-License-Identifier: Apache-2.0
#include "shim/image/texture_reference.h"

#include <stdlib.h>
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/cuda/sampler_fields.h"
#include "proto/cuda/texture_reference.h"
#include "proto/wire/texture_reference_commands.h"
#include "shim/context/context.h"
#include "shim/image/array.h"
#include "shim/image/texture.h"
#include "shim/memory/memory.h"
#include "shim/module/library.h"
#include "shim/process/futex.h"
#include "shim/process/handle_table.h"
#include "shim/session/session.h"

// CUDA deprecates these functions, but programs still call them.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace gpuloom {
namespace {

// What CUtexref and CUsurfref point to. Its place in the table is its id. The executor does not
// know those that belong to no library.
struct Reference {
  std::atomic<uint32_t> alive;
  wire::ReferenceKind kind;
  const Library* library;  // null: made by cuTexRefCreate
  char* name;              // malloc'ed
  TextureReference texture;
  CUarray array;  // of a surface reference
  // What was sent to the executor last. All zero: nothing yet, or that it is unbound.
  wire::ReferenceSet::Request sent;
};

struct References {
  // Held while a change is sent to the executor, so that changes are in the ring in the order in
  // which they were made, and while it is asked for a reference, so that two threads get the same
  // handle.
  Lock lock;
  HandleTable<Reference, wire::kMaxReferences> table;
};
constinit References references;

wire::ReferenceId IdOf(const Reference* reference) {
  return wire::ReferenceId{references.table.IdOf(reference)};
}

// Null for a handle of the other kind, too: they share the table.
Reference* FindLocked(const void* handle, wire::ReferenceKind kind)
    GPULOOM_REQUIRES(references.lock) {
  Reference* reference = references.table.Find(handle);
  return reference != nullptr && reference->kind == kind ? reference : nullptr;
}

// A reference's format and sampler begin as the program's code declares them.
TextureReference StateOf(const wire::ReferenceGet::Reply& reply) {
  TextureReference state = {};
  state.format = static_cast<CUarray_format>(reply.format);
  state.channels = reply.channels;
  state.sampler = SamplerOf(reply);
  return state;
}

void GiveLocked(Reference* reference) GPULOOM_REQUIRES(references.lock) {
  free(reference->name);
  references.table.Give(references.lock, reference);
}

// Makes the object for a reference. `name` is null for one without a library; then the executor only returns the
// state of a new reference, and is given no id.
CUresult MakeLocked(const Library* library, const char* name, wire::ReferenceKind kind,
                    Reference** made) GPULOOM_REQUIRES(references.lock) {
  Reference* reference = references.table.Take(references.lock);
  if (reference == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  reference->kind = kind;
  reference->library = library;
  wire::ReferenceGet::Request request = {};
  request.kind = kind;
  uint32_t name_bytes = 0;
  if (library != nullptr) {
    reference->name = strdup(name);
    name_bytes = static_cast<uint32_t>(strlen(name));
    request.library = IdOf(library);
    request.reference = IdOf(reference);
  }
  wire::ReferenceGet::Reply reply = {};
  const CUresult result = library != nullptr && reference->name == nullptr
                              ? CUDA_ERROR_OUT_OF_MEMORY
                              : session.Call<wire::ReferenceGet>(request, &reply, name, name_bytes);
  if (result != CUDA_SUCCESS) {
    GiveLocked(reference);
    return result;
  }
  reference->texture = StateOf(reply);
  *made = reference;
  return CUDA_SUCCESS;
}

// How launches see it. Whether it can be bound at all has been checked before.
wire::ReferenceSet::Request Describe(const TextureReference& state) {
  wire::ReferenceSet::Request request = {};
  if (!state.bound) return request;
  request.bound = 1;
  SetSampler(state.sampler, &request.look);
  // Its array may have been destroyed by another thread: the same as unbound.
  if (JudgeResource(state.resource, &request.look) != CUDA_SUCCESS) request = {};
  return request;
}

// Does not repeat what the executor knows: CUDA 11's runtime binds everything again before each
// launch.
CUresult SetBinding(Reference* reference, wire::ReferenceSet::Request request) {
  if (reference->library == nullptr || memcmp(&request, &reference->sent, sizeof(request)) == 0) {
    return CUDA_SUCCESS;
  }
  const wire::ReferenceSet::Request sent = request;
  request.reference = IdOf(reference);
  const CUresult result = session.Post<wire::ReferenceSet>(request);
  if (result == CUDA_SUCCESS) reference->sent = sent;
  return result;
}

template <typename Visit>
void ForEachLocked(Visit visit) GPULOOM_REQUIRES(references.lock) {
  for (uint32_t id = 1; id <= references.table.used(); ++id) {
    Reference* reference = references.table.At(id);
    if (reference != nullptr) visit(reference);
  }
}

void Unbind(Reference* reference) {
  reference->texture.bound = false;
  reference->array = nullptr;
  (void)SetBinding(reference, {});  // can fail only if every call does
}

bool LooksAt(const Reference& reference, const void* array) {
  if (reference.kind == wire::ReferenceKind::kSurface) return reference.array == array;
  if (!reference.texture.bound) return false;
  const CUDA_RESOURCE_DESC& resource = reference.texture.resource;
  return resource.resType == CU_RESOURCE_TYPE_ARRAY
             ? resource.res.array.hArray == array
             : resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY &&
                   resource.res.mipmap.hMipmappedArray == array;
}

// Asked for by name any number of times; the first time makes the handle. The search is linear: a
// program has few references.
template <typename Handle>
CUresult FindInModule(Handle* out, CUmodule module, const char* name, wire::ReferenceKind kind) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Library* library = FindLibrary(module);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || name == nullptr || *name == 0) return CUDA_ERROR_INVALID_VALUE;
  if (strlen(name) > wire::kMaxNameBytes) return CUDA_ERROR_NOT_FOUND;
  CUDA_RETURN_IF_ERROR(EnsureLoaded(library));
  Holding holding(&references.lock);
  Reference* found = nullptr;
  ForEachLocked([&](Reference* reference) GPULOOM_REQUIRES(references.lock) {
    if (reference->library == library && reference->kind == kind &&
        strcmp(reference->name, name) == 0) {
      found = reference;
    }
  });
  if (found == nullptr) {
    CUDA_RETURN_IF_ERROR(MakeLocked(library, name, kind, &found));
    library->references.fetch_add(1, std::memory_order_relaxed);
  }
  *out = reinterpret_cast<Handle>(found);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult NeedReferences() { return NeedContext(); }

// All changes go through here: a copy is changed, the executor is informed, and only then the copy takes effect. So a
// change that fails has no effect.
CUresult ChangeReference(CUtexref handle, ReferenceChange change, void* argument) {
  Holding holding(&references.lock);
  Reference* reference = FindLocked(handle, wire::ReferenceKind::kTexture);
  if (reference == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  TextureReference changed = reference->texture;
  CUresult result = change(&changed, argument);
  if (result == CUDA_SUCCESS) result = SetBinding(reference, Describe(changed));
  if (result == CUDA_SUCCESS) reference->texture = changed;
  return result;
}

bool ReadReference(CUtexref handle, TextureReference* state) {
  Holding holding(&references.lock);
  const Reference* reference = FindLocked(handle, wire::ReferenceKind::kTexture);
  if (reference == nullptr) return false;
  *state = reference->texture;
  return true;
}

CUresult MakeReference(CUtexref* handle) {
  Holding holding(&references.lock);
  Reference* made;
  const CUresult result = MakeLocked(nullptr, nullptr, wire::ReferenceKind::kTexture, &made);
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUtexref>(made);
  return result;
}

CUresult DestroyReference(CUtexref handle) {
  Holding holding(&references.lock);
  Reference* reference = FindLocked(handle, wire::ReferenceKind::kTexture);
  if (reference == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  GiveLocked(reference);
  return CUDA_SUCCESS;
}

bool IsOfModule(CUtexref handle) {
  Holding holding(&references.lock);
  const Reference* reference = FindLocked(handle, wire::ReferenceKind::kTexture);
  return reference != nullptr && reference->library != nullptr;
}

CUresult BindReference(CUsurfref handle, CUarray array) {
  Holding holding(&references.lock);
  Reference* reference = FindLocked(handle, wire::ReferenceKind::kSurface);
  uint32_t id;
  if (reference == nullptr || FindArray(array, &id) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  wire::ReferenceSet::Request request = {};
  request.bound = 1;
  request.look.resource = wire::ViewResource::kArray;
  request.look.array = wire::ArrayId{id};
  const CUresult result = SetBinding(reference, request);
  if (result == CUDA_SUCCESS) reference->array = array;
  return result;
}

bool ReadReference(CUsurfref handle, CUarray* array) {
  Holding holding(&references.lock);
  const Reference* reference = FindLocked(handle, wire::ReferenceKind::kSurface);
  if (reference == nullptr) return false;
  *array = reference->array;
  return true;
}

void UnbindArray(const void* array) {
  Holding holding(&references.lock);
  ForEachLocked([&](Reference* reference) GPULOOM_REQUIRES(references.lock) {
    if (LooksAt(*reference, array)) Unbind(reference);
  });
}

void ReleaseReferences(Library* library) {
  Holding holding(&references.lock);
  library->references.store(0, std::memory_order_relaxed);
  ForEachLocked([&](Reference* reference) GPULOOM_REQUIRES(references.lock) {
    if (reference->library == library) GiveLocked(reference);
  });
}

void ResetReferences() {
  Holding holding(&references.lock);
  ForEachLocked([](Reference* reference) GPULOOM_REQUIRES(references.lock) {
    if (reference->library == nullptr) {
      GiveLocked(reference);
    } else {
      Unbind(reference);
    }
  });
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuModuleGetTexRef(CUtexref* reference, CUmodule module, const char* name) {
  return FindInModule(reference, module, name, wire::ReferenceKind::kTexture);
}

CUresult cuModuleGetSurfRef(CUsurfref* reference, CUmodule module, const char* name) {
  return FindInModule(reference, module, name, wire::ReferenceKind::kSurface);
}

}  // extern "C"
