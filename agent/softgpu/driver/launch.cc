// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/launch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/played.h"
#include "agent/softgpu/driver/retirement.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

namespace gpuloom::softgpu {
namespace {

// CUDA's checks, with CUDA's errors.
CUresult CheckShape(const LoadedFunction& function, const LaunchShape& shape) {
  const Dim3& grid = shape.grid;
  const Dim3& block = shape.block;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (grid.x > 0x7fffffff || grid.y > kMaxGridDimYZ || grid.z > kMaxGridDimYZ ||
      block.x > kMaxThreadsPerBlock || block.y > kMaxThreadsPerBlock || block.z > kMaxBlockDimZ) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const Kernel& kernel = *function.kernel;
  // Beyond the device's own limit it is INVALID_VALUE, beyond this kernel's (its registers, or
  // .maxntid) OUT_OF_RESOURCES.
  if (threads > kMaxThreadsPerBlock) return CUDA_ERROR_INVALID_VALUE;
  if (threads > kernel.max_threads_per_block) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const uint32_t* required = kernel.required_ntid;
  if (required[0] != 0 &&
      (block.x != required[0] || block.y != required[1] || block.z != required[2])) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (shape.dynamic_shared_bytes >
      static_cast<unsigned>(function.settings->dynamic_shared_bytes.load())) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Dim3& cluster = shape.cluster;
  if (!ThePlayedCapability().has_clusters() &&
      (cluster.x != 1 || cluster.y != 1 || cluster.z != 1)) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  // Up to 8 blocks everywhere; twice as many where the program accepted that it may not run
  // elsewhere.
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 || grid.x % cluster.x != 0 ||
      grid.y % cluster.y != 0 || grid.z % cluster.z != 0 ||
      uint64_t{cluster.x} * cluster.y * cluster.z >
          (function.settings->non_portable_cluster ? 2 : 1) * kMaxClusterBlocks) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  // Its blocks wait for each other, so all of them must be resident at once.
  if (shape.cooperative) {
    const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
    const int resident = BlocksPerMultiprocessor(kernel, threads, shape.dynamic_shared_bytes);
    if (blocks > static_cast<uint64_t>(resident * Multiprocessors())) {
      return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
  }
  return CUDA_SUCCESS;
}

// One block of parameters from either form. They are copied at the call: the program may change its
// variables at once.
CUresult Gather(const Kernel& kernel, void** params, void** extra, std::vector<std::byte>& block) {
  block.assign(kernel.param_bytes, std::byte{0});
  if (params != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (params != nullptr) {
    for (size_t i = 0; i < kernel.params.size(); ++i) {
      if (params[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      const ParamInfo& param = kernel.params[i];
      std::memcpy(block.data() + param.offset_bytes, params[i], param.size_bytes);
    }
    return CUDA_SUCCESS;
  }
  if (extra != nullptr) {
    const void* buffer = nullptr;
    size_t size_bytes = 0;
    for (size_t i = 0; extra[i] != CU_LAUNCH_PARAM_END; i += 2) {
      if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
        buffer = extra[i + 1];
      } else if (extra[i] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
        size_bytes = *static_cast<const size_t*>(extra[i + 1]);
      } else {
        return CUDA_ERROR_INVALID_VALUE;
      }
    }
    // A buffer may be longer than the parameters, never shorter.
    if (kernel.param_bytes > 0 && (buffer == nullptr || size_bytes < kernel.param_bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (kernel.param_bytes > 0) std::memcpy(block.data(), buffer, kernel.param_bytes);
    return CUDA_SUCCESS;
  }
  return kernel.params.empty() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The error that the caller gets for an outcome; everything without a code of its own is
// LAUNCH_FAILED.
CUresult ResultOf(Outcome::Kind kind) {
  switch (kind) {
    case Outcome::kOk:
    case Outcome::kStopped:  // by a fault elsewhere, which is known already, or at exit
      return CUDA_SUCCESS;
    case Outcome::kIllegalAddress:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case Outcome::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case Outcome::kIllegalInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case Outcome::kInvalidPc:
      return CUDA_ERROR_INVALID_PC;
    case Outcome::kAssert:
      return CUDA_ERROR_ASSERT;
    case Outcome::kDeadlock:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    case Outcome::kOutOfMemory:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case Outcome::kTrap:
    case Outcome::kStackOverflow:
      break;
  }
  return CUDA_ERROR_LAUNCH_FAILED;
}

}  // namespace

CUresult PrepareLaunch(const FoundFunction& found, const LaunchShape& wanted, void** params,
                       void** extra, std::function<void()>& work) {
  LaunchShape run = wanted;
  const Kernel& kernel = *found.function->kernel;
  found.module->context.NeedThreadBytes(kernel.local_bytes);
  if (kernel.required_cluster[0] != 0) {
    run.cluster = {kernel.required_cluster[0], kernel.required_cluster[1],
                   kernel.required_cluster[2]};
    run.has_clusters = true;
  } else if (const auto& size = found.function->settings->cluster_size; size[0] > 0) {
    // The program set it for the function; a launch may specify another size.
    const Dim3& asked = wanted.cluster;
    if (asked.x == 1 && asked.y == 1 && asked.z == 1) {
      run.cluster = {static_cast<uint32_t>(size[0]), static_cast<uint32_t>(size[1]),
                     static_cast<uint32_t>(size[2])};
      run.has_clusters = true;
    }
  }
  CUDA_RETURN_IF_ERROR(CheckShape(*found.function, run));
  auto block = std::make_shared<std::vector<std::byte>>();
  CUDA_RETURN_IF_ERROR(Gather(kernel, params, extra, *block));
  // Bound now: what they are bound to later applies only to later launches.
  const BoundImages references =
      found.module->references == nullptr ? nullptr : found.module->references->Bound();
  // Holds the module, so that code and tables stay though it is unloaded while the launch waits.
  // `kernel` lies in it.
  work = [module = found.module, &kernel, run, block, references] {
    Grid grid;
    grid.module = module->code.get();
    grid.kernel = &kernel;
    grid.grid = run.grid;
    grid.block = run.block;
    grid.cluster = run.cluster;
    grid.has_clusters = run.has_clusters;
    grid.dynamic_shared_bytes = run.dynamic_shared_bytes;
    grid.params = block->data();
    grid.references = references.get();
    grid.cooperative = run.cooperative;
    grid.heap = &module->context.heap;
    Outcome outcome;
    {
      // Around the run only: while it is counted as touching, no freed page is given back to the
      // system.
      const Retirement::Touching touching;
      outcome = Run(grid, AddressTable::Instance(), Stopping());
    }
    if (CurrentSettings().counts) {
      PrintLine("kernel " + kernel.name + ": " + std::to_string(outcome.instructions) +
                " instructions");
    }
    const CUresult result = ResultOf(outcome.kind);
    if (result != CUDA_SUCCESS) RecordFault(result, outcome.detail);
  };
  return CUDA_SUCCESS;
}

CUresult Launch(Stream& stream, const FoundFunction& found, const LaunchShape& shape, void** params,
                void** extra) {
  // A function of another context's module.
  if (&stream.context.Owner() != &found.module->context) return CUDA_ERROR_INVALID_HANDLE;
  Work work;
  work.on_device = true;
  CUDA_RETURN_IF_ERROR(PrepareLaunch(found, shape, params, extra, work.run));
  stream.context.Enqueue(stream, std::move(work));
  return CUDA_SUCCESS;
}

// As cuda_occupancy.h computes it, without the allocation granularities: threads are counted in
// whole warps, and registers and shared memory are divided exactly.
int BlocksPerMultiprocessor(const Kernel& kernel, uint64_t threads, uint64_t dynamic_shared_bytes) {
  if (threads == 0 || threads > kernel.max_threads_per_block) return 0;
  const uint64_t warps = (threads + kWarpSize - 1) / kWarpSize;
  const uint64_t shared = kernel.static_shared_bytes + dynamic_shared_bytes;
  const PlayedCapability& played = ThePlayedCapability();
  if (shared > static_cast<uint64_t>(played.block_shared_bytes())) return 0;
  const uint64_t taken = shared + static_cast<uint64_t>(played.reserved_shared_bytes);
  auto blocks = static_cast<uint64_t>(played.max_blocks);
  blocks = std::min(blocks, static_cast<uint64_t>(played.max_threads) / (warps * kWarpSize));
  if (taken != 0) blocks = std::min(blocks, static_cast<uint64_t>(played.shared_bytes()) / taken);
  blocks =
      std::min<uint64_t>(blocks, kRegistersPerMultiprocessor /
                                     (std::max<uint64_t>(kernel.num_regs, 1) * warps * kWarpSize));
  return static_cast<int>(blocks);
}

}  // namespace gpuloom::softgpu
