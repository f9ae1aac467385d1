// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/image/texture_reference.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "agent/executor/device/device.h"
#include "agent/executor/image/arrays.h"
#include "agent/executor/image/texture_references.h"
#include "proto/cuda/return_if_error.h"
#include "proto/cuda/sampler_fields.h"

namespace gpuloom::executor {
namespace {

// NaNs compare equal here.
bool Same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

// The state of a fresh reference, which the program may ask for before it sets anything.
wire::ReferenceGet::Reply ReplyOf(const SamplerState& state) {
  wire::ReferenceGet::Reply reply{};
  reply.format = state.format;
  reply.channels = static_cast<uint32_t>(state.channels);
  SetSampler(state.sampler, &reply);
  return reply;
}

}  // namespace

// What the driver does not report counts as zero; the next binding then sets it like everything
// else.
CUresult SamplerState::ReadFresh(const Driver& cuda, CUtexref texture) {
  int most = 0;
  CUDA_RETURN_IF_ERROR(cuda.cuTexRefGetFormat(&format, &channels, texture));
  for (int i = 0; i < 3; ++i) {
    (void)cuda.cuTexRefGetAddressMode(&sampler.addressMode[i], texture, i);
  }
  (void)cuda.cuTexRefGetFilterMode(&sampler.filterMode, texture);
  (void)cuda.cuTexRefGetFlags(&sampler.flags, texture);
  (void)cuda.cuTexRefGetMipmapFilterMode(&sampler.mipmapFilterMode, texture);
  (void)cuda.cuTexRefGetMipmapLevelBias(&sampler.mipmapLevelBias, texture);
  (void)cuda.cuTexRefGetMipmapLevelClamp(&sampler.minMipmapLevelClamp, &sampler.maxMipmapLevelClamp,
                                         texture);
  (void)cuda.cuTexRefGetBorderColor(sampler.borderColor, texture);
  (void)cuda.cuTexRefGetMaxAnisotropy(&most, texture);
  sampler.maxAnisotropy = static_cast<unsigned>(most);
  return CUDA_SUCCESS;
}

size_t References::Add(CUtexref texture, const SamplerState& state) {
  One one;
  one.texture = texture;
  one.state = state;
  return Add(one);
}

size_t References::Add(CUsurfref surface) {
  One one;
  one.surface = surface;
  return Add(one);
}

// The same reference of the driver's, looked up twice, is one: it has one binding.
size_t References::Add(const One& one) {
  const auto known = std::find_if(ones_.begin(), ones_.end(), [&](const One& other) {
    return other.texture == one.texture && other.surface == one.surface;
  });
  if (known != ones_.end()) return static_cast<size_t>(known - ones_.begin());
  if (ones_.size() >= wire::kMaxReferencesOfLibrary) return kNone;
  ones_.push_back(one);
  return ones_.size() - 1;
}

// Copied on write: launches that were read before hold the previous bindings.
void References::Want(size_t number, BindingRef binding) {
  auto wanted = std::make_shared<Bindings>(*wanted_);
  if (wanted->each.size() <= number) wanted->each.resize(number + 1);
  wanted->each[number] = std::move(binding);
  wanted_ = std::move(wanted);
}

// Sets only what differs from the driver's state, as each setting is a call, in the way of a
// launch. What the driver has accepted is remembered even if it refuses the rest.
CUresult References::SetSampler(const Driver& cuda, One* one, const CUDA_TEXTURE_DESC& wanted) {
  CUDA_TEXTURE_DESC& now = one->state.sampler;
  const CUtexref texture = one->texture;
  CUresult result = CUDA_SUCCESS;
  const auto set = [&](bool differs, auto tell, auto note) {
    if (!differs || result != CUDA_SUCCESS) return;
    result = tell();
    if (result == CUDA_SUCCESS) note();
  };
  set(
      now.flags != wanted.flags, [&] { return cuda.cuTexRefSetFlags(texture, wanted.flags); },
      [&] { now.flags = wanted.flags; });
  for (int i = 0; i < 3; ++i) {
    set(
        now.addressMode[i] != wanted.addressMode[i],
        [&] { return cuda.cuTexRefSetAddressMode(texture, i, wanted.addressMode[i]); },
        [&] { now.addressMode[i] = wanted.addressMode[i]; });
  }
  set(
      now.filterMode != wanted.filterMode,
      [&] { return cuda.cuTexRefSetFilterMode(texture, wanted.filterMode); },
      [&] { now.filterMode = wanted.filterMode; });
  set(
      now.mipmapFilterMode != wanted.mipmapFilterMode,
      [&] { return cuda.cuTexRefSetMipmapFilterMode(texture, wanted.mipmapFilterMode); },
      [&] { now.mipmapFilterMode = wanted.mipmapFilterMode; });
  set(
      !Same(now.mipmapLevelBias, wanted.mipmapLevelBias),
      [&] { return cuda.cuTexRefSetMipmapLevelBias(texture, wanted.mipmapLevelBias); },
      [&] { now.mipmapLevelBias = wanted.mipmapLevelBias; });
  set(
      !Same(now.minMipmapLevelClamp, wanted.minMipmapLevelClamp) ||
          !Same(now.maxMipmapLevelClamp, wanted.maxMipmapLevelClamp),
      [&] {
        return cuda.cuTexRefSetMipmapLevelClamp(texture, wanted.minMipmapLevelClamp,
                                                wanted.maxMipmapLevelClamp);
      },
      [&] {
        now.minMipmapLevelClamp = wanted.minMipmapLevelClamp;
        now.maxMipmapLevelClamp = wanted.maxMipmapLevelClamp;
      });
  set(
      now.maxAnisotropy != wanted.maxAnisotropy,
      [&] { return cuda.cuTexRefSetMaxAnisotropy(texture, wanted.maxAnisotropy); },
      [&] { now.maxAnisotropy = wanted.maxAnisotropy; });
  set(
      !std::equal(std::begin(now.borderColor), std::end(now.borderColor),
                  std::begin(wanted.borderColor), Same),
      [&] {
        float color[4];
        std::copy(std::begin(wanted.borderColor), std::end(wanted.borderColor), color);
        return cuda.cuTexRefSetBorderColor(texture, color);
      },
      [&] {
        std::copy(std::begin(wanted.borderColor), std::end(wanted.borderColor), now.borderColor);
      });
  return result;
}

// 0 channels mean "not known".
CUresult References::SetFormat(const Driver& cuda, One* one, CUarray_format format, int channels) {
  if (one->state.format == format && one->state.channels == channels) return CUDA_SUCCESS;
  const CUresult result = cuda.cuTexRefSetFormat(one->texture, format, channels);
  if (result == CUDA_SUCCESS) {
    one->state.format = format;
    one->state.channels = channels;
  }
  return result;
}

// The sampler first, then what is bound. A null address takes what was bound away.
CUresult References::SetTexture(const Driver& cuda, One* one, const Binding& binding) {
  const CUtexref texture = one->texture;
  size_t offset = 0;
  if (!binding.bound) return cuda.cuTexRefSetAddress_v2(&offset, texture, 0, 0);
  CUDA_RETURN_IF_ERROR(SetSampler(cuda, one, binding.sampler));
  const CUDA_RESOURCE_DESC& resource = binding.resource;
  // The driver changes its format to that of what is bound, so ours is out of date.
  const auto forget_format = [one] { one->state.channels = 0; };
  switch (resource.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      forget_format();
      return cuda.cuTexRefSetArray(texture, resource.res.array.hArray, CU_TRSA_OVERRIDE_FORMAT);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      forget_format();
      return cuda.cuTexRefSetMipmappedArray(texture, resource.res.mipmap.hMipmappedArray,
                                            CU_TRSA_OVERRIDE_FORMAT);
    case CU_RESOURCE_TYPE_LINEAR: {
      const auto& linear = resource.res.linear;
      // The driver refuses a format directly after two-dimensional memory.
      if (one->set != nullptr && one->set->bound &&
          one->set->resource.resType == CU_RESOURCE_TYPE_PITCH2D) {
        (void)cuda.cuTexRefSetAddress_v2(&offset, texture, 0, 0);
      }
      CUDA_RETURN_IF_ERROR(
          SetFormat(cuda, one, linear.format, static_cast<int>(linear.numChannels)));
      return cuda.cuTexRefSetAddress_v2(&offset, texture, linear.devPtr, linear.sizeInBytes);
    }
    case CU_RESOURCE_TYPE_PITCH2D: {
      const auto& pitched = resource.res.pitch2D;
      const CUDA_ARRAY_DESCRIPTOR shape = {pitched.width, pitched.height, pitched.format,
                                           pitched.numChannels};
      forget_format();
      return cuda.cuTexRefSetAddress2D_v3(texture, &shape, pitched.devPtr, pitched.pitchInBytes);
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

// A surface reference has no sampler.
CUresult References::SetSurface(const Driver& cuda, const One& one, const Binding& binding) {
  return cuda.cuSurfRefSetArray(one.surface,
                                binding.bound ? binding.resource.res.array.hArray : nullptr, 0);
}

// Sets one reference at the driver. After a failure nobody knows which binding the driver has, so
// both are held until a later call succeeds.
CUresult References::Apply(const Driver& cuda, One* one, const BindingRef& wanted) {
  // Gives up on a reference that the driver keeps refusing, because what we hold for it must be
  // bounded.
  if (one->held.size() >= kMostHeld) return CUDA_ERROR_INVALID_VALUE;
  const CUresult applied =
      one->surface != nullptr ? SetSurface(cuda, *one, *wanted) : SetTexture(cuda, one, *wanted);
  if (applied == CUDA_SUCCESS) {
    one->set = wanted;
    one->held.clear();
  } else if (std::find(one->held.begin(), one->held.end(), wanted) == one->held.end()) {
    // The driver may use this one or the previous one.
    one->held.push_back(wanted);
    if (one->set != nullptr) one->held.push_back(std::move(one->set));
    one->set = nullptr;
  }
  return applied;
}

// Compares identities: a program that binds the same again makes a new binding, which costs a few
// calls. A failure of one reference does not keep the others from being set; the last failure is
// the launch's.
CUresult References::Set(const Driver& cuda, const Bindings& bindings) {
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < bindings.each.size(); ++i) {
    const BindingRef& wanted = bindings.each[i];
    if (wanted == nullptr || wanted == ones_[i].set) continue;
    if (!wanted->bound) {
      Forget(cuda, &ones_[i]);
    } else if (const CUresult applied = Apply(cuda, &ones_[i], wanted); applied != CUDA_SUCCESS) {
      result = applied;
    }
  }
  return result;
}

// If the driver refuses, it still uses what was bound, so we keep holding that.
void References::Forget(const Driver& cuda, One* one) {
  if (one->set == nullptr && one->held.empty()) return;
  const CUresult applied = one->surface != nullptr ? SetSurface(cuda, *one, Binding())
                                                   : SetTexture(cuda, one, Binding());
  if (applied != CUDA_SUCCESS) return;
  one->set = nullptr;
  one->held.clear();
}

// The tenant has destroyed the array: its memory must not wait for the next launch of this library.
void References::Release(const Driver& cuda, const ArrayRef& array) {
  for (size_t i = 0; i < ones_.size(); ++i) {
    One& one = ones_[i];
    if (one.set == nullptr || one.set->array != array ||
        (i < wanted_->each.size() && wanted_->each[i] == one.set)) {
      continue;
    }
    Forget(cuda, &one);
  }
}

// A lookup in progress. Its functions run on a worker.
struct TextureReferences::ReferenceLookup {
  std::string name;
  wire::ReferenceKind kind;
  CUlibrary library = nullptr;  // null: a texture reference of no library
  CUresult result = CUDA_ERROR_NOT_SUPPORTED;
  CUtexref texture = nullptr;
  CUsurfref surface = nullptr;
  SamplerState state;

  void FindInLibrary(const Driver& cuda) {
    if (cuda.cuModuleGetTexRef == nullptr || cuda.cuModuleGetSurfRef == nullptr) return;
    CUmodule module = nullptr;
    // References are looked up by module; the library's is that of the current context.
    result = cuda.cuLibraryGetModule(&module, library);
    if (result != CUDA_SUCCESS) return;
    if (kind == wire::ReferenceKind::kSurface) {
      result = cuda.cuModuleGetSurfRef(&surface, module, name.c_str());
      return;
    }
    result = cuda.cuModuleGetTexRef(&texture, module, name.c_str());
    if (result == CUDA_SUCCESS) result = state.ReadFresh(cuda, texture);
  }

  // The initial state of a texture reference of no library. The driver's own one is destroyed again
  // at once.
  void InspectNew(const Driver& cuda) {
    if (cuda.cuTexRefCreate == nullptr) return;
    result = cuda.cuTexRefCreate(&texture);
    if (result != CUDA_SUCCESS) return;
    result = state.ReadFresh(cuda, texture);
    cuda.cuTexRefDestroy(texture);
  }
};

void TextureReferences::On(wire::Tag<wire::ReferenceGet>,
                           const wire::ReferenceGet::Request& request, const wire::Record& record) {
  const Caller caller = CallerOf(record);
  auto lookup = std::make_shared<ReferenceLookup>();
  lookup->kind = request.kind;
  if (request.library == wire::LibraryId{0} && request.reference == wire::ReferenceId{0}) {
    return modules_.Post([lookup, &cuda = services_.device->cuda()] { lookup->InspectNew(cuda); },
                         [this, lookup, caller] {
                           Reply<wire::ReferenceGet>(caller,
                                                     services_.device->Judge(lookup->result),
                                                     ReplyOf(lookup->state));
                         });
  }
  const Library* library = loaded_->FindLibrary(request.library);
  if (library == nullptr) return;
  if (request.kind != wire::ReferenceKind::kTexture &&
      request.kind != wire::ReferenceKind::kSurface) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  if (references_.Add(request.reference) == nullptr) return Refuse(wire::Fatal::kBadHandle);
  lookup->name.assign(record.payload.begin(), record.payload.end());
  lookup->library = library->loaded->handle;
  if (library->loaded->shared) {  // such an image has no references
    lookup->result = CUDA_ERROR_NOT_FOUND;
    return FinishReference(caller, request, *lookup, library->loaded);
  }
  loaded_->UseLibrary(
      library->loaded,
      [lookup, &cuda = services_.device->cuda()] {
        lookup->FindInLibrary(cuda);
        return false;  // it may not be usable yet
      },
      [this, lookup, caller, request, loaded = library->loaded] {
        FinishReference(caller, request, *lookup, loaded);
      });
}

void TextureReferences::FinishReference(Caller caller, const wire::ReferenceGet::Request& request,
                                        const ReferenceLookup& lookup, const LibraryRef& loaded) {
  CUresult result = services_.device->JudgeImage(lookup.result);
  Library* owner = loaded_->FindLoaded(request.library, loaded);
  if (owner == nullptr) result = CUDA_ERROR_INVALID_HANDLE;
  size_t number = References::kNone;
  if (result == CUDA_SUCCESS) {
    if (loaded->references == nullptr) loaded->references = std::make_shared<References>();
    References& references = *loaded->references;
    number = lookup.surface != nullptr ? references.Add(lookup.surface)
                                       : references.Add(lookup.texture, lookup.state);
    if (number == References::kNone) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (result != CUDA_SUCCESS) {
    references_.Take(request.reference);
    return Reply<wire::ReferenceGet>(caller, result);
  }
  owner->references.push_back(request.reference);
  // The entry is there since the request, and null: no command could use or remove it.
  *references_.Find(request.reference) = {loaded, request.kind, number};
  Reply<wire::ReferenceGet>(caller, CUDA_SUCCESS, ReplyOf(lookup.state));
}

void TextureReferences::On(wire::Tag<wire::ReferenceSet>,
                           const wire::ReferenceSet::Request& request, const wire::Record&) {
  const Reference* reference = references_.Find(request.reference);
  if (reference == nullptr || reference->library == nullptr) {
    return Refuse(wire::Fatal::kBadHandle);
  }
  auto binding = std::make_shared<Binding>();
  if (request.bound != 0) {
    if (request.look.has_view != 0 || (reference->kind == wire::ReferenceKind::kSurface &&
                                       request.look.resource != wire::ViewResource::kArray)) {
      return Refuse(wire::Fatal::kBadArgument);
    }
    if (!arrays_->JudgeTexture(request.look, &binding->resource, &binding->array)) return;
    binding->bound = true;
    binding->sampler = SamplerOf(request.look);
  }
  reference->library->references->Want(reference->number, std::move(binding));
}

// nullptr for nearly all libraries: a launch then only pays for a look at a pointer.
std::shared_ptr<const Bindings> BindingsOf(const LoadedLibrary& library) {
  return library.references == nullptr ? nullptr : library.references->wanted();
}

void TextureReferences::UnbindArray(const ArrayRef& whole) {
  // Most sessions have none, and need not look through their libraries.
  if (references_.size() == 0) return;
  libraries_.ForEach([&](const Library& library) {
    if (library.loaded != nullptr && library.loaded->references != nullptr) {
      library.loaded->references->Release(services_.device->cuda(), whole);
    }
  });
}

}  // namespace gpuloom::executor
