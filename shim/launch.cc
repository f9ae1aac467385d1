// Kernel launches: what CUDA checks in the call is checked here, then the parameters go straight
// into the ring.
#include <string.h>

#include "shim/capture.h"
#include "shim/context.h"
#include "shim/kernel.h"
#include "shim/log.h"
#include "shim/session.h"
#include "shim/stream.h"

namespace gpuloom {
namespace {

struct Shape {
  unsigned grid[3];
  unsigned block[3];
  unsigned dynamic_shared_bytes;
};

bool Within(const unsigned (&size)[3], const int32_t* limits) {
  for (int i = 0; i < 3; ++i) {
    if (size[i] == 0 || (limits[i] > 0 && size[i] > static_cast<unsigned>(limits[i]))) return false;
  }
  return true;
}

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
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;  // its registers do not suffice
  }
  const int32_t shared_limit = kernel.attribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  if (shared_limit != wire::kNoAttribute &&
      shape.dynamic_shared_bytes > static_cast<uint32_t>(shared_limit)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// The `extra` way of passing parameters: one packed buffer.
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
  // What lies between parameters has no value; nor does it have one of an older command.
  if (kernel.params_have_holes) memset(payload, 0, kernel.param_bytes);
  for (uint32_t i = 0; i < kernel.param_count; ++i) {
    const wire::KernelParam& param = kernel.params[i];
    uint8_t* to = payload + param.offset_bytes;
    switch (param.size_bytes) {
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

CUresult Launch(CUfunction function, const Shape& shape, CUstream handle, DefaultStream null_means,
                void** params, void** extra, const CUlaunchAttribute* attributes = nullptr,
                uint32_t attribute_count = 0) {
  if (const CUresult result = NeedContext(); result != CUDA_SUCCESS) return result;
  Kernel* kernel = FindKernel(function);
  if (kernel == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult result = RefreshKernel(kernel); result != CUDA_SUCCESS) return result;
  wire::StreamId stream;
  if (const CUresult result = FindStream(handle, null_means, &stream); result != CUDA_SUCCESS) {
    return result;
  }
  if (const CUresult result = CheckShape(shape, *kernel); result != CUDA_SUCCESS) return result;
  if (graph::AnyCapture()) [[unlikely]] {
    const CUDA_KERNEL_NODE_PARAMS_v3 node = {
        function,       shape.grid[0],  shape.grid[1],  shape.grid[2],
        shape.block[0], shape.block[1], shape.block[2], shape.dynamic_shared_bytes,
        params,         extra,          nullptr,        nullptr};
    CUresult result;
    if (RecordsLaunch(stream, *kernel, node, attributes, attribute_count, &result)) return result;
  }
  const void* packed = nullptr;
  if (extra != nullptr) {
    if (params != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = FindPacked(extra, *kernel, &packed); result != CUDA_SUCCESS) {
      return result;
    }
  } else if (kernel->param_count != 0) {
    if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!kernel->params_known) return CUDA_ERROR_NOT_SUPPORTED;
    for (uint32_t i = 0; i < kernel->param_count; ++i) {
      if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return session.PostOnStream<wire::Launch>(
      stream, kernel->param_bytes, [&](wire::Launch::Request& request, uint8_t* payload) {
        request = {stream,
                   IdOf(kernel),
                   {shape.grid[0], shape.grid[1], shape.grid[2]},
                   {shape.block[0], shape.block[1], shape.block[2]},
                   shape.dynamic_shared_bytes,
                   0};
        if (extra == nullptr) {
          PackParams(payload, *kernel, params);
        } else if (kernel->param_bytes != 0) {
          memcpy(payload, packed, kernel->param_bytes);
        }
      });
}

bool IsOne(const unsigned x, const unsigned y, const unsigned z) {
  return x <= 1 && y <= 1 && z <= 1;
}

// Attributes that ask for nothing, or only for speed: a launch without them gives the same results.
// Programmatic serialisation lets a kernel begin early; beginning on time is always correct.
CUresult CheckAttribute(const CUlaunchAttribute& attribute) {
  const CUlaunchAttributeValue& value = attribute.value;
  bool plain = false;
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_IGNORE:
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      plain = true;
      break;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      plain = value.cooperative == 0;
      break;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      plain = IsOne(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z);
      break;
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
      plain = IsOne(value.preferredClusterDim.x, value.preferredClusterDim.y,
                    value.preferredClusterDim.z);
      break;
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      plain = value.deviceUpdatableKernelNode.deviceUpdatable == 0;
      break;
    default:
      break;
  }
  return plain ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

// Once for each attribute.
void NoteUnsupportedAttribute(CUlaunchAttributeID id) {
  static std::atomic<uint64_t> noted{0};
  const uint64_t bit = uint64_t{1} << (static_cast<unsigned>(id) % 64);
  if ((noted.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) {
    Log(LogLevel::kWarn, "cuLaunchKernelEx: launch attribute %d is not supported",
        static_cast<int>(id));
  }
}

CUresult LaunchEx(const CUlaunchConfig* config, CUfunction function, void** params, void** extra,
                  DefaultStream null_means) {
  if (config == nullptr || (config->numAttrs != 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUresult result = CheckAttribute(config->attrs[i]);
    if (result != CUDA_SUCCESS) {
      NoteUnsupportedAttribute(config->attrs[i].id);
      return result;
    }
  }
  const Shape shape = {{config->gridDimX, config->gridDimY, config->gridDimZ},
                       {config->blockDimX, config->blockDimY, config->blockDimZ},
                       config->sharedMemBytes};
  return Launch(function, shape, config->hStream, null_means, params, extra, config->attrs,
                config->numAttrs);
}

}  // namespace

CUresult CheckLaunchShape(const graph::KernelParams& launch, const Kernel& kernel) {
  return CheckShape({{launch.grid[0], launch.grid[1], launch.grid[2]},
                     {launch.block[0], launch.block[1], launch.block[2]},
                     launch.dynamic_shared_bytes},
                    kernel);
}

}  // namespace gpuloom

using namespace gpuloom;  // NOLINT: CUDA's functions are written in our terms

extern "C" {

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z,
                        unsigned dynamic_shared_bytes, CUstream stream, void** params,
                        void** extra) {
  return Launch(function,
                {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared_bytes},
                stream, DefaultStream::kLegacy, params, extra);
}
CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned dynamic_shared_bytes, CUstream stream, void** params,
                             void** extra) {
  return Launch(function,
                {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared_bytes},
                stream, DefaultStream::kPerThread, params, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                          void** extra) {
  return LaunchEx(config, function, params, extra, DefaultStream::kLegacy);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function, void** params,
                               void** extra) {
  return LaunchEx(config, function, params, extra, DefaultStream::kPerThread);
}

}  // extern "C"
