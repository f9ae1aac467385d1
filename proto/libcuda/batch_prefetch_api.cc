// SPDX-License-Identifier: Apache-2.0
// Prefetching and discarding managed memory in batches: all of a batch is judged before anything of
// it is done. Discarding says that the content may go; here it stays where it is, which is one of the
// values that reading it may give.
//
// Compiled into the shim and into the software driver, on each one's own cuMemPrefetchAsync. Codes
// are those of an H200.
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/capture.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom {
namespace {

struct Ranges {
  const CUdeviceptr* addresses;
  const size_t* sizes;
  size_t count;
};

bool IsManaged(CUdeviceptr address, size_t size_bytes) {
  int read_mostly;
  return cuMemRangeGetAttribute(&read_mostly, sizeof(read_mostly),
                                CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address,
                                size_bytes) == CUDA_SUCCESS;
}

bool IsLocation(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return true;
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return graph::CheckDevice(location.id) == CUDA_SUCCESS;
    default:
      return false;
  }
}

// Arguments first: a wrong batch does not break the capture that it would have been part of.
CUresult Judge(const Ranges& ranges, unsigned long long flags) {
  if (ranges.addresses == nullptr || ranges.sizes == nullptr || ranges.count == 0 || flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < ranges.count; ++i) {
    if (!IsManaged(ranges.addresses[i], ranges.sizes[i])) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult JudgeLocations(const CUmemLocation* places, const size_t* first, size_t place_count,
                        size_t count) {
  if (places == nullptr || first == nullptr || place_count == 0 || place_count > count ||
      first[0] != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < place_count; ++i) {
    // Two places may begin at the same index: then no range belongs to the first.
    if (first[i] >= count || (i > 0 && first[i] < first[i - 1]) || !IsLocation(places[i])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult JudgeStream(CUstream stream, DefaultStream null_means) {
  const bool legacy =
      stream == CU_STREAM_LEGACY || (stream == nullptr && null_means == DefaultStream::kLegacy);
  if (legacy) return CUDA_ERROR_INVALID_VALUE;
  graph::StreamRef found;
  const CUresult result = graph::ResolveStream(stream, null_means, &found);
  if (result != CUDA_SUCCESS || !graph::AnyCapture()) return result;
  return graph::RefuseInCapture(found);
}

CUresult Prefetch(const Ranges& ranges, const CUmemLocation* places, const size_t* first,
                  size_t place_count, unsigned long long flags, CUstream stream,
                  DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(graph::CheckReady());
  CUresult result = Judge(ranges, flags);
  if (result == CUDA_SUCCESS) result = JudgeLocations(places, first, place_count, ranges.count);
  if (result == CUDA_SUCCESS) result = JudgeStream(stream, null_means);
  size_t place = 0;
  for (size_t i = 0; result == CUDA_SUCCESS && i < ranges.count; ++i) {
    while (place + 1 < place_count && first[place + 1] <= i) ++place;
    result = api::cuMemPrefetchAsync_v2(ranges.addresses[i], ranges.sizes[i], places[place], 0,
                                        stream, null_means);
  }
  return result;
}

CUresult Discard(const Ranges& ranges, unsigned long long flags, CUstream stream,
                 DefaultStream null_means) {
  CUDA_RETURN_IF_ERROR(graph::CheckReady());
  const CUresult result = Judge(ranges, flags);
  return result != CUDA_SUCCESS ? result : JudgeStream(stream, null_means);
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

CUresult api::cuMemPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                      CUmemLocation* places, size_t* first, size_t place_count,
                                      unsigned long long flags, CUstream stream,
                                      DefaultStream null_means) {
  return Prefetch({addresses, sizes, count}, places, first, place_count, flags, stream, null_means);
}

CUresult api::cuMemDiscardBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                     unsigned long long flags, CUstream stream,
                                     DefaultStream null_means) {
  return Discard({addresses, sizes, count}, flags, stream, null_means);
}

// The prefetch undoes the discard.
CUresult api::cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr* addresses, size_t* sizes, size_t count,
                                                CUmemLocation* places, size_t* first,
                                                size_t place_count, unsigned long long flags,
                                                CUstream stream, DefaultStream null_means) {
  return Prefetch({addresses, sizes, count}, places, first, place_count, flags, stream, null_means);
}
