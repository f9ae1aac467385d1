// SPDX-License-Identifier: Apache-2.0
// An image with `__managed__` variables on its way to the driver. The driver would place them where
// only this process can access them; so the tenant provides an address of its own, and the image
// is loaded with the variables declared as lying there (docs/design/managed-variables.md).
//
// Owned by the load (loading.h) and, once the driver has it, by the loaded library. Used on worker threads, one at a
// time. Trusts nothing in the image. An image that it cannot parse
// is not handled here (Find returns null) and goes to the driver unchanged.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "agent/executor/memory/host_memory.h"
#include "agent/executor/module/jit_options.h"
#include "proto/cuda/device_bytes.h"
#include "proto/cuda/driver.h"
#include "proto/cuda/managed_variables.h"

namespace gpuloom::executor {

class Device;

// Chooses the code that the device's driver would load from the image. Returns false if none fits.
// `only_text`: its machine code has been refused.
[[nodiscard]] bool ChooseFor(Device* device, std::span<const uint8_t> image, bool only_text,
                             DeviceCode* code);

class ManagedImage {
 public:
  struct Services {
    std::string name;
    uint64_t address;
    uint64_t size_bytes;
  };

  // Returns true if this much more host memory may be taken.
  using Afford = std::function<bool(uint64_t bytes)>;

  // Takes over `code`, as chosen by ChooseFor, if it has such variables. Returns nullptr if it has
  // none, `left` became true, or the memory could not be afforded. `jit` has the options for the
  // driver's linker and gets its logs. The caller must have paid for `code`.
  static std::unique_ptr<ManagedImage> Find(Device* device, DeviceCode* code, JitOptions* jit,
                                            const void* tenant, const std::atomic<bool>& left,
                                            const Afford& afford);

  // The library that Find has loaded of text, once, for the caller to unload; null: the variables are known. Otherwise
  // ReadText must follow, which waits for the device. It returns false if they cannot be found.
  CUlibrary TakeText() { return std::exchange(text_, nullptr); }
  bool IsUnread() const { return text_ != nullptr; }
  bool ReadText(const Driver& cuda, CUlibrary library, const Afford& afford);

  uint64_t size_bytes() const { return size_bytes_; }
  bool is_cubin() const { return code_.kind == ImageKind::kElf; }
  // Device memory needed when loaded.
  uint64_t device_bytes() const { return DeviceBytes(code_); }

  // Loads the image before the variables have a place, to see whether the driver takes its code. The
  // caller unloads it in a quiet moment, and asks it for nothing.
  CUresult Try(const Driver& cuda, CUlibrary* library) const;
  // Writes the initial values to `values` and loads the image for variables at `address`, once. The tenant may write
  // there at the same time; the values are its own. The driver loads lazily and reads names and addresses when a
  // kernel is first requested: this object must live until the library is unloaded.
  CUresult Load(const Driver& cuda, const HostMemory& host, uint64_t address, uint64_t values,
                CUlibrary* library);
  // Call after Load.
  std::vector<Services> VariablesAt(uint64_t address) const;

 private:
  bool LoadText(const Driver& cuda);
  bool LayOut();

  DeviceCode code_;  // with the variables released
  CUlibrary text_ = nullptr;
  std::vector<std::string> text_names_;
  std::vector<ManagedVariable> variables_;
  std::vector<uint64_t> offsets_;
  uint64_t size_bytes_ = 0;
  std::vector<const char*> names_;
  std::vector<void*> places_;
};

}  // namespace gpuloom::executor
