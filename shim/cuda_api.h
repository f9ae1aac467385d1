// cuda.h for the files that define its functions: what is declared here is exported. Comes before
// every other header that includes cuda.h.
#pragma once

#ifdef __cuda_cuda_h__
#error "include shim/cuda_api.h first: functions declared before it would not be exported"
#endif
#pragma GCC visibility push(default)
#include "proto/cuda/cuda_all.h"
#pragma GCC visibility pop
