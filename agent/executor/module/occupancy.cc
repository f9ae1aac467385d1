// SPDX-License-Identifier: Apache-2.0
// What the driver says of the occupancy of a kernel.
#include "agent/executor/device/device.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/launch/launch_attributes.h"
#include "agent/executor/module/kernels.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {

template <typename C, typename T, typename F>
void Kernels::AskDriver(const Kernel& kernel, const wire::Record& record, F ask) {
  auto answer = std::make_shared<std::pair<CUresult, T>>(CUDA_SUCCESS, T{});
  modules_.Post([answer, ask,
                 &cuda = services_.device->cuda()] { answer->first = ask(cuda, &answer->second); },
                [this, answer, caller = CallerOf(record), library = kernel.library] {
                  Reply<C>(caller, services_.device->Judge(answer->first), {answer->second});
                });
}

void Kernels::On(wire::Tag<wire::OccupancyBlocks>, const wire::OccupancyBlocks::Request& request,
                 const wire::Record& record) {
  const Kernel* kernel = FindKernel(request.kernel);
  if (kernel == nullptr) return;
  AskDriver<wire::OccupancyBlocks, int>(
      *kernel, record, [request, function = kernel->function](const Driver& cuda, int* blocks) {
        return cuda.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            blocks, function, request.block_threads, request.dynamic_shared_bytes, request.flags);
      });
}

void Kernels::On(wire::Tag<wire::OccupancySharedMemory>,
                 const wire::OccupancySharedMemory::Request& request, const wire::Record& record) {
  const Kernel* kernel = FindKernel(request.kernel);
  if (kernel == nullptr) return;
  AskDriver<wire::OccupancySharedMemory, size_t>(
      *kernel, record, [request, function = kernel->function](const Driver& cuda, size_t* bytes) {
        return cuda.cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, request.blocks_per_sm,
                                                            request.block_threads);
      });
}

void Kernels::On(wire::Tag<wire::OccupancyClusters>,
                 const wire::OccupancyClusters::Request& request, const wire::Record& record) {
  const Kernel* kernel = FindKernel(request.kernel);
  if (kernel == nullptr) return;
  if (!KnowsAttributes(request.attributes) ||
      (request.question != wire::ClusterQuestion::kMaxActiveClusters &&
       request.question != wire::ClusterQuestion::kMaxPotentialSize)) {
    return Refuse(wire::Fatal::kBadArgument);
  }
  // How many clusters fit depends on the multiprocessors, which the driver knows by the stream.
  const CUstream stream = port_->partition() == nullptr ? nullptr : port_->partition()->stream;
  AskDriver<wire::OccupancyClusters, int>(
      *kernel, record,
      [request, stream, function = reinterpret_cast<CUfunction>(kernel->kernel)](const Driver& cuda,
                                                                                 int* clusters) {
        const LaunchConfig config(request.grid, request.block, request.dynamic_shared_bytes, stream,
                                  request.attributes);
        return request.question == wire::ClusterQuestion::kMaxActiveClusters
                   ? cuda.cuOccupancyMaxActiveClusters(clusters, function, config.get())
                   : cuda.cuOccupancyMaxPotentialClusterSize(clusters, function, config.get());
      });
}

}  // namespace gpuloom::executor
