// cuLaunchKernel and its relatives.
#include "agent/softgpu/context.h"
#include "agent/softgpu/launch.h"
#include "agent/softgpu/state.h"

using namespace gpuloom::softgpu;  // NOLINT: this file only defines CUDA's C functions

namespace {

constexpr bool kLegacy = false;
constexpr bool kPerThread = true;

CUresult Submit(CUfunction handle, const LaunchShape& shape, CUstream stream_handle,
                bool per_thread, void** params, void** extra) {
  Context* context = nullptr;
  CUresult result = RequireContext(context);
  if (result != CUDA_SUCCESS) return result;
  FoundFunction found;
  result = FindFunction(*context, handle, found);
  if (result != CUDA_SUCCESS) return result;
  const auto stream = FindStream(*context, stream_handle, per_thread);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return Launch(*stream, found, shape, params, extra);
}

// The attributes that change what runs here. Those that only hint at speed change nothing.
CUresult Apply(const CUlaunchAttribute& attribute, LaunchShape& shape) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      shape.cooperative = attribute.value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      shape.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                       attribute.value.clusterDim.z};
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return attribute.id >= 0 && attribute.id < CU_LAUNCH_ATTRIBUTE_MAX ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SubmitConfig(const CUlaunchConfig* config, CUfunction function, bool per_thread,
                      void** params, void** extra) {
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  LaunchShape shape;
  shape.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  shape.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  shape.dynamic_shared_bytes = config->sharedMemBytes;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUresult applied = Apply(config->attrs[i], shape);
    if (applied != CUDA_SUCCESS) return applied;
  }
  return Submit(function, shape, config->hStream, per_thread, params, extra);
}

}  // namespace

extern "C" {

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void** params, void** extra) {
  const LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, shared_bytes, false};
  return Submit(function, shape, stream, kLegacy, params, extra);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, CUstream stream, void** params, void** extra) {
  const LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, shared_bytes, false};
  return Submit(function, shape, stream, kPerThread, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                   unsigned grid_z, unsigned block_x, unsigned block_y,
                                   unsigned block_z, unsigned shared_bytes, CUstream stream,
                                   void** params) {
  const LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, shared_bytes, true};
  return Submit(function, shape, stream, kLegacy, params, nullptr);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned grid_x, unsigned grid_y,
                                        unsigned grid_z, unsigned block_x, unsigned block_y,
                                        unsigned block_z, unsigned shared_bytes, CUstream stream,
                                        void** params) {
  const LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, shared_bytes, true};
  return Submit(function, shape, stream, kPerThread, params, nullptr);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                          void** extra) {
  return SubmitConfig(config, function, kLegacy, params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig* config, CUfunction function, void** params,
                               void** extra) {
  return SubmitConfig(config, function, kPerThread, params, extra);
}

}  // extern "C"
