// SPDX-License-Identifier: Apache-2.0
// NVIDIA's management library (NVML), loaded at run time: the toolkit ships no nvml.h, and a node without a driver has
// no libnvidia-ml.so.1. Owns the loaded library: it is loaded and initialised while an object lives and unloaded after
// it, so that a driver that has been reloaded is seen afresh. Used by one thread.
//
//   const NvmlLibrary nvml(kNvmlLibrary);
//   if (!nvml.error().empty()) return Complain("nvml: " + nvml.error());
//   unsigned count = 0;
//   if (const int code = nvml.Call("nvmlDeviceGetCount_v2", &count); code != kNvmlSuccess) …
#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>

namespace gpuloom {

inline constexpr char kNvmlLibrary[] = "libnvidia-ml.so.1";

// The part of NVML's C interface that is used here, as its public documentation gives it.
inline constexpr int kNvmlSuccess = 0;
inline constexpr int kNvmlFunctionNotFound = 13;
using NvmlDevice = struct NvmlDeviceOpaque*;

struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

class NvmlLibrary {
 public:
  explicit NvmlLibrary(const std::string& path);
  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;
  ~NvmlLibrary();

  // Empty if the library can be used; otherwise why it cannot, and what to look at next.
  const std::string& error() const { return error_; }

  // Calls the function and returns its code; kNvmlFunctionNotFound if the library does not have it. The arguments must
  // have the types of the function's parameters.
  template <typename... Arguments>
  int Call(const char* function, Arguments... arguments) const {
    const auto found = reinterpret_cast<int (*)(Arguments...)>(
        library_ ? dlsym(library_.get(), function) : nullptr);
    return found == nullptr ? kNvmlFunctionNotFound : found(arguments...);
  }
  // The library's own text for a code.
  std::string TextOf(int code) const;

 private:
  struct Unload {
    void operator()(void* library) const { dlclose(library); }
  };
  std::unique_ptr<void, Unload> library_;
  std::string error_;
};

}  // namespace gpuloom
