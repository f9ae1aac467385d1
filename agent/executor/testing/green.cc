// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/green.h"

#include <algorithm>
#include <string>

namespace gpuloom::executor {
namespace {

uint64_t Number(const void* handle) { return reinterpret_cast<uintptr_t>(handle); }
template <typename Handle>
Handle Make(uint64_t number) {
  return reinterpret_cast<Handle>(static_cast<uintptr_t>(number));
}

}  // namespace

// A device of 132 multiprocessors that is cut by 8.
void FillGreenTable(Driver* d) {
  constexpr unsigned kCount = 132;
  d->cuDeviceGetDevResource = [](CUdevice, CUdevResource* resource, CUdevResourceType type) {
    *resource = {};
    resource->type = type;
    resource->sm = {kCount, 8, 8};
    return CUDA_SUCCESS;
  };
  d->cuDevSmResourceSplitByCount = [](CUdevResource* groups, unsigned* count,
                                      const CUdevResource* input, CUdevResource* remaining,
                                      unsigned, unsigned min_count) {
    const unsigned size = (std::max(min_count, 1u) + 7) / 8 * 8;
    if (size > input->sm.smCount) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    *count = std::min(*count, input->sm.smCount / size);
    for (unsigned i = 0; i < *count; ++i) {
      groups[i] = *input;
      groups[i].sm.smCount = size;
    }
    *remaining = *input;
    remaining->sm.smCount -= *count * size;
    if (remaining->sm.smCount == 0) *remaining = {};
    return CUDA_SUCCESS;
  };
  // A descriptor and a context are their number of multiprocessors.
  d->cuDevResourceGenerateDesc = [](CUdevResourceDesc* description, CUdevResource* resources,
                                    unsigned count) {
    uint64_t all = 0;
    for (unsigned i = 0; i < count; ++i) all += resources[i].sm.smCount;
    return *description = Make<CUdevResourceDesc>(all), CUDA_SUCCESS;
  };
  d->cuGreenCtxCreate = [](CUgreenCtx* context, CUdevResourceDesc description, CUdevice, unsigned) {
    *context = Make<CUgreenCtx>(Number(description));
    return TestingSynchronising(
        ("green context of " + std::to_string(Number(description))).c_str());
  };
  d->cuCtxFromGreenCtx = [](CUcontext* context, CUgreenCtx green) {
    *context = Make<CUcontext>(Number(green));
    return CUDA_SUCCESS;
  };
  d->cuGreenCtxDestroy = [](CUgreenCtx) { return CUDA_SUCCESS; };
  d->cuGreenCtxGetDevResource = [](CUgreenCtx context, CUdevResource* resource,
                                   CUdevResourceType type) {
    *resource = {};
    resource->type = type;
    resource->sm = {static_cast<unsigned>(Number(context)), 8, 8};
    return CUDA_SUCCESS;
  };
  d->cuGreenCtxStreamCreate = [](CUstream* stream, CUgreenCtx context, unsigned, int) {
    return TestingNewStream(stream, "green stream", Number(context));
  };
}

}  // namespace gpuloom::executor
