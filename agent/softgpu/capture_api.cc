// Stream capture is not offered, so no stream is ever capturing; the questions about it have true
// answers.
#include <utility>

#include "agent/softgpu/context.h"
#include "agent/softgpu/state.h"

using namespace gpuloom::softgpu;  // NOLINT: this file only defines CUDA's C functions

namespace {

thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

CUresult NotCapturing(CUstream handle, bool per_thread, CUstreamCaptureStatus* status) {
  Context* context = nullptr;
  const CUresult result = RequireContext(context);
  if (result != CUDA_SUCCESS) return result;
  if (FindStream(*context, handle, per_thread) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (status == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *status = CU_STREAM_CAPTURE_STATUS_NONE;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return NotCapturing(stream, false, status);
}
CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return NotCapturing(stream, true, status);
}

CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*) {
  return NotCapturing(stream, false, status);
}
CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*) {
  return NotCapturing(stream, true, status);
}
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*,
                                   CUgraph*, const CUgraphNode**, size_t*) {
  return NotCapturing(stream, false, status);
}
CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*,
                                        CUgraph*, const CUgraphNode**, size_t*) {
  return NotCapturing(stream, true, status);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*,
                                   CUgraph*, const CUgraphNode**, const CUgraphEdgeData**,
                                   size_t*) {
  return NotCapturing(stream, false, status);
}
CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t*,
                                        CUgraph*, const CUgraphNode**, const CUgraphEdgeData**,
                                        size_t*) {
  return NotCapturing(stream, true, status);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  const CUresult ready = Ready();
  if (ready != CUDA_SUCCESS) return ready;
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
      *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}

}  // extern "C"
