// SPDX-License-Identifier: Apache-2.0
// NVML's C interface, the part that is implemented here: result codes, enumerations and structures,
// as NVIDIA's public NVML API reference (docs.nvidia.com/deploy/nvml-api) gives their members,
// order and types. The toolkit ships no nvml.h. Sizes are asserted; where a structure carries a
// version, that is its size and its number in the top byte. A function's older versions take
// shorter structures. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuloom::nvml {

// nvmlReturn_t.
enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kFunctionNotFound = 13,
  kGpuIsLost = 15,
  kVersionMismatch = 18,
  kArgumentVersionMismatch = 25,
  kUnknown = 999,
};

// nvmlDevice_t: an address meaningful to this library only.
using DeviceHandle = const struct OpaqueDevice*;

// nvmlEnableState_t.
enum EnableState : int { kDisabled = 0, kEnabled = 1 };

inline constexpr uint32_t VersionOf(size_t size_bytes, uint32_t number) {
  return static_cast<uint32_t>(size_bytes) | number << 24;
}

struct Memory {
  uint64_t total;
  uint64_t free;
  uint64_t used;
};

struct MemoryV2 {
  uint32_t version;
  uint64_t total;
  uint64_t reserved;
  uint64_t free;
  uint64_t used;
};
static_assert(sizeof(MemoryV2) == 40);

// Processes: the first form, and that of the functions ending in _v2 and _v3.
struct ProcessV1 {
  uint32_t pid;
  uint64_t used_memory;
};
static_assert(sizeof(ProcessV1) == 16);
struct Process {
  uint32_t pid;
  uint64_t used_memory;
  uint32_t gpu_instance_id;      // kNoInstance outside MIG
  uint32_t compute_instance_id;  // kNoInstance outside MIG
};
static_assert(sizeof(Process) == 24);
inline constexpr uint32_t kNoInstance = 0xffffffff;

// PCI addresses: three generations, each longer, and one with a version.
struct PciInfoV1 {
  char bus_id[16];
  uint32_t domain;
  uint32_t bus;
  uint32_t device;
  uint32_t device_and_vendor;
};
static_assert(sizeof(PciInfoV1) == 32);
struct PciInfoV2 {
  PciInfoV1 place;
  uint32_t subsystem;
  uint32_t reserved[4];
};
static_assert(sizeof(PciInfoV2) == 52);
struct PciInfo {
  PciInfoV1 place;
  uint32_t subsystem;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);
struct PciInfoExt {
  uint32_t version;
  uint32_t domain;
  uint32_t bus;
  uint32_t device;
  uint32_t device_and_vendor;
  uint32_t subsystem;
  uint32_t base_class;
  uint32_t sub_class;
  char bus_id[32];
};
static_assert(sizeof(PciInfoExt) == 64);

struct ConfComputeState {
  uint32_t environment;
  uint32_t feature;
  uint32_t dev_tools;
};
struct ConfComputeSettings {
  uint32_t version;
  uint32_t environment;
  uint32_t feature;
  uint32_t dev_tools;
  uint32_t multi_gpu;
};
static_assert(sizeof(ConfComputeSettings) == 20);

struct FieldValue {
  uint32_t field;
  uint32_t scope;
  int64_t timestamp;
  int64_t latency_usec;
  uint32_t value_type;
  int32_t result;
  uint64_t value;
};
static_assert(sizeof(FieldValue) == 40);

struct FabricInfo {
  uint8_t cluster[16];
  uint32_t status;
  uint32_t clique;
  uint8_t state;  // 0: there is no fabric
};
static_assert(sizeof(FabricInfo) == 28);
// Versions 2 and 3; the third is one byte longer.
struct FabricInfoV {
  uint32_t version;
  uint8_t cluster[16];
  uint32_t status;
  uint32_t clique;
  uint8_t state;
  uint32_t health;
  uint8_t health_summary;
};
inline constexpr size_t kFabricInfoV2Bytes = 36;
static_assert(sizeof(FabricInfoV) == 40 && offsetof(FabricInfoV, health_summary) == 36);

inline constexpr unsigned kMaxNvLinks = 18;

}  // namespace gpuloom::nvml

// The functions below are what the process sees.
#define NVML_EXPORT extern "C" __attribute__((visibility("default")))
