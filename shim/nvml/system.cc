// SPDX-License-Identifier: Apache-2.0
// The library itself and the machine around the device.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/channel/unique_fd.h"
#include "shim/nvml/node.h"
#include "shim/nvml/text.h"

using namespace gpuloom::nvml;  // NVML's functions are written in our terms

NVML_EXPORT int nvmlInit_v2() { return node.Init(); }
NVML_EXPORT int nvmlInit() { return node.Init(); }
// The flags only say what to do about devices that are absent or not attached.
NVML_EXPORT int nvmlInitWithFlags(unsigned) { return node.Init(); }
NVML_EXPORT int nvmlShutdown() { return node.Shutdown(); }

// The texts are NVML's own, because programs print them and some compare them. Needs no initialized library.
NVML_EXPORT const char* nvmlErrorString(int result) {
  static constexpr const char* kTexts[] = {
      "Success",
      "Uninitialized",
      "Invalid Argument",
      "Not Supported",
      "Insufficient Permissions",
      "Already Initialized",
      "Not Found",
      "Insufficient Size",
      "Insufficient External Power",
      "Driver Not Loaded",
      "Timeout",
      "Interrupt Request Issue",
      "NVML Shared Library Not Found",
      "Function Not Found",
      "Corrupted infoROM",
      "GPU is lost",
      "GPU requires reset",
      "GPU access blocked by the operating system",
      "Driver/library version mismatch",
      "In use by another client",
      "Insufficient Memory",
      "No data",
      "vGPU ECC not supported",
      "Insufficient Resources",
      "Invalid Frequency",
      "Argument version mismatch",
      "Requested functionality has been deprecated",
      "System is not in ready state",
      "No supported GPUs were found",
      "Resource not in correct state to perform requested operation",
      "Reset type is not supported for given device",
  };
  constexpr int kCount = sizeof(kTexts) / sizeof(kTexts[0]);
  return result >= 0 && result < kCount ? kTexts[result] : "Unknown Error";
}

namespace {

// NVIDIA's own tools reach inside the library through tables of functions: the size in bytes, then
// the functions. nvidia-smi ends when the one it asks for is missing, and gets along when a
// function in it refuses. So it is given as many functions as there may be, and all of them refuse.
constexpr size_t kInnerFunctions = 1023;
gpuloom::Lock inner_lock;
const void* inner_table[1 + kInnerFunctions] GPULOOM_GUARDED_BY(inner_lock);

constexpr uint8_t kToolsTable[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                     0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};

int RefuseInner() { return kNotSupported; }

}  // namespace

NVML_EXPORT int nvmlInternalGetExportTable(const void** table, const void* id) {
  if (table == nullptr || id == nullptr) return kInvalidArgument;
  *table = nullptr;
  if (memcmp(id, kToolsTable, sizeof(kToolsTable)) != 0) return kFunctionNotFound;
  gpuloom::Holding holding(&inner_lock);
  inner_table[0] = reinterpret_cast<const void*>(sizeof(inner_table));
  for (size_t i = 1; i <= kInnerFunctions; ++i) {
    inner_table[i] = reinterpret_cast<const void*>(&RefuseInner);
  }
  *table = inner_table;
  return kSuccess;
}

NVML_EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned text_bytes) {
  if (!node.initialized()) return kUninitialized;
  // The software GPU has no driver.
  if (node.driver_text()[0] == '\0') return kNotSupported;
  return CopyText(text, text_bytes, node.driver_text());
}

// The major version of CUDA that this NVML belongs to, then the driver's version.
NVML_EXPORT int nvmlSystemGetNVMLVersion(char* text, unsigned text_bytes) {
  if (!node.initialized()) return kUninitialized;
  char version[100] = "13.0";
  if (node.driver_text()[0] != '\0')
    snprintf(version, sizeof(version), "13.%s", node.driver_text());
  return CopyText(text, text_bytes, version);
}

NVML_EXPORT int nvmlSystemGetCudaDriverVersion(int* version) {
  if (!node.initialized()) return kUninitialized;
  if (version == nullptr) return kInvalidArgument;
  *version = node.device().driver_version;
  return kSuccess;
}
NVML_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return nvmlSystemGetCudaDriverVersion(version);
}

// Names only processes that the caller can see anyway.
NVML_EXPORT int nvmlSystemGetProcessName(unsigned pid, char* name, unsigned name_bytes) {
  if (!node.initialized()) return kUninitialized;
  if (name == nullptr || name_bytes == 0) return kInvalidArgument;
  char path[32];
  snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
  const gpuloom::channel::UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  char line[1024] = {};
  if (!file.valid() || read(file.get(), line, sizeof(line) - 1) <= 0) return kNotFound;
  snprintf(name, name_bytes, "%s", line);
  return kSuccess;
}

// A tenant's memory is reached by executors of its node: no confidential computing here.
NVML_EXPORT int nvmlSystemGetConfComputeState(ConfComputeState* state) {
  if (!node.initialized()) return kUninitialized;
  if (state == nullptr) return kInvalidArgument;
  *state = {};
  return kSuccess;
}
NVML_EXPORT int nvmlSystemGetConfComputeSettings(ConfComputeSettings* settings) {
  if (!node.initialized()) return kUninitialized;
  if (settings == nullptr) return kInvalidArgument;
  if (settings->version != VersionOf(sizeof(*settings), 1)) return kArgumentVersionMismatch;
  *settings = {settings->version, 0, 0, 0, 0};
  return kSuccess;
}

namespace {

int Zero(unsigned* count) {
  if (!node.initialized()) return kUninitialized;
  if (count == nullptr) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}

}  // namespace

NVML_EXPORT int nvmlUnitGetCount(unsigned* count) { return Zero(count); }
NVML_EXPORT int nvmlGetExcludedDeviceCount(unsigned* count) { return Zero(count); }
NVML_EXPORT int nvmlGetBlacklistDeviceCount(unsigned* count) { return Zero(count); }
