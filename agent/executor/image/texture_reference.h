// SPDX-License-Identifier: Apache-2.0
// Texture and surface references of one loaded library, and what they are bound to.
//
// A tenant binds references by host code, in no stream, and launches that it has sent before may
// still wait here. So a binding changes nothing at the driver at once: each launch carries what its
// library's references were bound to when it was read from the ring, and the driver's references
// are set to that in front of it (docs/design/texture-references.md).
//
// The driver must not meet an array that is gone: what one of its references was set to is held until
// it is set to something else, or the library is unloaded.
//
// Ring thread only, but for what ReadFresh… say.
#pragma once

#include <memory>
#include <vector>

#include "agent/executor/image/array.h"
#include "proto/cuda/driver.h"
#include "proto/wire/texture_reference_commands.h"

namespace gpuloom::executor {

// What one reference is bound to; judged. Never changed.
struct Binding {
  bool bound = false;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC sampler{};  // of a texture
  ArrayRef array;               // that the resource names
};
using BindingRef = std::shared_ptr<const Binding>;

class References;
struct LoadedLibrary;

// By the references' numbers; null: never bound. Lives no longer than the library.
struct Bindings {
  References* of;
  std::vector<BindingRef> each;
};

// What the driver has set in a texture reference.
struct SamplerState {
  CUDA_TEXTURE_DESC sampler{};
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  int channels = 1;

  // From any thread.
  [[nodiscard]] CUresult ReadFresh(const Driver& cuda, CUtexref texture);
};

class References {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  References() : wanted_(std::make_shared<const Bindings>(Bindings{this, {}})) {}

  // Its number; the same for the same reference. kNone: there are too many.
  size_t Add(CUtexref texture, const SamplerState& state);
  size_t Add(CUsurfref surface);

  // For launches that are read from now on.
  void Want(size_t number, BindingRef binding);
  const std::shared_ptr<const Bindings>& wanted() const { return wanted_; }

  // Sets the driver's references where they differ.
  [[nodiscard]] CUresult Set(const Driver& cuda, const Bindings& bindings);
  // The driver's references are to forget the array, unless it is wanted. No launch that was read uses
  // it any more.
  void LetGo(const Driver& cuda, const ArrayRef& array);

 private:
  struct One {
    CUtexref texture = nullptr;  // one of the two
    CUsurfref surface = nullptr;
    SamplerState state;
    BindingRef set;                // what the driver was told last
    std::vector<BindingRef> held;  // and what it may still have, because telling it failed
  };
  static constexpr size_t kMostHeld = 16;
  size_t Add(const One& one);
  static CUresult Tell(const Driver& cuda, One* one, const BindingRef& wanted);
  static void Forget(const Driver& cuda, One* one);
  static CUresult SetSampler(const Driver& cuda, One* one, const CUDA_TEXTURE_DESC& wanted);
  static CUresult SetFormat(const Driver& cuda, One* one, CUarray_format format, int channels);
  static CUresult SetTexture(const Driver& cuda, One* one, const Binding& binding);
  static CUresult SetSurface(const Driver& cuda, const One& one, const Binding& binding);

  std::vector<One> ones_;
  std::shared_ptr<const Bindings> wanted_;
};

// What a launch of the library's is to carry; null: it has no references.
std::shared_ptr<const Bindings> BindingsOf(const LoadedLibrary& library);
// Before the launch that they belong to.
[[nodiscard]] inline CUresult Bind(const Driver& cuda,
                                   const std::shared_ptr<const Bindings>& bindings) {
  return bindings == nullptr ? CUDA_SUCCESS : bindings->of->Set(cuda, *bindings);
}

}  // namespace gpuloom::executor
