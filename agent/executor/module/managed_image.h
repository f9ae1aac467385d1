// SPDX-License-Identifier: Apache-2.0
// An image with `__managed__` variables on its way to the driver. The driver would put them where
// only this process reaches them; so the tenant gives a place in its arena, and the image is loaded
// with the variables declared as lying there (docs/design/managed-variables.md).
//
// Used on worker threads, one after the other. Trusts nothing of the image. What it cannot take
// apart is not an image of ours (Find gives null) and goes to the driver as it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "agent/executor/device/device.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/module/jit.h"
#include "proto/cuda/device_bytes.h"
#include "proto/cuda/managed_variables.h"

namespace gpuloom::executor {

// What the device's driver would take of the image. False: none of it.
[[nodiscard]] bool ChooseFor(Device* device, std::span<const uint8_t> image, DeviceCode* code);

class ManagedImage {
 public:
  struct Services {
    std::string name;
    uint64_t address;
    uint64_t size_bytes;
  };

  // Whether so many bytes more of this machine's memory may be taken.
  using Afford = std::function<bool(uint64_t bytes)>;

  // Of what was chosen of an image (ChooseFor), which it takes when it has any. nullptr: it has none,
  // `left` became true, or it could not be afforded. `jit` is told to the driver's linker and gets what
  // that says. The code is the caller's to afford.
  static std::unique_ptr<ManagedImage> Find(Device* device, DeviceCode* code, Jit* jit,
                                            const void* tenant, const std::atomic<bool>& left,
                                            const Afford& afford);

  uint64_t size_bytes() const { return size_bytes_; }
  // Of the device's memory, when it is loaded.
  uint64_t device_bytes() const { return DeviceBytes(code_); }

  // Writes the initial values and loads the image, once. The tenant may write there meanwhile; the
  // values are its own. The driver loads lazily and reads the names and addresses when somebody wants
  // a kernel: this object must live until the library is unloaded.
  CUresult Load(const Driver& cuda, const HostMemory& host, uint64_t address, CUlibrary* library);
  // Once loaded.
  std::vector<Services> PlacesAt(uint64_t address) const;

 private:
  bool FindInText(const Driver& cuda, const Afford& afford);
  bool PlaceAll();

  DeviceCode code_;  // with the variables released
  std::vector<ManagedVariable> variables_;
  std::vector<uint64_t> offsets_;
  uint64_t size_bytes_ = 0;
  std::vector<const char*> names_;
  std::vector<void*> places_;
};

}  // namespace gpuloom::executor
