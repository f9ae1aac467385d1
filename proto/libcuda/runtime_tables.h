// SPDX-License-Identifier: Apache-2.0
// cuGetExportTable: the tables of functions that cudart and NVIDIA's libraries request by UUID and
// call besides the exported API. All of them are this library's own. A table known by UUID has real
// functions where a real answer is needed; its other slots, and all slots of an unknown table,
// return CUDA_ERROR_NOT_SUPPORTED, are logged once by UUID and slot, and counted (never a null
// table: cuBLASLt calls into what it gets).
//
// The owning library (shim or software driver) passes its hooks. No start-up code;
// safe from any thread and in a tenant's process.
//
//   CUresult cuGetExportTable(const void** table, const CUuuid* id) {
//     return AnswerGetExportTable(kHooks, table, id);
//   }
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/runtime_handshake.h"

namespace gpuloom {

// At most this many devices take part in the handshake (and are reported).
inline constexpr int kMaxRuntimeDevices = 64;

// What the tables need from their owner. Every pointer must be set. Called on the program's
// threads.
struct RuntimeHooks {
  // The calling thread's current context; null with CUDA_SUCCESS if there is none. On the path of
  // every runtime call.
  CUresult (*current_context)(CUcontext* context);
  // The handle that cuDevicePrimaryCtxRetain would give, without retaining or activating it.
  CUresult (*primary_context)(CUdevice device, CUcontext* context);
  // As cuCtxGetId.
  CUresult (*context_id)(CUcontext context, uint64_t* id);
  // As cuStreamGetId in its two forms; cuBLAS tells streams apart by it.
  CUresult (*stream_id)(CUstream stream, unsigned long long* id);
  CUresult (*stream_id_ptsz)(CUstream stream, unsigned long long* id);
  // As cuModuleLoadData. `image` is a fatbin or its wrapper; runtimes before 12.0 load their
  // modules this way.
  CUresult (*load_module)(CUmodule* module, const void* image);
  // As cuModuleGetFunctionCount and cuModuleEnumerateFunctions; cuFFT finds its kernels this way.
  CUresult (*function_count)(unsigned* count, CUmodule module);
  CUresult (*list_functions)(CUfunction* functions, unsigned capacity, CUmodule module);
  // As cuDriverGetVersion and cuDeviceGetCount reported.
  int (*driver_version)();
  int (*device_count)();
  // As cuDeviceGetUuid and the PCI attributes reported for device `index`.
  void (*device_identity)(int index, RuntimeDevice* device);
  // The operator's switch, see runtime_handshake.h. When false, programs built on cudart cannot
  // start.
  bool (*handshake_allowed)();
  // One line without a newline; called once per unknown table and per unsupported slot.
  void (*log)(const char* line);
};

// The whole of cuGetExportTable. `hooks` must live as long as the process and be the same in every
// call.
[[nodiscard]] CUresult AnswerGetExportTable(const RuntimeHooks& hooks, const void** table,
                                            const CUuuid* id);

// Called when a context is reset or destroyed: runs the destructors of what libraries stored for
// it.
void ResetRuntimeContext(CUcontext context);

// How often programs called slots that have no function here, since the process began.
[[nodiscard]] uint64_t UnsupportedSlotCalls();

}  // namespace gpuloom
