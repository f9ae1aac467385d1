// SPDX-License-Identifier: Apache-2.0
// cuStreamGet*: what is known of a stream without asking the executor.
#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/context/green_context.h"
#include "shim/stream/stream.h"

namespace gpuloom {
namespace {

bool IsSpecial(CUstream handle) {
  return handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
}

// The stream behind a handle as an object; null for the default streams.
CUresult Describe(CUstream handle, DefaultStream null_means, const Stream** stream,
                  wire::StreamId* id) {
  CUDA_RETURN_IF_ERROR(NeedContext());
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, id));
  *stream = StreamAt(*id);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuStreamGetFlags(CUstream handle, unsigned* flags, DefaultStream null_means) {
  const Stream* stream;
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Describe(handle, null_means, &stream, &id));
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = stream == nullptr ? unsigned{CU_STREAM_DEFAULT} : stream->flags;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetPriority(CUstream handle, int* priority, DefaultStream null_means) {
  const Stream* stream;
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Describe(handle, null_means, &stream, &id));
  if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *priority = stream == nullptr ? 0 : stream->priority;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetId(CUstream handle, unsigned long long* serial, DefaultStream null_means) {
  const Stream* stream;
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Describe(handle, null_means, &stream, &id));
  if (serial == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // 1 is the legacy stream's: all others have an object.
  *serial = stream == nullptr ? 1 : stream->serial;
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetCtx(CUstream handle, CUcontext* context, DefaultStream null_means) {
  const Stream* stream;
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(Describe(handle, null_means, &stream, &id));
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // A default stream is in whatever context is current.
  if (IsSpecial(handle)) {
    *context = CurrentThread().current;
    return CUDA_SUCCESS;
  }
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;  // destroyed since by another thread
  *context = ContextOf(*stream);
  return CUDA_SUCCESS;
}

// Each of the outputs may be null.
CUresult api::cuStreamGetCtx_v2(CUstream handle, CUcontext* context, CUgreenCtx* green,
                                DefaultStream null_means) {
  CUcontext ordinary = nullptr;
  CUDA_RETURN_IF_ERROR(cuStreamGetCtx(handle, &ordinary, null_means));
  GreenContext* of = nullptr;
  CUDA_RETURN_IF_ERROR(GreenContextOf(handle, null_means, &of));
  // A green context's stream is reported in the primary context, beside its green one.
  if (context != nullptr) *context = of == nullptr ? ordinary : PrimaryContext();
  if (green != nullptr) *green = of == nullptr ? nullptr : HandleOf(of);
  return CUDA_SUCCESS;
}

CUresult api::cuStreamGetDevice(CUstream handle, CUdevice* device, DefaultStream null_means) {
  wire::StreamId id;
  CUDA_RETURN_IF_ERROR(NeedContext());
  CUDA_RETURN_IF_ERROR(FindStream(handle, null_means, &id));
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = kOnlyDevice;
  return CUDA_SUCCESS;
}
