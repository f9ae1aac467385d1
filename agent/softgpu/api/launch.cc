// SPDX-License-Identifier: Apache-2.0
// cuLaunchKernel and its relatives.
#include "agent/softgpu/driver/launch.h"

#include <memory>
#include <utility>
#include <vector>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/event.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::softgpu;

namespace {

// Makes a node of the launch, with those of its attributes that nodes have.
CUresult RecordLaunch(CUfunction handle, const LaunchShape& shape, void** params, void** extra,
                      const CUlaunchConfig* config, graph::NodeParams* node) {
  graph::KernelLayout layout = {};
  CUDA_RETURN_IF_ERROR(graph::DescribeKernel(handle, &layout));
  const CUDA_KERNEL_NODE_PARAMS_v3 launch = {
      handle,        shape.grid.x,  shape.grid.y,  shape.grid.z,
      shape.block.x, shape.block.y, shape.block.z, shape.dynamic_shared_bytes,
      params,        extra,         nullptr,       nullptr};
  CUresult result = graph::MakeKernelParams(launch, layout, node);
  if (result != CUDA_SUCCESS) return result;
  for (unsigned i = 0; config != nullptr && i < config->numAttrs && result == CUDA_SUCCESS; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (!graph::IsNodeAttribute(attribute.id)) continue;
    result = graph::SetKernelAttribute(&node->kernel, attribute.id, attribute.value);
  }
  // cuLaunchCooperativeKernel has no attribute of its own.
  if (result == CUDA_SUCCESS && shape.cooperative) {
    CUlaunchAttributeValue value = {};
    value.cooperative = 1;
    result = graph::SetKernelAttribute(&node->kernel, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value);
  }
  if (result == CUDA_SUCCESS) result = graph::CheckKernelShape(node->kernel);
  // What MakeKernelParams had copied; the caller discards the node.
  if (result != CUDA_SUCCESS) graph::FreeParams(node);
  return result;
}

CUresult Submit(CUfunction handle, const LaunchShape& shape, CUstream stream_handle,
                DefaultStream null_means, void** params, void** extra,
                const CUlaunchConfig* config = nullptr) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(FindFunction(*context, handle, found));
  const auto stream = FindStream(*context, stream_handle, null_means);
  if (stream == nullptr) return NoStream(stream_handle);
  CUresult captured = CUDA_SUCCESS;
  if (Records(*stream, &captured, [&](graph::NodeParams* node) {
        return RecordLaunch(handle, shape, params, extra, config, node);
      })) {
    // A launch that cannot be captured ends the capture, as in CUDA.
    if (captured != CUDA_SUCCESS) graph::InvalidateCapture(RefOf(*stream));
    return captured;
  }
  return Launch(*stream, found, shape, params, extra);
}

using Events = std::vector<std::shared_ptr<Event>>;

// Recorded after the kernel: an event may come later than the point it is meant for, but not
// earlier.
CUresult AddEvent(CUevent handle, int flags, Events& events) {
  if (handle == nullptr || flags != CU_EVENT_RECORD_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  auto event = Registry<Event>::Instance().Find(handle);
  if (event == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  // CUDA wants such events without timing.
  if ((event->flags & CU_EVENT_DISABLE_TIMING) == 0) return CUDA_ERROR_INVALID_VALUE;
  events.push_back(std::move(event));
  return CUDA_SUCCESS;
}

// The attributes that change what runs here. Those that only hint at speed change nothing.
CUresult Apply(const CUlaunchAttribute& attribute, LaunchShape& shape, Events& events) {
  switch (attribute.id) {
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
      shape.cooperative = attribute.value.cooperative != 0;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
      shape.cluster = {attribute.value.clusterDim.x, attribute.value.clusterDim.y,
                       attribute.value.clusterDim.z};
      shape.has_clusters = true;
      return CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      return static_cast<unsigned>(attribute.value.clusterSchedulingPolicyPreference) >
                     CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING
                 ? CUDA_ERROR_INVALID_VALUE
                 : CUDA_SUCCESS;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
      // Triggered by the kernel itself, at some point before its end.
      return AddEvent(attribute.value.programmaticEvent.event,
                      attribute.value.programmaticEvent.flags, events);
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
      return AddEvent(attribute.value.launchCompletionEvent.event,
                      attribute.value.launchCompletionEvent.flags, events);
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
      return attribute.value.deviceUpdatableKernelNode.deviceUpdatable == 0
                 ? CUDA_SUCCESS
                 : CUDA_ERROR_NOT_SUPPORTED;
    default:
      return attribute.id >= 0 && attribute.id < CU_LAUNCH_ATTRIBUTE_MAX ? CUDA_SUCCESS
                                                                         : CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

CUresult api::cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned shared_bytes, CUstream stream, void** params, void** extra,
                             DefaultStream null_means) {
  const LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, shared_bytes, false};
  return Submit(function, shape, stream, null_means, params, extra);
}

CUresult api::cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                        unsigned grid_z, unsigned block_x, unsigned block_y,
                                        unsigned block_z, unsigned shared_bytes, CUstream stream,
                                        void** params, DefaultStream null_means) {
  const LaunchShape shape = {
      {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, {}, shared_bytes, true};
  return Submit(function, shape, stream, null_means, params, nullptr);
}

CUresult api::cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** params,
                               void** extra, DefaultStream null_means) {
  if (config == nullptr || (config->numAttrs > 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  LaunchShape shape;
  Events events;
  shape.grid = {config->gridDimX, config->gridDimY, config->gridDimZ};
  shape.block = {config->blockDimX, config->blockDimY, config->blockDimZ};
  shape.dynamic_shared_bytes = config->sharedMemBytes;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    CUDA_RETURN_IF_ERROR(Apply(config->attrs[i], shape, events));
  }
  CUresult result = Submit(function, shape, config->hStream, null_means, params, extra, config);
  // Events are recorded behind the kernel by the ordinary call, which also handles captures.
  for (size_t i = 0; i < events.size() && result == CUDA_SUCCESS; ++i) {
    result = cuEventRecord(reinterpret_cast<CUevent>(events[i].get()), config->hStream, null_means);
  }
  return result;
}
