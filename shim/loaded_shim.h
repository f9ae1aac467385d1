// For tests: a fresh instance of the built libgpuloom.so in this process. Instances share nothing,
// so each test can attach, break and lose a session of its own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "proto/cuda/driver.h"
#include "shim/testing_node.h"

namespace gpuloom {

// The loader takes a copy under another inode for another library. It is never unloaded.
inline Driver LoadFreshShim() {
  char copy[] = "/tmp/gpuloom-shim-copy-XXXXXX";
  const channel::UniqueFd out(mkstemp(copy));
  const channel::UniqueFd in(open(GPULOOM_SHIM, O_RDONLY | O_CLOEXEC));
  struct stat status = {};
  fstat(in.get(), &status);
  off_t offset = 0;
  while (offset < status.st_size &&
         sendfile(out.get(), in.get(), &offset, static_cast<size_t>(status.st_size - offset)) > 0) {
  }
  Driver driver;
  std::string error;
  if (!Load(copy, &driver, &error)) ADD_FAILURE() << error;
  unlink(copy);
  return driver;
}

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
