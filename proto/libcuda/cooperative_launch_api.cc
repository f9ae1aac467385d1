// SPDX-License-Identifier: Apache-2.0
// cuLaunchCooperativeKernelMultiDevice: one cooperative launch for each device, and a program has one
// device here. CUDA's flags leave out waiting for the other devices' work, of which there is none.
//
// Compiled into the shim and into the software driver.
#include "proto/cuda/cuda_all.h"
#include "proto/cuda/return_if_error.h"

// CUDA deprecates these functions, but programs still call them.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace {

constexpr unsigned kKnownFlags = CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_PRE_LAUNCH_SYNC |
                                 CUDA_COOPERATIVE_LAUNCH_MULTI_DEVICE_NO_POST_LAUNCH_SYNC;

// The call does not accept the default streams.
bool IsDefaultStream(CUstream stream) {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

}  // namespace

extern "C" {

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launches, unsigned count,
                                              unsigned flags) {
  CUcontext context;
  CUDA_RETURN_IF_ERROR(cuCtxGetCurrent(&context));
  // Two launches on one device are as wrong as none.
  if (launches == nullptr || count != 1 || (flags & ~kKnownFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUDA_LAUNCH_PARAMS& launch = launches[0];
  if (IsDefaultStream(launch.hStream)) return CUDA_ERROR_INVALID_HANDLE;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUDA_RETURN_IF_ERROR(cuStreamIsCapturing(launch.hStream, &capture));
  // Such a launch cannot be captured. Like a query, the call is refused and ends the capture.
  if (capture != CU_STREAM_CAPTURE_STATUS_NONE) return cuStreamQuery(launch.hStream);
  return cuLaunchCooperativeKernel(launch.function, launch.gridDimX, launch.gridDimY,
                                   launch.gridDimZ, launch.blockDimX, launch.blockDimY,
                                   launch.blockDimZ, launch.sharedMemBytes, launch.hStream,
                                   launch.kernelParams);
}

}  // extern "C"
