// SPDX-License-Identifier: Apache-2.0
// A kernel of one thread that lasts as long as it is asked to, by the device's clock, and how long it really lasted.
// Ends with the process. From one thread; errors are kept in the Gpu.
#pragma once

#include <cstdint>

#include "tests/bench/gpu.h"

namespace gpuloom::bench {

inline constexpr char kSpinKernel[] = R"PTX(
.version 7.0
.target sm_80
.address_size 64

.visible .entry spin(.param .u64 total_ns, .param .u64 length_ns)
{
  .reg .pred %p<2>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [total_ns];
  ld.param.u64 %rd2, [length_ns];
  mov.u64 %rd3, %globaltimer;
AGAIN:
  mov.u64 %rd4, %globaltimer;
  sub.u64 %rd4, %rd4, %rd3;
  setp.lt.u64 %p1, %rd4, %rd2;
  @%p1 bra AGAIN;
  ld.global.u64 %rd5, [%rd1];
  add.u64 %rd5, %rd5, %rd4;
  st.global.u64 [%rd1], %rd5;
  ret;
}
)PTX";

class SpinKernel {
 public:
  bool Start(Gpu& gpu) {
    gpu_ = &gpu;
    CUmodule module = nullptr;
    return gpu.Ok(gpu.cu().cuModuleLoadData(&module, kSpinKernel), "cuModuleLoadData") &&
           gpu.Ok(gpu.cu().cuModuleGetFunction(&kernel_, module, "spin"), "cuModuleGetFunction") &&
           gpu.Ok(gpu.cu().cuMemAlloc_v2(&total_, sizeof(uint64_t)), "cuMemAlloc") && Forget();
  }

  // Not checked here, so that nothing but the call is timed.
  CUresult Launch(uint64_t length_ns) {
    void* parameters[] = {&total_, &length_ns};
    return gpu_->cu().cuLaunchKernel(kernel_, 1, 1, 1, 1, 1, 1, 0, gpu_->stream(), parameters,
                                     nullptr);
  }

  // All kernels' lengths since Forget, by the device's clock. Nothing of them may be running.
  uint64_t TotalNs() {
    uint64_t total_ns = 0;
    gpu_->Ok(gpu_->cu().cuMemcpyDtoH_v2(&total_ns, total_, sizeof(total_ns)), "cuMemcpyDtoH");
    return total_ns;
  }
  bool Forget() {
    const uint64_t nothing = 0;
    return gpu_->Ok(gpu_->cu().cuMemcpyHtoD_v2(total_, &nothing, sizeof(nothing)), "cuMemcpyHtoD");
  }

 private:
  Gpu* gpu_ = nullptr;
  CUfunction kernel_ = nullptr;
  CUdeviceptr total_ = 0;
};

}  // namespace gpuloom::bench
