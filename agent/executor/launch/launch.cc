// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/device.h"
#include "agent/executor/device/green_context.h"
#include "agent/executor/image/texture_reference.h"
#include "agent/executor/launch/launch_attributes.h"
#include "agent/executor/launch/launches.h"
#include "agent/executor/module/kernels.h"
#include "agent/executor/stream/priority_band.h"
#include "agent/executor/stream/stream_set.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {
namespace {

// A function belongs to the context in which it was looked up; a kernel uses its stream's context, at no cost
// (measured).
CUfunction AsFunction(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

}  // namespace

void Launches::On(wire::Tag<wire::Launch>, const wire::Launch::Request& request,
                  const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  Kernel* kernel = kernels_->FindKernel(request.kernel);
  if (kernel == nullptr) return;
  if (record.payload.size() != kernel->param_bytes) return Refuse(wire::Fatal::kRecordSize);
  if (request.flags != 0) return Refuse(wire::Fatal::kBadArgument);
  // The library's references and printf are ruled out by MayCollect, so a chunk's launch needs
  // neither.
  if (StreamSet::Gains(*stream) && MayCollect(kernel, request)) {
    const ChunkNode node = {kernel->kernel,
                            kernel->library.get(),
                            {request.grid[0], request.grid[1], request.grid[2]},
                            {request.block[0], request.block[1], request.block[2]},
                            request.dynamic_shared_bytes,
                            kernel->param_bytes};
    return streams_.Collect(*stream, record.ticket, node, record.payload, kernel->library);
  }
  StreamCommand command;
  command.ticket = record.ticket;
  command.work = LaunchWork{request, kernel->kernel, kernel->library, kernel->library->prints,
                            BindingsOf(*kernel->library)};
  command.payload = record.payload;
  streams_.Enqueue(*stream, std::move(command));
}

void Launches::On(wire::Tag<wire::LaunchEx>, const wire::LaunchEx::Request& request,
                  const wire::Record& record) {
  Stream* stream = FindStream(request.stream);
  if (stream == nullptr) return;
  const Kernel* kernel = kernels_->FindKernel(request.kernel);
  if (kernel == nullptr) return;
  if (record.payload.size() != kernel->param_bytes) return Refuse(wire::Fatal::kRecordSize);
  if (!KnowsAttributes(request.attributes)) return Refuse(wire::Fatal::kBadArgument);
  StreamCommand command;
  command.ticket = record.ticket;
  command.work = LaunchExWork{request, kernel->kernel, kernel->library, kernel->library->prints,
                              BindingsOf(*kernel->library)};
  command.payload = record.payload;
  streams_.Enqueue(*stream, std::move(command));
}

// The library's references are set first: this launch and what is submitted behind it read them,
// and no other thread submits launches of such a library.
CUresult Launches::SubmitLaunch(const LaunchWork& launch, std::span<const uint8_t> params,
                                CUstream stream) {
  const Driver& cuda = services_.device->cuda();
  CUDA_RETURN_IF_ERROR(Bind(cuda, launch.bindings));
  const wire::Launch::Request& r = launch.request;
  size_t bytes = params.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint8_t*>(params.data()),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  port_->CountKernels(1);
  return cuda.cuLaunchKernel(AsFunction(launch.kernel), r.grid[0], r.grid[1], r.grid[2], r.block[0],
                             r.block[1], r.block[2], r.dynamic_shared_bytes, stream, nullptr,
                             bytes == 0 ? nullptr : extra);
}

CUresult Launches::SubmitLaunchEx(const LaunchExWork& launch, std::span<const uint8_t> params,
                                  CUstream stream) {
  CUDA_RETURN_IF_ERROR(Bind(services_.device->cuda(), launch.bindings));
  const wire::LaunchEx::Request& r = launch.request;
  wire::LaunchAttributes attributes = r.attributes;
  if ((attributes.set >> CU_LAUNCH_ATTRIBUTE_PRIORITY & 1u) != 0) {
    // A launch's own priority would otherwise reach beyond the session's class.
    attributes.priority = port_->Band().Map(attributes.priority);
  }
  const LaunchConfig config(r.grid, r.block, r.dynamic_shared_bytes, stream, attributes);
  size_t bytes = params.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, const_cast<uint8_t*>(params.data()),
                   CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  port_->CountKernels(1);
  return services_.device->cuda().cuLaunchKernelEx(config.get(), AsFunction(launch.kernel), nullptr,
                                                   bytes == 0 ? nullptr : extra);
}

}  // namespace gpuloom::executor
