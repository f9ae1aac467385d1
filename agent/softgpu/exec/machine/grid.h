// SPDX-License-Identifier: Apache-2.0
// Runs one grid of a kernel on the calling thread. Other threads help (crew.h) when it has many
// blocks, runs for long enough, and does nothing that depends on the order of the blocks
// (Kernel::in_order).
//
// Several threads may run grids at once, also of the same kernel. They share only the memory that
// the program itself shares. Atomics on it are the CPU's atomics, so they hold between threads, and
// between processes that map the same memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "agent/softgpu/exec/machine/address_space.h"
#include "agent/softgpu/exec/machine/image.h"
#include "agent/softgpu/exec/machine/kernel_heap.h"
#include "agent/softgpu/exec/machine/module.h"

namespace gpuloom::softgpu {

struct Dim3 {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

// What to run. The caller has checked the limits of cuLaunchKernel (dimensions not 0, threads per
// block, shared bytes); Run() refuses what it could not run, with kIllegalInstruction.
struct Grid {
  const Module* module = nullptr;
  const Kernel* kernel = nullptr;
  Dim3 grid;
  Dim3 block;
  Dim3 cluster;               // blocks per cluster
  bool has_clusters = false;  // the launch requested clusters, even if of one block
  uint32_t dynamic_shared_bytes = 0;
  const std::byte* params = nullptr;  // kernel->param_bytes bytes, laid out as kernel->params says
  // By the number of the module's references; nullptr: it has none. Must not change while the grid
  // runs.
  const std::vector<BoundImage>* references = nullptr;
  KernelHeap* heap = nullptr;  // for malloc; nullptr: there is no memory
  // All blocks are resident at once, so that they may wait for each other.
  bool cooperative = false;
};

struct Outcome {
  enum Kind {
    kOk,
    kIllegalAddress,      // CUDA_ERROR_ILLEGAL_ADDRESS (700); `address` is the one touched
    kMisaligned,          // CUDA_ERROR_MISALIGNED_ADDRESS (716)
    kTrap,                // CUDA_ERROR_LAUNCH_FAILED (719): the kernel executed trap
    kIllegalInstruction,  // CUDA_ERROR_ILLEGAL_INSTRUCTION (715)
    kInvalidPc,           // CUDA_ERROR_INVALID_PC (718): an indirect call to what is no function
    kStackOverflow,       // CUDA_ERROR_LAUNCH_FAILED (719): call depth or local memory exhausted
    kAssert,              // CUDA_ERROR_ASSERT (710)
    kDeadlock,            // CUDA_ERROR_LAUNCH_TIMEOUT (702): every thread waits for another one
    kOutOfMemory,         // the host had no memory for the grid's registers or shared memory
    kStopped,             // `stop` was set
  };
  Kind kind = kOk;
  uint64_t address = 0;
  std::string detail;         // for people: kernel, PTX line and what happened
  uint64_t instructions = 0;  // executed, each by a warp
};

// Returns when all blocks are done, or at the first fault, or soon (about a millisecond) after
// `stop` became true.
[[nodiscard]] Outcome Run(const Grid& grid, const AddressSpace& memory,
                          const std::atomic<bool>& stop);

}  // namespace gpuloom::softgpu
