// SPDX-License-Identifier: Apache-2.0
// Texture and surface references of one loaded library, and their bindings.
//
// A tenant binds references from host code, in no stream, while launches that it sent earlier may
// still be queued here. So binding does not call the driver at once: each launch carries the
// bindings that its library's references had when it was read from the ring, and the driver's
// references are set to these before the launch (docs/design/texture-references.md).
//
// The driver must never see an array that is gone: whatever a reference was set to is held until
// the reference is set to something else, or the library is unloaded.
//
// Ring thread only, except ReadFresh.
#pragma once

#include <memory>
#include <vector>

#include "agent/executor/image/array.h"
#include "proto/cuda/driver.h"
#include "proto/wire/texture_reference_commands.h"

namespace gpuloom::executor {

// Validated binding of one reference. Immutable.
struct Binding {
  bool bound = false;
  CUDA_RESOURCE_DESC resource{};
  CUDA_TEXTURE_DESC sampler{};  // of a texture
  ArrayRef array;               // that the resource refers to
};
using BindingRef = std::shared_ptr<const Binding>;

class References;
struct LoadedLibrary;

// By reference number; null: never bound. Must not outlive the library.
struct Bindings {
  References* of;
  std::vector<BindingRef> each;
};

// The driver's state of a texture reference.
struct SamplerState {
  CUDA_TEXTURE_DESC sampler{};
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  int channels = 1;

  // Safe from any thread.
  [[nodiscard]] CUresult ReadFresh(const Driver& cuda, CUtexref texture);
};

class References {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  References() : wanted_(std::make_shared<const Bindings>(Bindings{this, {}})) {}

  // Returns its number; the same for the same reference. kNone if there are too many.
  size_t Add(CUtexref texture, const SamplerState& state);
  size_t Add(CUsurfref surface);

  // Applies to launches that are read after this call.
  void Want(size_t number, BindingRef binding);
  const std::shared_ptr<const Bindings>& wanted() const { return wanted_; }

  // Sets the driver's references where they differ from `bindings`.
  [[nodiscard]] CUresult Set(const Driver& cuda, const Bindings& bindings);
  // Makes the driver's references drop the array, unless it is still wanted. No launch that has been read uses it any
  // more.
  void Release(const Driver& cuda, const ArrayRef& array);

 private:
  struct One {
    CUtexref texture = nullptr;  // one of the two is set
    CUsurfref surface = nullptr;
    SamplerState state;
    BindingRef set;                // what was last set at the driver
    std::vector<BindingRef> held;  // what the driver may still hold, because a call to it failed
  };
  static constexpr size_t kMostHeld = 16;
  size_t Add(const One& one);
  static CUresult Apply(const Driver& cuda, One* one, const BindingRef& wanted);
  static void Forget(const Driver& cuda, One* one);
  static CUresult SetSampler(const Driver& cuda, One* one, const CUDA_TEXTURE_DESC& wanted);
  static CUresult SetFormat(const Driver& cuda, One* one, CUarray_format format, int channels);
  static CUresult SetTexture(const Driver& cuda, One* one, const Binding& binding);
  static CUresult SetSurface(const Driver& cuda, const One& one, const Binding& binding);

  std::vector<One> ones_;
  std::shared_ptr<const Bindings> wanted_;
};

// The bindings that a launch of this library must carry; null if it has no references.
std::shared_ptr<const Bindings> BindingsOf(const LoadedLibrary& library);
// Call before the launch that the bindings belong to.
[[nodiscard]] inline CUresult Bind(const Driver& cuda,
                                   const std::shared_ptr<const Bindings>& bindings) {
  return bindings == nullptr ? CUDA_SUCCESS : bindings->of->Set(cuda, *bindings);
}

}  // namespace gpuloom::executor
