// SPDX-License-Identifier: Apache-2.0
// What the tests of the software driver stand on: the built libcuda.so.1, loaded by its path as
// every user of it does, two devices of 1 GiB, and the primary context of device 0 current.
#pragma once

#include <gtest/gtest.h>

#include "proto/cuda/driver.h"

namespace gpuloom::softgpu {

inline constexpr size_t kTestMemoryBytes = size_t{1} << 30;
inline constexpr size_t kGranule = size_t{2} << 20;

// The library, loaded and initialised once per process.
const Driver& Cuda();

class DriverTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Memory that the test frees by itself, or not.
  CUdeviceptr Allocate(size_t size_bytes);
  CUmemGenericAllocationHandle Create(size_t size_bytes);
  void Allow(CUdeviceptr begin, size_t size_bytes,
             CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  size_t FreeBytes();
  // Of two multiprocessors of device 0.
  CUgreenCtx MakeGreen();

  CUcontext context_ = nullptr;
};

CUmemAllocationProp DeviceMemory(int ordinal = 0);

// While it lives no thread can be made in this process, as when their number is limited.
class WithoutThreads {
 public:
  WithoutThreads();
  ~WithoutThreads();
  WithoutThreads(const WithoutThreads&) = delete;
  WithoutThreads& operator=(const WithoutThreads&) = delete;

 private:
  void SetStack(size_t size_bytes);
  size_t stack_bytes_ = 0;
};

}  // namespace gpuloom::softgpu
