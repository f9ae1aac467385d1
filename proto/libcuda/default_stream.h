// SPDX-License-Identifier: Apache-2.0
// CUDA's two default streams, and the functions that exist once for each: cuEventRecord takes a null stream for the
// legacy default stream, its twin cuEventRecord_ptsz for the thread's own. (_ptds marks the twins of functions
// without a stream argument.)
//
// A library that stands in for libcuda defines such a function once, with the meaning of null as a last argument:
//
//   CUresult api::cuEventRecord(CUevent event, CUstream stream, DefaultStream null_means) { … }
//
// default_stream.cc, compiled into the library, exports both forms of every pair in driver_api.def. A definition whose
// arguments differ from cuda.h's does not compile, and a missing one does not link. Declarations only.
#pragma once

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// The stream that a null handle means.
enum class DefaultStream : bool { kLegacy, kPerThread };

template <typename Function>
struct WithDefaultStream;
template <typename... Parameters>
struct WithDefaultStream<CUresult(Parameters...)> {
  using Type = CUresult(Parameters..., DefaultStream null_means);
};

namespace api {
#define CUDA_FN(name, room)
#define CUDA_FN_PER_THREAD(name, room, plain, parameters) \
  WithDefaultStream<decltype(::plain)>::Type plain;
#include "proto/cuda/driver_api.def"
#undef CUDA_FN
}  // namespace api

}  // namespace gpuloom
