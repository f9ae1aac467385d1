// SPDX-License-Identifier: Apache-2.0
// The door: every exported name. Functions that are not answered get their bodies here.
#include <atomic>

#include "shim/nvml/node.h"
#include "shim/process/log.h"

namespace gpuloom::nvml {
namespace {

enum class FunctionId : uint16_t {
#define NVML_FN(name, room) name,
#include "shim/nvml/nvml_api.def"
#undef NVML_FN
};

constexpr const char* kNames[] = {
#define NVML_FN(name, room) #name,
#include "shim/nvml/nvml_api.def"
#undef NVML_FN
};
constexpr size_t kFunctionCount = sizeof(kNames) / sizeof(kNames[0]);

std::atomic<bool> said[kFunctionCount];

// Unlike in libcuda, only information: monitors ask for everything and show what they get.
int OnRefused(FunctionId id) {
  if (!node.initialized()) return kUninitialized;
  const auto index = static_cast<size_t>(id);
  if (!said[index].exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kInfo, "%s is not supported (said once; it returns NVML_ERROR_NOT_SUPPORTED)",
        kNames[index]);
  }
  return kNotSupported;
}

}  // namespace
}  // namespace gpuloom::nvml

// The bodies are untyped: they ignore their arguments.
#define NVML_BODY_kAnswered(name)
#define NVML_BODY_kRefused(name) \
  NVML_EXPORT int name() { return gpuloom::nvml::OnRefused(gpuloom::nvml::FunctionId::name); }
#define NVML_FN(name, room) NVML_BODY_##room(name)
#include "shim/nvml/nvml_api.def"
#undef NVML_FN
