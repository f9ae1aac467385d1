// SPDX-License-Identifier: Apache-2.0
// The quota and what of it is in use, as a whole and by process.
#include "shim/nvml/node.h"

namespace gpuloom::nvml {
namespace {

Return QueryMemory(DeviceHandle device, Memory* memory) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  wire::QueryAnswer now;
  if (const Return result = node.Look(&now); result != kSuccess) return result;
  const uint64_t total = now.device.total_memory_bytes;
  // A quota that was lowered may be below what is in use.
  const uint64_t used = now.used_memory_bytes < total ? now.used_memory_bytes : total;
  *memory = {total, total - used, used};
  return kSuccess;
}

// The first argument only selects the form: versions 2 and 3 added the two fields of MIG.
ProcessV1 As(ProcessV1*, const wire::ProcessUse& use) {
  return {static_cast<uint32_t>(use.pid), use.used_memory_bytes};
}
Process As(Process*, const wire::ProcessUse& use) {
  return {static_cast<uint32_t>(use.pid), use.used_memory_bytes, kNoInstance, kNoInstance};
}

// *count is the room in `processes` before the call, and the number of processes after it.
template <typename T>
Return ListProcesses(DeviceHandle device, unsigned* count, T* processes) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (count == nullptr) return kInvalidArgument;
  wire::QueryAnswer now;
  if (const Return result = node.Look(&now); result != kSuccess) return result;
  const unsigned room = *count;
  *count = now.process_count;
  if (room < now.process_count) return kInsufficientSize;
  if (now.process_count != 0 && processes == nullptr) return kInvalidArgument;
  for (uint32_t i = 0; i < now.process_count; ++i) processes[i] = As(processes, now.processes[i]);
  return kSuccess;
}

// Lists processes of kinds that tenants do not have: graphics, and clients of MPS.
Return ListNone(DeviceHandle device, unsigned* count) {
  if (const Return result = CheckDevice(device); result != kSuccess) return result;
  if (count == nullptr) return kInvalidArgument;
  *count = 0;
  return kSuccess;
}

}  // namespace
}  // namespace gpuloom::nvml

using namespace gpuloom::nvml;  // NVML's functions are written in our terms

NVML_EXPORT int nvmlDeviceGetMemoryInfo(DeviceHandle device, Memory* memory) {
  if (memory == nullptr) return kInvalidArgument;
  return QueryMemory(device, memory);
}

NVML_EXPORT int nvmlDeviceGetMemoryInfo_v2(DeviceHandle device, MemoryV2* memory) {
  if (memory == nullptr) return kInvalidArgument;
  if (memory->version != VersionOf(sizeof(*memory), 2)) return kArgumentVersionMismatch;
  Memory now;
  if (const Return result = QueryMemory(device, &now); result != kSuccess) return result;
  // Nothing of the quota is kept back for the system.
  *memory = {memory->version, now.total, 0, now.free, now.used};
  return kSuccess;
}

NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses(DeviceHandle device, unsigned* count,
                                                     ProcessV1* processes) {
  return ListProcesses(device, count, processes);
}
NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(DeviceHandle device, unsigned* count,
                                                        Process* processes) {
  return ListProcesses(device, count, processes);
}
NVML_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(DeviceHandle device, unsigned* count,
                                                        Process* processes) {
  return ListProcesses(device, count, processes);
}

#define NVML_LISTS_NONE(name)                                               \
  NVML_EXPORT int name(DeviceHandle device, unsigned* count, const void*) { \
    return ListNone(device, count);                                         \
  }
NVML_LISTS_NONE(nvmlDeviceGetGraphicsRunningProcesses)
NVML_LISTS_NONE(nvmlDeviceGetGraphicsRunningProcesses_v2)
NVML_LISTS_NONE(nvmlDeviceGetGraphicsRunningProcesses_v3)
NVML_LISTS_NONE(nvmlDeviceGetMPSComputeRunningProcesses)
NVML_LISTS_NONE(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NVML_LISTS_NONE(nvmlDeviceGetMPSComputeRunningProcesses_v3)
#undef NVML_LISTS_NONE
