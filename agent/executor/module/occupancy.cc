// SPDX-License-Identifier: Apache-2.0
// What the driver says of the occupancy of a kernel.
#include "agent/executor/device/device.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/launch/launch_attributes.h"
#include "agent/executor/module/kernels.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::executor {

void Kernels::On(wire::Tag<wire::OccupancyBlocks>, const wire::OccupancyBlocks::Request& request,
                 const wire::Record& record) {
  const Kernel* kernel = FindKernel(request.kernel);
  if (kernel == nullptr) return;
  auto answer = std::make_shared<std::pair<CUresult, int>>(CUDA_SUCCESS, 0);
  modules_.Post(
      [answer, request, function = kernel->function, &cuda = services_.device->cuda()] {
        answer->first = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &answer->second, function, request.block_threads, request.dynamic_shared_bytes,
            request.flags);
      },
      // The function stays loaded as long as it is asked about.
      [this, answer, caller = CallerOf(record), library = kernel->library] {
        Reply<wire::OccupancyBlocks>(caller, services_.device->Judge(answer->first),
                                     {answer->second});
      });
}

void Kernels::On(wire::Tag<wire::OccupancySharedMemory>,
                 const wire::OccupancySharedMemory::Request& request, const wire::Record& record) {
  const Kernel* kernel = FindKernel(request.kernel);
  if (kernel == nullptr) return;
  auto answer = std::make_shared<std::pair<CUresult, size_t>>(CUDA_SUCCESS, 0);
  modules_.Post(
      [answer, request, function = kernel->function, &cuda = services_.device->cuda()] {
        answer->first = cuda.cuOccupancyAvailableDynamicSMemPerBlock(
            &answer->second, function, request.blocks_per_sm, request.block_threads);
      },
      [this, answer, caller = CallerOf(record), library = kernel->library] {
        Reply<wire::OccupancySharedMemory>(caller, services_.device->Judge(answer->first),
                                           {answer->second});
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
  auto answer = std::make_shared<std::pair<CUresult, int>>(CUDA_SUCCESS, 0);
  modules_.Post(
      [answer, request, function = reinterpret_cast<CUfunction>(kernel->kernel), stream,
       &cuda = services_.device->cuda()] {
        const LaunchConfig config(request.grid, request.block, request.dynamic_shared_bytes, stream,
                                  request.attributes);
        answer->first =
            request.question == wire::ClusterQuestion::kMaxActiveClusters
                ? cuda.cuOccupancyMaxActiveClusters(&answer->second, function, config.get())
                : cuda.cuOccupancyMaxPotentialClusterSize(&answer->second, function, config.get());
      },
      [this, answer, caller = CallerOf(record), library = kernel->library] {
        Reply<wire::OccupancyClusters>(caller, services_.device->Judge(answer->first),
                                       {answer->second});
      });
}

}  // namespace gpuloom::executor
