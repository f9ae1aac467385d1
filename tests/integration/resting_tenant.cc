// SPDX-License-Identifier: Apache-2.0
// A tenant that always wants the device, with kernels that take no processor on the software GPU: says "ready", then for
// each line of input, a number of seconds, keeps kernels of a millisecond queued for so long and says "done".
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "proto/cuda/driver.h"

namespace {

constexpr char kRest[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry rest() {
  .reg .b64 %begin, %now, %rested;
  .reg .pred %more;
  mov.u64 %begin, %globaltimer;
LOOP:
  nanosleep.u32 100000;
  mov.u64 %now, %globaltimer;
  sub.s64 %rested, %now, %begin;
  setp.lt.u64 %more, %rested, 1000000;
  @%more bra LOOP;
  ret;
}
)";

constexpr size_t kQueued = 16;

void Ok(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  std::cout << "failed " << what << " " << result << std::endl;
  std::exit(1);
}

}  // namespace

int main() {
  gpuloom::Driver cu;
  std::string error;
  if (!gpuloom::Load("libcuda.so.1", &cu, &error)) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 2;
  }
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUfunction rest;
  Ok(cu.cuInit(0), "cuInit");
  Ok(cu.cuDeviceGet(&device, 0), "cuDeviceGet");
  Ok(cu.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  Ok(cu.cuCtxSetCurrent(context), "cuCtxSetCurrent");
  Ok(cu.cuModuleLoadData(&module, kRest), "cuModuleLoadData");
  Ok(cu.cuModuleGetFunction(&rest, module, "rest"), "cuModuleGetFunction");
  const auto launch = [&] {
    Ok(cu.cuLaunchKernel(rest, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), "cuLaunchKernel");
  };
  launch();
  Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
  std::vector<CUevent> events(kQueued);
  for (CUevent& event : events) {
    Ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC), "cuEventCreate");
  }
  std::cout << "ready" << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::duration<double>(std::strtod(line.c_str(), nullptr));
    for (size_t i = 0; std::chrono::steady_clock::now() < until; ++i) {
      // The kernel that was launched so many before this one.
      CUevent event = events[i % kQueued];
      Ok(cu.cuEventSynchronize(event), "cuEventSynchronize");
      launch();
      Ok(cu.cuEventRecord(event, nullptr), "cuEventRecord");
    }
    Ok(cu.cuCtxSynchronize(), "cuCtxSynchronize");
    std::cout << "done" << std::endl;
  }
  return 0;
}
