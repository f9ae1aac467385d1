// SPDX-License-Identifier: Apache-2.0
// cuMemset*: fills of 1, 2 or 4 byte elements, one row or many. The calls without a stream are
// asynchronous too, as in CUDA, unless the memory is pinned or managed: later work of the default
// stream and of the streams behind its barrier sees the result.
#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/copy.h"
#include "agent/softgpu/driver/graph_capture.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::softgpu;

namespace {

// The calls without "Async" in their names, and those with it.
enum class Form : bool { kOfStream, kPlain };

CUresult Submit(CUstream handle, DefaultStream null_means, const Fill& fill,
                Form form = Form::kOfStream) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  const auto stream = FindStream(*context, handle, null_means);
  if (stream == nullptr) return NoStream(handle);
  // A captured fill is judged as one that runs, though what would run it is thrown away.
  CUresult captured = CUDA_SUCCESS;
  if (Records(*stream, &captured, [&](graph::NodeParams* node) {
        std::function<void()> unused;
        const CUresult judged = PrepareFill(fill, unused);
        *node = graph::LinearFill(fill.address, fill.value, fill.element_bytes, fill.width,
                                  context->handle());
        node->memset.pitch = fill.pitch_bytes;
        node->memset.height = fill.height;
        return judged;
      })) {
    return captured;
  }
  const CUresult submitted = SubmitFill(*stream, fill);
  // Looked up after submitting: by then the call is known to be valid.
  const auto region = AddressTable::Instance().FindRegion(fill.address);
  if (submitted != CUDA_SUCCESS || !region) return submitted;
  // The plain call is over when it returns where the host may look at once.
  const bool host_sees = region->kind == RegionKind::kManaged ||
                         region->kind == RegionKind::kHost ||
                         region->kind == RegionKind::kRegistered;
  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS. An asynchronous memset may wait as well then, because no
  // program can tell.
  if (region->synchronous || (form == Form::kPlain && host_sees)) stream->Tail().Wait();
  return submitted;
}

}  // namespace

CUresult api::cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count,
                            DefaultStream null_means) {
  return Submit(nullptr, null_means, {to, value, 1, count, 1, 0}, Form::kPlain);
}

CUresult api::cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream,
                              DefaultStream null_means) {
  return Submit(stream, null_means, {to, value, 1, count, 1, 0});
}

CUresult api::cuMemsetD2D8_v2(CUdeviceptr to, size_t pitch_bytes, unsigned char value, size_t width,
                              size_t height, DefaultStream null_means) {
  return Submit(nullptr, null_means, {to, value, 1, width, height, pitch_bytes}, Form::kPlain);
}

CUresult api::cuMemsetD2D8Async(CUdeviceptr to, size_t pitch_bytes, unsigned char value,
                                size_t width, size_t height, CUstream stream,
                                DefaultStream null_means) {
  return Submit(stream, null_means, {to, value, 1, width, height, pitch_bytes});
}

CUresult api::cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count,
                             DefaultStream null_means) {
  return Submit(nullptr, null_means, {to, value, 2, count, 1, 0}, Form::kPlain);
}

CUresult api::cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream,
                               DefaultStream null_means) {
  return Submit(stream, null_means, {to, value, 2, count, 1, 0});
}

CUresult api::cuMemsetD2D16_v2(CUdeviceptr to, size_t pitch_bytes, unsigned short value,
                               size_t width, size_t height, DefaultStream null_means) {
  return Submit(nullptr, null_means, {to, value, 2, width, height, pitch_bytes}, Form::kPlain);
}

CUresult api::cuMemsetD2D16Async(CUdeviceptr to, size_t pitch_bytes, unsigned short value,
                                 size_t width, size_t height, CUstream stream,
                                 DefaultStream null_means) {
  return Submit(stream, null_means, {to, value, 2, width, height, pitch_bytes});
}

CUresult api::cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count,
                             DefaultStream null_means) {
  return Submit(nullptr, null_means, {to, value, 4, count, 1, 0}, Form::kPlain);
}

CUresult api::cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream,
                               DefaultStream null_means) {
  return Submit(stream, null_means, {to, value, 4, count, 1, 0});
}

CUresult api::cuMemsetD2D32_v2(CUdeviceptr to, size_t pitch_bytes, unsigned value, size_t width,
                               size_t height, DefaultStream null_means) {
  return Submit(nullptr, null_means, {to, value, 4, width, height, pitch_bytes}, Form::kPlain);
}

CUresult api::cuMemsetD2D32Async(CUdeviceptr to, size_t pitch_bytes, unsigned value, size_t width,
                                 size_t height, CUstream stream, DefaultStream null_means) {
  return Submit(stream, null_means, {to, value, 4, width, height, pitch_bytes});
}
