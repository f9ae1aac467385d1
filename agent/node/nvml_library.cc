// SPDX-License-Identifier: Apache-2.0
#include "agent/node/nvml_library.h"

namespace gpuloom {

NvmlLibrary::NvmlLibrary(const std::string& path)
    : library_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) {
    error_ =
        std::string(dlerror()) +
        ": is NVIDIA's driver installed, and, in a pod, does its runtime class bring it? A pod "
        "that is older than the driver must be deleted";
    return;
  }
  if (const int code = Call("nvmlInit_v2"); code != kNvmlSuccess) {
    error_ = code == kNvmlFunctionNotFound
                 ? path + " has no nvmlInit_v2: it is too old, or not NVML"
                 : "init: " + TextOf(code) + "; does nvidia-smi work on the node?";
    // A library that was not initialized is not shut down.
    library_.reset();
  }
}

// Without a library this calls nothing. Afterwards the library is unloaded, with what it knew of
// the driver.
NvmlLibrary::~NvmlLibrary() { (void)Call("nvmlShutdown"); }

std::string NvmlLibrary::TextOf(int code) const {
  if (code == kNvmlFunctionNotFound) return "the library is too old for it";
  using ErrorString = const char* (*)(int);
  const auto text =
      reinterpret_cast<ErrorString>(library_ ? dlsym(library_.get(), "nvmlErrorString") : nullptr);
  return text != nullptr ? text(code) : "error " + std::to_string(code);
}

}  // namespace gpuloom
