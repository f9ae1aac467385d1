// SPDX-License-Identifier: Apache-2.0
// <cuda.h> with every declaration visible: the first ABIs (cuMemAlloc beside cuMemAlloc_v2) and the
// per-thread-stream ones (_ptds, _ptsz) under their exported names, and nothing renamed by macro.
// Include this instead of <cuda.h>.
#pragma once

#if defined(__cuda_cuda_h__) && !defined(__CUDA_API_VERSION_INTERNAL)
#error "include proto/cuda/cuda_all.h before <cuda.h>"
#endif
#ifndef __CUDA_API_VERSION_INTERNAL
#define __CUDA_API_VERSION_INTERNAL
#endif
// A library that defines these functions exports them, whatever else it hides.
#pragma GCC visibility push(default)
#include <cuda.h>
#include <cudaProfiler.h>
#pragma GCC visibility pop
