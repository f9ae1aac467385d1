// SPDX-License-Identifier: Apache-2.0
// For tests: a fresh instance of the built libgpuloom.so in this process. Instances share nothing,
// so each test can attach, break and lose its own session.
#pragma once

#include <gtest/gtest.h>

#include "proto/cuda/driver.h"
#include "shim/testing/node.h"

namespace gpuloom {

// A copy of the library: with another inode the loader treats it as another library. Never
// unloaded.
Driver LoadFreshShim();

// A node, and a shim that has not attached yet.
class ShimTest : public ::testing::Test {
 protected:
  TestingNode node_;
  Driver cu_ = LoadFreshShim();

  // cuInit and the primary context, current in this thread.
  void Begin() {
    ASSERT_EQ(cu_.cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
  }
  CUfunction Function(const char* name) {
    if (module_ == nullptr) {
      EXPECT_EQ(cu_.cuModuleLoadData(&module_, ".version 8.0"), CUDA_SUCCESS);
    }
    CUfunction function = nullptr;
    EXPECT_EQ(cu_.cuModuleGetFunction(&function, module_, name), CUDA_SUCCESS);
    return function;
  }
  CUresult Launch(CUfunction function, CUstream stream = nullptr) {
    return cu_.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }
  CUdeviceptr Alloc(size_t size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(cu_.cuMemAlloc_v2(&address, size), CUDA_SUCCESS);
    return address;
  }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
};

}  // namespace gpuloom
