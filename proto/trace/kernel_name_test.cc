// SPDX-License-Identifier: Apache-2.0
#include "proto/trace/kernel_name.h"

#include <gtest/gtest.h>

namespace gpuloom::trace {
namespace {

TEST(ShortKernelName, OfFunctionsTheirNamesOfOthersAll) {
  EXPECT_EQ(ShortKernelName("_Z4vaddPKfS0_Pfi"), "vadd");
  EXPECT_EQ(ShortKernelName("_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_"
                            "addIfEESt5arrayIPcLm3EEEEviT0_T1_"),
            "at::native::vectorized_elementwise_kernel");
  EXPECT_EQ(ShortKernelName("_ZN12_GLOBAL__N_16kernelEv"), "kernel");
  EXPECT_EQ(ShortKernelName("_ZL6kernelv"), "kernel");
  for (const char* name : {"count", "ampere_sgemm_128x64_nn", "", "_Z", "_ZN", "_ZTV"}) {
    EXPECT_EQ(ShortKernelName(name), name);
  }
}

TEST(ShortKernelName, Malicious_LengthsBeyondTheNameStayAsTheyAre) {
  for (const char* name : {"_Z99vadd", "_Z0", "_Z18446744073709551616x", "_ZN3at", "_Z-1x"}) {
    EXPECT_EQ(ShortKernelName(name), name);
  }
  EXPECT_EQ(ShortKernelName("_ZN2at99x"), "at");
}

}  // namespace
}  // namespace gpuloom::trace
