// SPDX-License-Identifier: Apache-2.0
// NVIDIA's CUPTI, loaded at run time. Declares what we use of its activity records. It is part of the CUDA toolkit, not
// of the driver, so a node may lack it; traces then have the executor's own records (tracer.h).
//
// Loading it makes no CUDA call and changes nothing for the driver; attaching (activity.h) waits until a trace is
// requested. It must be loaded before the process is confined, because it may lie where only root can read. It is never
// unloaded. LoadCupti is called from main; the functions are safe from any thread where CUPTI says so.
//
// The records of CUPTI 11.6 to 13.0 begin with these structs: newer ones have grown at their end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

inline constexpr int kCuptiSuccess = 0;
inline constexpr uint32_t kCuptiMemcpy = 1;
inline constexpr uint32_t kCuptiMemset = 2;
// Another kind of record would make CUPTI run kernels one after the other.
inline constexpr uint32_t kCuptiConcurrentKernel = 10;
inline constexpr uint32_t kCuptiFlushForced = 1;

// Times of zero mean that the device had no room to record them.
struct CuptiKernel {
  uint32_t kind;
  uint8_t not_used_1[12];
  uint64_t start_ns;
  uint64_t end_ns;
  uint8_t not_used_2[16];
  uint32_t stream_id;
  uint8_t not_used_3[40];
  uint32_t correlation_id;
  uint8_t not_used_4[8];
  const char* name;  // owned by CUPTI
  uint8_t not_used_5[32];
  uint64_t graph_node_id;  // 0: not in a graph
};
static_assert(offsetof(CuptiKernel, end_ns) == 24 && offsetof(CuptiKernel, stream_id) == 48 &&
              offsetof(CuptiKernel, correlation_id) == 92 && offsetof(CuptiKernel, name) == 104 &&
              offsetof(CuptiKernel, graph_node_id) == 144);

// A copy, or a fill, whose first fields differ.
struct CuptiCopy {
  uint32_t kind;
  uint8_t copy_kind;
  uint8_t not_used_1[3];
  uint64_t bytes;
  uint64_t start_ns;
  uint64_t end_ns;
  uint8_t not_used_2[8];
  uint32_t stream_id;
  uint32_t correlation_id;
  uint8_t not_used_3[16];
  uint64_t graph_node_id;
};
static_assert(offsetof(CuptiCopy, bytes) == 8 && offsetof(CuptiCopy, stream_id) == 40 &&
              offsetof(CuptiCopy, correlation_id) == 44 &&
              offsetof(CuptiCopy, graph_node_id) == 64);

struct Cupti {
  using Requested = void (*)(uint8_t** buffer, size_t* size_bytes, size_t* most_records);
  using Completed = void (*)(CUcontext, uint32_t, uint8_t* buffer, size_t size_bytes,
                             size_t valid_bytes);

  int (*cuptiGetVersion)(uint32_t*) = nullptr;
  int (*cuptiGetResultString)(int, const char**) = nullptr;
  int (*cuptiActivityRegisterTimestampCallback)(uint64_t (*now_ns)()) = nullptr;
  int (*cuptiActivityRegisterCallbacks)(Requested, Completed) = nullptr;
  int (*cuptiActivityEnable)(uint32_t kind) = nullptr;
  int (*cuptiActivityDisable)(uint32_t kind) = nullptr;
  int (*cuptiActivityFlushAll)(uint32_t flags) = nullptr;
  int (*cuptiActivityGetNextRecord)(uint8_t*, size_t valid_bytes, uint8_t** record) = nullptr;
  int (*cuptiActivityGetNumDroppedRecords)(CUcontext, uint32_t stream, size_t*) = nullptr;
  int (*cuptiGetStreamIdEx)(CUcontext, CUstream, uint8_t per_thread, uint32_t* id) = nullptr;

  std::string path;
  // "libcupti.so.2025.3.1, API 130000, /usr/local/cuda/lib64/libcupti.so.13": the file's own name contains NVIDIA's
  // number.
  std::string description;
};

// `setting`: a path, or "off". If it is empty, CUPTI is looked for beside the driver's library, in the CUDA toolkit at
// /usr/local/cuda, and where the loader looks. `driver`: a function of the driver's library. Returns false with the
// reason.
[[nodiscard]] bool LoadCupti(const std::string& setting, const void* driver, Cupti* cupti,
                             std::string* why);

}  // namespace gpuloom::executor
