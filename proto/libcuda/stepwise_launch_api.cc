// SPDX-License-Identifier: Apache-2.0
// cuFuncSetBlockShape, cuParamSet* and cuLaunchGrid*. What is set is kept here; launching hands it to
// cuLaunchKernel. A program that launches the same function by cuLaunchKernel meanwhile finds its
// settings as they were, which CUDA leaves undefined.
//
// Compiled into the shim and into the software driver.
#include <stdlib.h>
#include <string.h>

#include <atomic>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/library.h"
#include "proto/libcuda/growing.h"
#include "proto/libcuda/stepwise_launch.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

constexpr size_t kMaxParamBytes = 32764;  // CUDA's limit for kernels since 12.1

// What has been set for one function.
struct Settings {
  const void* function;
  unsigned block[3];
  unsigned dynamic_shared_bytes;
  size_t param_bytes;
  size_t capacity_bytes;  // of params; bytes that were never set are 0
  uint8_t* params;        // malloc'ed
};

struct AllSettings {
  Mutex mutex;
  Growing<Settings> settings GPULOOM_GUARDED_BY(mutex);
  std::atomic<size_t> count{0};  // so that programs that do not use these functions take no lock
};
constinit AllSettings all;

// Null: nothing was set. Only programs written for CUDA 3 set anything, so a plain search will do.
Settings* FindLocked(const void* function) GPULOOM_REQUIRES(all.mutex) {
  for (Settings& settings : all.settings) {
    if (settings.function == function) return &settings;
  }
  return nullptr;
}

// The settings of a function for which nothing was set.
Settings Fresh(const void* function) {
  Settings fresh = {};
  fresh.function = function;
  fresh.block[0] = fresh.block[1] = fresh.block[2] = 1;
  return fresh;
}

Settings* MakeLocked(const void* function) GPULOOM_REQUIRES(all.mutex) {
  if (Settings* settings = FindLocked(function); settings != nullptr) return settings;
  const Settings fresh = Fresh(function);
  if (!all.settings.Push(fresh)) return nullptr;
  all.count.store(all.settings.count(), std::memory_order_release);
  return &all.settings[all.settings.count() - 1];
}

// False if there is no memory; then nothing has changed.
bool MakeRoom(Settings* settings, size_t bytes) {
  if (bytes <= settings->capacity_bytes) return true;
  void* params = realloc(settings->params, bytes);
  if (params == nullptr) return false;
  settings->params = static_cast<uint8_t*>(params);
  memset(settings->params + settings->capacity_bytes, 0, bytes - settings->capacity_bytes);
  settings->capacity_bytes = bytes;
  return true;
}

// The size that a program sets may exceed the kernel's own by what fills the last 8 bytes.
size_t WholeWords(size_t bytes) { return (bytes + 7) / 8 * 8; }

CUresult JudgeFunction(CUfunction function, graph::KernelLayout* layout) {
  CUDA_RETURN_IF_ERROR(graph::CheckReady());
  return graph::DescribeKernel(function, layout);
}

CUresult JudgeFunction(CUfunction function) {
  graph::KernelLayout ignored;
  return JudgeFunction(function, &ignored);
}

// `change` returns false when there is no memory.
template <typename Change>
CUresult Set(CUfunction function, Change&& change) {
  const MutexLock lock(all.mutex);
  Settings* settings = MakeLocked(function);
  return settings != nullptr && change(settings) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Reads an attribute of the current device.
CUresult LimitOf(int attribute, int64_t otherwise, int64_t* limit) {
  CUdevice device;
  CUDA_RETURN_IF_ERROR(cuCtxGetDevice(&device));
  int value = 0;
  const CUresult known =
      cuDeviceGetAttribute(&value, static_cast<CUdevice_attribute>(attribute), device);
  *limit = known == CUDA_SUCCESS && value > 0 ? int64_t{value} : otherwise;
  return CUDA_SUCCESS;
}

CUresult JudgeBlock(const int (&block)[3]) {
  int64_t limit = 0;
  int64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    CUDA_RETURN_IF_ERROR(LimitOf(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + i, 1024, &limit));
    if (block[i] <= 0 || block[i] > limit) return CUDA_ERROR_INVALID_VALUE;
    threads *= block[i];
  }
  CUDA_RETURN_IF_ERROR(LimitOf(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024, &limit));
  return threads > limit ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult SetParam(CUfunction function, int offset, const void* value, size_t bytes) {
  CUDA_RETURN_IF_ERROR(JudgeFunction(function));
  if (offset < 0 || value == nullptr || bytes > kMaxParamBytes ||
      static_cast<size_t>(offset) > kMaxParamBytes - bytes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return Set(function, [&](Settings* settings) {
    if (!MakeRoom(settings, static_cast<size_t>(offset) + bytes)) return false;
    memcpy(settings->params + offset, value, bytes);
    return true;
  });
}

// The launch itself happens without the lock: it may ask for kernels that are being unloaded. Parameters
// that were not set are 0.
CUresult Launch(CUfunction function, int width, int height, CUstream stream) {
  graph::KernelLayout layout;
  CUDA_RETURN_IF_ERROR(JudgeFunction(function, &layout));
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  Settings settings = Fresh(function);
  // A copy, which another thread's settings do not change while it is launched.
  uint8_t* params = nullptr;
  size_t param_bytes = 0;
  {
    const MutexLock lock(all.mutex);
    if (const Settings* found = FindLocked(function); found != nullptr) settings = *found;
    param_bytes = settings.param_bytes > layout.bytes ? settings.param_bytes : layout.bytes;
    if (layout.known && settings.param_bytes > WholeWords(layout.bytes)) {
      return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    }
    if (param_bytes != 0) {
      params = static_cast<uint8_t*>(calloc(1, param_bytes));
      if (params == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
      if (settings.param_bytes != 0) memcpy(params, settings.params, settings.param_bytes);
    }
  }
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, params, CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &param_bytes, CU_LAUNCH_PARAM_END};
  const CUresult result = cuLaunchKernel(
      function, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, settings.block[0],
      settings.block[1], settings.block[2], settings.dynamic_shared_bytes, stream, nullptr, extra);
  free(params);
  return result;
}

}  // namespace

void ForgetStepwiseLaunch(const void* function) {
  if (all.count.load(std::memory_order_acquire) == 0) return;
  const MutexLock lock(all.mutex);
  for (size_t i = 0; i < all.settings.count(); ++i) {
    if (all.settings[i].function != function) continue;
    free(all.settings[i].params);
    all.settings.Remove(i);
    break;
  }
  all.count.store(all.settings.count(), std::memory_order_release);
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuFuncSetBlockShape(CUfunction function, int x, int y, int z) {
  CUDA_RETURN_IF_ERROR(JudgeFunction(function));
  CUDA_RETURN_IF_ERROR(JudgeBlock({x, y, z}));
  return Set(function, [&](Settings* settings) {
    settings->block[0] = static_cast<unsigned>(x);
    settings->block[1] = static_cast<unsigned>(y);
    settings->block[2] = static_cast<unsigned>(z);
    return true;
  });
}

CUresult cuFuncSetSharedSize(CUfunction function, unsigned bytes) {
  CUDA_RETURN_IF_ERROR(JudgeFunction(function));
  int limit = 0;
  CUDA_RETURN_IF_ERROR(
      cuFuncGetAttribute(&limit, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, function));
  if (limit < 0 || bytes > static_cast<unsigned>(limit)) return CUDA_ERROR_INVALID_VALUE;
  return Set(function, [&](Settings* settings) {
    settings->dynamic_shared_bytes = bytes;
    return true;
  });
}

CUresult cuParamSetSize(CUfunction function, unsigned bytes) {
  CUDA_RETURN_IF_ERROR(JudgeFunction(function));
  if (bytes > kMaxParamBytes) return CUDA_ERROR_INVALID_VALUE;
  return Set(function, [&](Settings* settings) {
    if (!MakeRoom(settings, bytes)) return false;
    settings->param_bytes = bytes;
    return true;
  });
}

CUresult cuParamSeti(CUfunction function, int offset, unsigned value) {
  return SetParam(function, offset, &value, sizeof(value));
}
CUresult cuParamSetf(CUfunction function, int offset, float value) {
  return SetParam(function, offset, &value, sizeof(value));
}
CUresult cuParamSetv(CUfunction function, int offset, void* value, unsigned bytes) {
  return SetParam(function, offset, value, bytes);
}

CUresult cuLaunch(CUfunction function) { return Launch(function, 1, 1, nullptr); }
CUresult cuLaunchGrid(CUfunction function, int width, int height) {
  return Launch(function, width, height, nullptr);
}
CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  return Launch(function, width, height, stream);
}

}  // extern "C"
