// SPDX-License-Identifier: Apache-2.0
// Kernel launches: what CUDA checks in the call is checked here, then the parameters go straight
// into the ring.
#include <stdlib.h>
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/event/event.h"
#include "shim/graph/capture.h"
#include "shim/launch/launch_attributes.h"
#include "shim/launch/system_atomics.h"
#include "shim/memory/migration.h"
#include "shim/module/kernel.h"
#include "shim/module/library.h"
#include "shim/session/session.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

// CUDA promises clusters of 8 blocks everywhere; the device's own limit is for kernels that allow it.
constexpr uint64_t kLargestPortableCluster = 8;
constexpr uint64_t kLargestCluster = 16;

struct Shape {
  unsigned grid[3];
  unsigned block[3];
  unsigned dynamic_shared_bytes;
};

// `limits`: three attributes in a row. One that the node did not report (not positive) limits
// nothing.
bool Within(const unsigned (&size)[3], const int32_t* limits) {
  for (int i = 0; i < 3; ++i) {
    if (size[i] == 0 || (limits[i] > 0 && size[i] > static_cast<unsigned>(limits[i]))) return false;
  }
  return true;
}

// CUDA reports these errors in the call; the executor could only report them later, as asynchronous
// ones.
CUresult CheckShape(const Shape& shape, const Kernel& kernel) {
  const int32_t* device = session.device().attributes;
  static_assert(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z == CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + 2 &&
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z == CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + 2);
  if (!Within(shape.grid, device + CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) ||
      !Within(shape.block, device + CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t threads = uint64_t{shape.block[0]} * shape.block[1] * shape.block[2];
  const int32_t block_limit = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  if (block_limit > 0 && threads > static_cast<uint64_t>(block_limit)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int32_t kernel_limit = kernel.attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (kernel_limit > 0 && threads > static_cast<uint64_t>(kernel_limit)) {
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;  // a block would need more registers than there are
  }
  const int32_t shared_limit = kernel.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (shared_limit != wire::kNoAttribute &&
      shape.dynamic_shared_bytes > static_cast<uint32_t>(shared_limit)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// The `extra` way of passing parameters: one packed buffer. Read to CU_LAUNCH_PARAM_END as CUDA
// reads it; a list without an end is the program's mistake, in its own memory.
CUresult FindPacked(void** extra, const Kernel& kernel, const void** packed) {
  const void* buffer = nullptr;
  const size_t* size = nullptr;
  while (extra[0] != CU_LAUNCH_PARAM_END) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
    extra += 2;
  }
  if (kernel.param_bytes != 0 &&
      (buffer == nullptr || size == nullptr || *size < kernel.param_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *packed = buffer;
  return CUDA_SUCCESS;
}

void PackParams(uint8_t* payload, const Kernel& kernel, void** params) {
  // Bytes between parameters are cleared, so that nothing of an older command shows there.
  if (kernel.params_have_holes) memset(payload, 0, kernel.param_bytes);
  for (uint32_t i = 0; i < kernel.param_count; ++i) {
    const wire::KernelParam& param = kernel.params[i];
    uint8_t* to = payload + param.offset_bytes;
    switch (param.size_bytes) {
      // Pointers and numbers, nearly all there are: a fixed size is copied by one instruction.
      case 8:
        memcpy(to, params[i], 8);
        break;
      case 4:
        memcpy(to, params[i], 4);
        break;
      default:
        memcpy(to, params[i], param.size_bytes);
    }
  }
}

// The source of one launch's parameters.
struct Params {
  void** each;         // CUDA's array of pointers, or
  const void* packed;  // one buffer

  // Runs under the ring's lock, where it must not touch managed memory that may be away
  // (KeptParams).
  void Write(const Kernel& kernel, uint8_t* payload) const {
    if (packed == nullptr) {
      PackParams(payload, kernel, each);
    } else if (kernel.param_bytes != 0) {
      memcpy(payload, packed, kernel.param_bytes);
    }
  }
};

// Parameters may lie in managed memory, which cannot be read after the launch has sent it to the device. Then this is a
// copy of them.
class KeptParams {
 public:
  KeptParams(const Kernel& kernel, Params* params) {
    if (!AnythingMigrates() || !MayMigrate(kernel, *params)) return;
    copy_ = static_cast<uint8_t*>(malloc(kernel.param_bytes));
    if (copy_ == nullptr) {
      result_ = CUDA_ERROR_OUT_OF_MEMORY;
      return;
    }
    params->Write(kernel, copy_);
    *params = {nullptr, copy_};
  }
  ~KeptParams() {
    if (copy_ != nullptr) free(copy_);
  }
  KeptParams(const KeptParams&) = delete;
  KeptParams& operator=(const KeptParams&) = delete;

  CUresult result() const { return result_; }

 private:
  static bool MayMigrate(const Kernel& kernel, const Params& params) {
    const auto may = [](const void* data) {
      return gpuloom::MayMigrate(reinterpret_cast<uint64_t>(data));
    };
    if (kernel.param_bytes == 0) return false;
    bool any = may(params.packed) || may(params.each);
    for (uint32_t i = 0; params.packed == nullptr && i < kernel.param_count; ++i) {
      any |= may(params.each[i]);
    }
    return any;
  }

  uint8_t* copy_ = nullptr;
  CUresult result_ = CUDA_SUCCESS;
};

// Checks what can be checked without reading the parameters: that there is one way of passing them,
// and a pointer for each.
CUresult FindParams(const Kernel& kernel, void** params, void** extra, Params* found) {
  *found = {params, nullptr};
  if (extra != nullptr) {
    if (params != nullptr) return CUDA_ERROR_INVALID_VALUE;
    return FindPacked(extra, kernel, &found->packed);
  }
  if (kernel.param_count == 0) return CUDA_SUCCESS;
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (uint32_t i = 0; i < kernel.param_count; ++i) {
    if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

uint64_t Blocks(const uint32_t (&size)[3]) { return uint64_t{size[0]} * size[1] * size[2]; }

// Checks what else a launch with attributes must fulfil. The first launch of its kind asks the
// executor how many blocks are resident at once; later ones find the answer here.
CUresult CheckAttributes(const Shape& shape, Kernel* kernel,
                         const wire::LaunchAttributes& attributes) {
  if (attributes.cooperative != 0) {
    int blocks = 0;
    // All blocks of a cooperative launch must be resident at once; CUDA says in the call if they
    // cannot be.
    const uint64_t threads = Blocks(shape.block);
    CUDA_RETURN_IF_ERROR(BlocksPerMultiprocessor(kernel, static_cast<int>(threads),
                                                 shape.dynamic_shared_bytes, 0, &blocks));
    const int32_t processors =
        session.device().attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    if (Blocks(shape.grid) > uint64_t{static_cast<uint32_t>(blocks)} * processors) {
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
  }
  if ((attributes.set & 1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) == 0) {
    return kernel->attribute(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) > 0
               ? CUDA_ERROR_INVALID_CLUSTER_SIZE
               : CUDA_SUCCESS;
  }
  for (int i = 0; i < 3; ++i) {
    const uint32_t size = attributes.cluster[i];
    if (size == 0 || shape.grid[i] % size != 0) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  const bool large = kernel->attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) > 0;
  if (Blocks(attributes.cluster) > (large ? kLargestCluster : kLargestPortableCluster)) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  // One block fits wherever the launch does.
  if (Blocks(attributes.cluster) == 1) return CUDA_SUCCESS;
  int clusters = 0;
  CUDA_RETURN_IF_ERROR(
      MaxActiveClusters(kernel,
                        {shape.grid[0], shape.grid[1], shape.grid[2], shape.block[0],
                         shape.block[1], shape.block[2], shape.dynamic_shared_bytes},
                        attributes, &clusters));
  return clusters == 0 ? CUDA_ERROR_INVALID_CLUSTER_SIZE : CUDA_SUCCESS;
}

// Records the events that a launch triggers, after it.
CUresult RecordEvents(const LaunchAsks& asks, wire::StreamId stream) {
  for (uint32_t i = 0; i < asks.event_count; ++i) {
    CUDA_RETURN_IF_ERROR(RecordEvent(asks.events[i], stream));
  }
  return CUDA_SUCCESS;
}

// What the executor keeps with a launch (proto/wire/backlog.h).
uint32_t HeldBytes(const Kernel& kernel) {
  return kernel.library->references.load(std::memory_order_relaxed) *
         wire::kBacklogBytesOfReference;
}

// The path of launches with attributes, clusters or events. The events are checked before the
// launch is sent, since afterwards the call cannot fail as a whole.
CUresult SendEx(Kernel* kernel, const Shape& shape, wire::StreamId stream, const Params& from,
                const LaunchAsks& asks) {
  wire::LaunchAttributes attributes = asks.attributes;
  AddKernelCluster(*kernel, &attributes);
  CUDA_RETURN_IF_ERROR(CheckAttributes(shape, kernel, attributes));
  for (uint32_t i = 0; i < asks.event_count; ++i) {
    CUDA_RETURN_IF_ERROR(CheckLaunchEvent(asks.events[i]));
  }
  {
    const MigrationHold hold;
    CUDA_RETURN_IF_ERROR(hold.result());
    CUDA_RETURN_IF_ERROR(session.PostOnStream<wire::LaunchEx>(
        stream, kernel->param_bytes,
        [&](wire::LaunchEx::Request& request, uint8_t* payload) {
          request = {stream,
                     IdOf(kernel),
                     {shape.grid[0], shape.grid[1], shape.grid[2]},
                     {shape.block[0], shape.block[1], shape.block[2]},
                     shape.dynamic_shared_bytes,
                     attributes};
          from.Write(*kernel, payload);
        },
        nullptr, HeldBytes(*kernel)));
  }
  // After the hold has ended, because nothing else may be done while it lives.
  return RecordEvents(asks, stream);
}

CUresult SendPlain(const Kernel& kernel, const Shape& shape, wire::StreamId stream,
                   const Params& from) {
  const MigrationHold hold;
  CUDA_RETURN_IF_ERROR(hold.result());
  return session.PostOnStream<wire::Launch>(
      stream, kernel.param_bytes,
      [&](wire::Launch::Request& request, uint8_t* payload) {
        request = {stream,
                   IdOf(&kernel),
                   {shape.grid[0], shape.grid[1], shape.grid[2]},
                   {shape.block[0], shape.block[1], shape.block[2]},
                   shape.dynamic_shared_bytes,
                   0};
        from.Write(kernel, payload);
      },
      nullptr, HeldBytes(kernel));
}

// The path of every launch. A plain one waits for nobody: checks against cached properties, one
// write into the ring.
CUresult Launch(CUfunction function, const Shape& shape, CUstream handle, DefaultStream null_means,
                void** params, void** extra, const LaunchAsks* asks) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  Kernel* kernel = FindKernel(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUDA_RETURN_IF_ERROR(RefreshKernel(kernel));
  wire::StreamId stream;
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &stream));
  if (const CUresult result = CheckShape(shape, *kernel); result != CUDA_SUCCESS) {
    if (graph::AnyCapture()) graph::InvalidateCapture(RefOf(stream));
    return result;
  }
  if (graph::AnyCapture()) [[unlikely]] {
    const CUDA_KERNEL_NODE_PARAMS_v3 node = {
        function,       shape.grid[0],  shape.grid[1],  shape.grid[2],
        shape.block[0], shape.block[1], shape.block[2], shape.dynamic_shared_bytes,
        params,         extra,          nullptr,        nullptr};
    CUresult result;
    // False: another stream captures, not this one.
    if (RecordsLaunch(stream, *kernel, node, asks == nullptr ? nullptr : asks->list,
                      asks == nullptr ? 0 : asks->list_count, &result)) {
      return result != CUDA_SUCCESS || asks == nullptr ? result : RecordEvents(*asks, stream);
    }
  }
  Params from;
  CUDA_RETURN_IF_ERROR(FindParams(*kernel, params, extra, &from));
  const KeptParams kept(*kernel, &from);
  CUDA_RETURN_IF_ERROR(kept.result());
  const bool wants_clusters = kernel->attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH) > 0 ||
                              kernel->attribute(CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET) > 0;
  CUresult result;
  if (asks != nullptr || wants_clusters) [[unlikely]] {
    constexpr LaunchAsks kNothing = {};
    result = SendEx(kernel, shape, stream, from, asks != nullptr ? *asks : kNothing);
  } else {
    result = SendPlain(*kernel, shape, stream, from);
  }
  if (kernel->system_atomics) [[unlikely]]
    ReportSystemAtomics(*kernel);
  return result;
}

CUresult LaunchEx(const CUlaunchConfig* config, CUfunction function, void** params, void** extra,
                  DefaultStream null_means) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  LaunchAsks asks;
  CUDA_RETURN_IF_ERROR(ReadLaunchAttributes(config->attrs, config->numAttrs, &asks));
  const Shape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                       {config->blockDimX, config->blockDimY, config->blockDimZ},
                       config->sharedMemBytes};
  return Launch(function, shape, config->hStream, null_means, params, extra,
                asks.empty() ? nullptr : &asks);
}

CUresult LaunchCooperative(CUfunction function, const Shape& shape, CUstream stream,
                           DefaultStream null_means, void** params) {
  CUlaunchAttribute cooperative = {};
  cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  cooperative.value.cooperative = 1;
  LaunchAsks asks;
  CUDA_RETURN_IF_ERROR(ReadLaunchAttributes(&cooperative, 1, &asks));
  return Launch(function, shape, stream, null_means, params, nullptr, &asks);
}

}  // namespace

CUresult CheckLaunchShape(const graph::KernelParams& launch, const Kernel& kernel) {
  return CheckShape({{launch.grid[0], launch.grid[1], launch.grid[2]},
                     {launch.block[0], launch.block[1], launch.block[2]},
                     launch.dynamic_shared_bytes},
                    kernel);
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned dynamic_shared_bytes, CUstream stream, void** params,
                             void** extra, DefaultStream null_means) {
  return Launch(function,
                {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared_bytes},
                stream, null_means, params, extra, nullptr);
}

CUresult api::cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                               void** extra, DefaultStream null_means) {
  return LaunchEx(config, function, params, extra, null_means);
}

CUresult api::cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                        unsigned grid_z, unsigned block_x, unsigned block_y,
                                        unsigned block_z, unsigned dynamic_shared_bytes,
                                        CUstream stream, void** params, DefaultStream null_means) {
  return LaunchCooperative(
      function, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared_bytes},
      stream, null_means, params);
}
