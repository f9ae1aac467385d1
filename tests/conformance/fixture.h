// SPDX-License-Identifier: Apache-2.0
// The driver under test and what most tests need of it. The same bodies run on the software driver,
// on the real one, and through gpuloom on either: main loads whichever library it was told to.
//
// One process, one primary context on device 0, kept from the first test that needs it to the end.
// What ends a context for good runs in a child process of this same binary: RunChild.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "proto/cuda/driver.h"

// Where gtest looks for it: beside CUresult.
void PrintTo(CUresult result, std::ostream* out);

namespace gpuloom::conformance {

// Loaded by main before the first test.
const Driver& Cu();

// Runs one of kChildren (children.cc) in a new process on the same library; its exit status, 0 when
// it saw what it expected. Prints what it did not.
int RunChild(const std::string& name);
// For main: runs the child's body in this process.
int RunChildBody(const std::string& name);

// Whether the driver is of an older CUDA than this (12030 is 12.3), or the device of a lower compute capability (90 is
// 9.0): for tests of what came later, which are then skipped.
bool IsDriverBelow(int version);
bool IsDeviceBelow(int capability);
// Of what runs on one compute capability alone (sm_90a).
bool IsDevice(int capability);

// Whether this process may be told of page faults, which managed memory needs in order to migrate.
bool KernelTellsOfPageFaults();

// Whether cuMemGetInfo tells of the whole device, as natively, where other processes take memory and
// give it back, too. Through gpuloom it tells of this allocation alone.
bool CountsOthers();

// Packs the addresses of its arguments as kernelParams wants them.
template <typename... Ts>
CUresult Launch(CUfunction function, unsigned grid, unsigned block, CUstream stream, Ts... values) {
  void* parameters[] = {&values..., nullptr};
  return Cu().cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, parameters, nullptr);
}

class WithContext : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // What cuMemGetInfo says is free.
  size_t FreeBytes();
  // `use` takes at least so much memory, looks how much is free meanwhile, which it returns, and gives
  // all back: that is free again at once. What other processes may have disturbed is done again.
  testing::AssertionResult FreeAgainAfter(size_t taken_bytes, const std::function<size_t()>& use);

  // Device memory that is freed with the test; never 0.
  CUdeviceptr Alloc(size_t size_bytes);
  // What an allocation node of the device's memory is made of.
  CUDA_MEM_ALLOC_NODE_PARAMS AllocationOf(size_t size_bytes) const {
    CUDA_MEM_ALLOC_NODE_PARAMS asked{};
    asked.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    asked.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    asked.poolProps.location.id = device_;
    asked.bytesize = size_bytes;
    return asked;
  }
  // Pinned host memory, freed with the test, zeroed.
  void* HostAlloc(size_t size_bytes, unsigned flags = CU_MEMHOSTALLOC_DEVICEMAP);
  CUstream Stream(unsigned flags = CU_STREAM_NON_BLOCKING);
  CUevent Event(unsigned flags = CU_EVENT_DEFAULT);

  template <typename T>
  std::vector<T> Download(CUdeviceptr from, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(Cu().cuMemcpyDtoH_v2(values.data(), from, count * sizeof(T)), CUDA_SUCCESS);
    return values;
  }

  CUdevice device_ = 0;
  CUcontext context_ = nullptr;

 private:
  std::vector<CUdeviceptr> device_memory_;
  std::vector<void*> host_memory_;
  std::vector<CUstream> streams_;
  std::vector<CUevent> events_;
};

// The kernels of kernels.h, loaded for each test.
class WithKernels : public WithContext {
 protected:
  void SetUp() override;
  void TearDown() override;
  CUfunction Function(const char* name);

  // A kernel on `stream` that runs until Open: for tests that need unfinished work without a clock.
  void Block(CUstream stream);
  void Open();

  CUmodule module_ = nullptr;

 private:
  volatile uint32_t* gate_ = nullptr;
};

// Words for copies: distinct and reproducible.
std::vector<uint32_t> Pattern(size_t count, uint32_t seed);

}  // namespace gpuloom::conformance
