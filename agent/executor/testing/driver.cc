// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/testing/driver.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>

#include "agent/executor/testing/attributes.h"
#include "agent/executor/testing/graph_calls.h"
#include "agent/executor/testing/green.h"
#include "agent/executor/testing/program.h"
#include "agent/executor/testing/references.h"
#include "agent/executor/testing/share.h"
#include "agent/executor/testing/state.h"

namespace gpuloom::executor {

void* PinnedMemory() {
  static void* const kMemory = std::malloc(8u << 20);  // as much as the executor asks for
  return kMemory;
}

TestingState& S() {
  static auto* const kState = new TestingState;
  return *kState;
}

void NotePriority(int priority) {
  const MutexLock lock(S().mutex);
  S().priorities.push_back(priority);
}

CUresult Work(const std::string& what, CUstream stream) {
  const MutexLock lock(S().mutex);
  if (S().failure != CUDA_SUCCESS) return S().failure;
  S().calls.push_back(std::string(what) + " " + std::to_string(Number(stream)));
  auto& pending = S().stream_work[Number(stream)];
  pending = {S().held || !S().Done(pending), S().release, pending.program};
  return CUDA_SUCCESS;
}

namespace {

// Where reserved memory lies when no address was asked for.
constexpr CUdeviceptr kHidden = 0x4000'0000'0000;

void OnLinksThread(CUlinkState state) {
  const MutexLock lock(S().mutex);
  if (S().link_threads[state] != std::this_thread::get_id()) ++S().foreign_link_calls;
}

void TakeLong(std::string_view what) {
  MutexLock lock(S().mutex);
  if (S().held_call != what || S().held_calls == S().most_held_calls) return;
  ++S().held_calls;
  while (S().held_call == what) S().calls_changed.Wait(S().mutex);
  --S().held_calls;
}

void LetCallsGo() GPULOOM_REQUIRES(S().mutex) {
  S().held_call.clear();
  S().calls_changed.NotifyAll();
}

// A call that waits for the whole device on real hardware.
CUresult Synchronising(std::string what) {
  const MutexLock lock(S().mutex);
  S().calls.push_back(std::move(what));
  if (S().AnythingPending()) ++S().unquiet;
  return S().failure;
}

CUresult Instantiate() {
  MutexLock lock(S().mutex);
  if (S().loads_block && S().AnythingPending()) ++S().unquiet;
  return S().failure;
}

// Small enough that clearing it takes no time.
bool IsArray(const CUDA_ARRAY3D_DESCRIPTOR& descriptor) {
  constexpr size_t kMax = 1u << 14;
  return descriptor.Width <= kMax && descriptor.Height <= kMax && descriptor.Depth <= kMax &&
         descriptor.Width * (descriptor.Height + 1) * (descriptor.Depth + 1) <= 1u << 26;
}

void FillTable(Driver* d) {
  d->cuInit = [](unsigned) { return CUDA_SUCCESS; };
  d->cuDeviceGetCount = [](int* count) { return *count = 1, CUDA_SUCCESS; };
  d->cuDeviceGet = [](CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; };
  d->cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice) {
    return std::memset(uuid, 0, sizeof(*uuid)), CUDA_SUCCESS;
  };
  d->cuDevicePrimaryCtxRetain = [](CUcontext* context, CUdevice) {
    return *context = Make<CUcontext>(1), CUDA_SUCCESS;
  };
  d->cuCtxSetCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  d->cuCtxGetStreamPriorityRange = [](int* least, int* greatest) {
    return *least = 0, *greatest = -5, CUDA_SUCCESS;
  };
  d->cuGetErrorName = [](CUresult, const char** name) {
    return *name = "an error of the testing driver", CUDA_SUCCESS;
  };

  d->cuStreamCreateWithPriority = [](CUstream* stream, unsigned, int) {
    const MutexLock lock(S().mutex);
    return *stream = Make<CUstream>(++S().streams), S().failure;
  };
  d->cuEventCreate = [](CUevent* event, unsigned) {
    const MutexLock lock(S().mutex);
    return *event = Make<CUevent>(++S().events), S().failure;
  };
  d->cuEventRecord = [](CUevent event, CUstream stream) {
    const MutexLock lock(S().mutex);
    S().calls.push_back("record " + std::to_string(Number(event)) + " " +
                        std::to_string(Number(stream)));
    S().event_work[Number(event)] = S().stream_work[Number(stream)];
    return S().failure;
  };
  d->cuEventQuery = [](CUevent event) {
    const MutexLock lock(S().mutex);
    if (S().failure != CUDA_SUCCESS) return S().failure;
    return S().Done(S().event_work[Number(event)]) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  d->cuEventElapsedTime = [](float* milliseconds, CUevent, CUevent) {
    return *milliseconds = 1.5F, CUDA_SUCCESS;
  };
  d->cuStreamWaitEvent = [](CUstream stream, CUevent event, unsigned) {
    const MutexLock lock(S().mutex);
    S().calls.push_back("wait " + std::to_string(Number(stream)) + " " +
                        std::to_string(Number(event)));
    const auto& of_event = S().event_work[Number(event)];
    if (!S().Done(of_event)) S().stream_work[Number(stream)] = of_event;
    return S().failure;
  };

  d->cuLaunchKernel = [](CUfunction, unsigned grid, unsigned, unsigned, unsigned, unsigned,
                         unsigned, unsigned, CUstream stream, void**, void**) {
    return grid == 0 ? CUDA_ERROR_INVALID_VALUE : Work("launch", stream);
  };
  d->cuLaunchKernelEx = [](const CUlaunchConfig* config, CUfunction, void**, void**) {
    for (unsigned i = 0; i < config->numAttrs; ++i) {
      if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        NotePriority(config->attrs[i].value.priority);
      }
    }
    return config->gridDimX == 0
               ? CUDA_ERROR_INVALID_VALUE
               : Work("launch " + std::to_string(config->numAttrs), config->hStream);
  };
  d->cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, size_t, CUstream stream) {
    return Work("copy", stream);
  };
  d->cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, size_t, CUstream stream) {
    return Work("copy", stream);
  };
  d->cuMemcpyDtoDAsync_v2 = [](CUdeviceptr, CUdeviceptr, size_t, CUstream stream) {
    return Work("copy", stream);
  };
  d->cuMemcpyAsync = [](CUdeviceptr, CUdeviceptr, size_t, CUstream stream) {
    return Work("copy", stream);
  };
  d->cuMemsetD8Async = [](CUdeviceptr, unsigned char, size_t, CUstream stream) {
    return Work("fill", stream);
  };
  d->cuMemsetD16Async = [](CUdeviceptr, unsigned short, size_t, CUstream stream) {
    return Work("fill", stream);
  };
  d->cuMemsetD32Async = [](CUdeviceptr address, unsigned, size_t, CUstream stream) {
    return Work(address >= kHidden ? "clear" : "fill", stream);
  };

  d->cuMemAddressReserve = [](CUdeviceptr* address, size_t, size_t, CUdeviceptr wanted,
                              unsigned long long) {
    return *address = wanted != 0 ? wanted : kHidden, CUDA_SUCCESS;
  };
  d->cuMemAddressFree = [](CUdeviceptr, size_t) { return CUDA_SUCCESS; };
  d->cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle* handle, void*,
                                         CUmemAllocationHandleType) {
    const MutexLock lock(S().mutex);
    return *handle = ++S().objects, S().failure;
  };
  d->cuMemMap = [](CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long) {
    return CUDA_SUCCESS;
  };
  d->cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return CUDA_SUCCESS;
  };
  d->cuMemUnmap = [](CUdeviceptr, size_t) {
    TakeLong("unmap");
    const MutexLock lock(S().mutex);
    S().calls.push_back("unmap");
    return S().failure;
  };
  d->cuMemRelease = [](CUmemGenericAllocationHandle) { return CUDA_SUCCESS; };
  d->cuMemHostAlloc = [](void** memory, size_t size, unsigned) {
    return *memory = PinnedMemory(), size <= (8u << 20) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  };
  d->cuMemHostRegister_v2 = [](void*, size_t, unsigned) {
    TakeLong("register");
    return CUDA_SUCCESS;
  };
  d->cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* address, void* memory, unsigned) {
    return *address = reinterpret_cast<CUdeviceptr>(memory), CUDA_SUCCESS;
  };
  d->cuMemHostUnregister = [](void* memory) {
    return Synchronising("unregister " + std::to_string(reinterpret_cast<uintptr_t>(memory)));
  };

  d->cuMemcpy3DAsync_v2 = [](const CUDA_MEMCPY3D*, CUstream stream) {
    return Work("copy", stream);
  };
  d->cuMemsetD2D8Async = [](CUdeviceptr, size_t, unsigned char, size_t, size_t, CUstream stream) {
    return Work("fill", stream);
  };
  d->cuMemsetD2D16Async = [](CUdeviceptr, size_t, unsigned short, size_t, size_t, CUstream stream) {
    return Work("fill", stream);
  };
  d->cuMemsetD2D32Async = [](CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream stream) {
    return Work("fill", stream);
  };
  d->cuStreamSynchronize = [](CUstream) {
    const MutexLock lock(S().mutex);
    return S().failure;
  };
  d->cuCtxSynchronize = [] {
    const MutexLock lock(S().mutex);
    const std::string text = std::exchange(S().assert_text, {});
    const bool written = write(S().errors_fd, text.data(), text.size()) >= 0 || text.empty();
    return written ? S().failure : CUDA_ERROR_UNKNOWN;
  };
  d->cuStreamDestroy_v2 = [](CUstream stream) {
    const MutexLock lock(S().mutex);
    S().calls.push_back("destroy stream " + std::to_string(Number(stream)));
    return S().failure;
  };
  d->cuArray3DCreate_v2 = [](CUarray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor) {
    if (!IsArray(*descriptor)) return CUDA_ERROR_INVALID_VALUE;
    const MutexLock lock(S().mutex);
    S().calls.push_back("make array");
    return *array = Make<CUarray>(++S().objects), S().failure;
  };
  d->cuArrayDestroy = [](CUarray) { return Synchronising("destroy array"); };
  d->cuMipmappedArrayCreate = [](CUmipmappedArray* array, const CUDA_ARRAY3D_DESCRIPTOR* descriptor,
                                 unsigned) {
    if (!IsArray(*descriptor)) return CUDA_ERROR_INVALID_VALUE;
    const MutexLock lock(S().mutex);
    return *array = Make<CUmipmappedArray>(++S().objects), S().failure;
  };
  d->cuMipmappedArrayGetLevel = [](CUarray* level, CUmipmappedArray, unsigned which) {
    return *level = Make<CUarray>(which + 1), which < 16 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  d->cuMipmappedArrayDestroy = [](CUmipmappedArray) { return Synchronising("destroy array"); };
  d->cuTexObjectCreate = [](CUtexObject* texture, const CUDA_RESOURCE_DESC*,
                            const CUDA_TEXTURE_DESC*, const CUDA_RESOURCE_VIEW_DESC*) {
    const MutexLock lock(S().mutex);
    return *texture = ++S().objects, S().failure;
  };
  d->cuTexObjectDestroy = [](CUtexObject) {
    const MutexLock lock(S().mutex);
    S().calls.push_back("destroy texture");
    return S().failure;
  };
  d->cuSurfObjectCreate = [](CUsurfObject* surface, const CUDA_RESOURCE_DESC*) {
    const MutexLock lock(S().mutex);
    return *surface = ++S().objects, S().failure;
  };
  d->cuSurfObjectDestroy = [](CUsurfObject) {
    const MutexLock lock(S().mutex);
    S().calls.push_back("destroy surface");
    return S().failure;
  };

  d->cuCtxGetLimit = [](size_t* value, CUlimit) {
    const MutexLock lock(S().mutex);
    return *value = S().limit, CUDA_SUCCESS;
  };
  d->cuCtxSetLimit = [](CUlimit limit, size_t value) {
    const std::string call =
        "limit " + std::to_string(static_cast<int>(limit)) + " " + std::to_string(value);
    const CUresult result = Synchronising(call.c_str());
    const MutexLock lock(S().mutex);
    S().limit = value;
    return result;
  };
  // Links are made of 5000 bytes, whatever goes in, and say so.
  d->cuLinkCreate_v2 = [](unsigned count, CUjit_option* options, void** values,
                          CUlinkState* state) {
    for (unsigned i = 0; i < count; ++i) {
      if (options[i] == CU_JIT_INFO_LOG_BUFFER) strcpy(static_cast<char*>(values[i]), "5000 bytes");
      if (options[i] == CU_JIT_WALL_TIME)
        values[i] = reinterpret_cast<void*>(uintptr_t{0x40200000});
      if (options[i] == CU_JIT_THREADS_PER_BLOCK)
        values[i] = reinterpret_cast<void*>(uintptr_t{96});
    }
    const MutexLock lock(S().mutex);
    *state = Make<CUlinkState>(++S().objects);
    S().link_threads[*state] = std::this_thread::get_id();
    return S().failure;
  };
  d->cuLinkAddData_v2 = [](CUlinkState state, CUjitInputType, void*, size_t, const char*, unsigned,
                           CUjit_option*, void**) { return OnLinksThread(state), CUDA_SUCCESS; };
  d->cuLinkComplete = [](CUlinkState state, void** image, size_t* size) {
    OnLinksThread(state);
    TakeLong("link");
    static char linked[5000] = ".version 8.0";
    *image = linked;
    return *size = sizeof(linked), CUDA_SUCCESS;
  };
  d->cuLinkDestroy = [](CUlinkState state) {
    OnLinksThread(state);
    const MutexLock lock(S().mutex);
    S().calls.push_back("unlink");
    return CUDA_SUCCESS;
  };

  // Of compute capability 9.0.
  d->cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? 0 : 9;
    return CUDA_SUCCESS;
  };
  d->cuLibraryLoadData = [](CUlibrary* library, const void* image, CUjit_option*, void**, unsigned,
                            CUlibraryOption*, void**, unsigned) {
    const bool is_cubin = std::memcmp(image,
                                      "\x7f"
                                      "ELF",
                                      4) == 0;
    if (is_cubin) TakeLong("load cubin");
    const MutexLock lock(S().mutex);
    if (is_cubin && S().refuses_cubins) {
      S().calls.push_back("refuse");
      return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    S().calls.push_back(is_cubin ? "load cubin" : "load");
    return *library = Make<CUlibrary>(++S().objects), S().failure;
  };
  d->cuLibraryUnload = [](CUlibrary) { return Synchronising("unload"); };
  d->cuLibraryGetKernelCount = [](unsigned* count, CUlibrary) { return *count = 1, CUDA_SUCCESS; };
  d->cuLibraryEnumerateKernels = [](CUkernel* kernels, unsigned count, CUlibrary) {
    const MutexLock lock(S().mutex);
    for (unsigned i = 0; i < count; ++i) kernels[i] = Make<CUkernel>(++S().objects);
    return CUDA_SUCCESS;
  };
  d->cuKernelGetName = [](const char** name, CUkernel) { return *name = "found", CUDA_SUCCESS; };
  d->cuLibraryGetKernel = [](CUkernel* kernel, CUlibrary, const char* name) {
    TakeLong("look up");
    const MutexLock lock(S().mutex);
    if (std::strcmp(name, "missing") == 0) return CUDA_ERROR_NOT_FOUND;
    if (std::strcmp(name, "large") == 0) S().large_kernels.insert(S().objects + 1);
    return *kernel = Make<CUkernel>(++S().objects), CUDA_SUCCESS;
  };
  d->cuKernelGetFunction = [](CUfunction* function, CUkernel kernel) {
    return *function = Make<CUfunction>(Number(kernel)), Instantiate();
  };
  d->cuFuncLoad = [](CUfunction) { return CUDA_SUCCESS; };
  // Two parameters: a pointer and an int. Kernels named "large" have one, of 32,000 bytes.
  d->cuKernelGetParamInfo = [](CUkernel kernel, size_t index, size_t* offset, size_t* size) {
    const MutexLock lock(S().mutex);
    if (S().large_kernels.count(Number(kernel)) != 0) {
      *offset = 0;
      *size = 32'000;
      return index == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    *offset = index * 8;
    *size = index == 0 ? 8 : 4;
    return index < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  d->cuKernelSetAttribute = [](CUfunction_attribute attribute, int value, CUkernel, CUdevice) {
    TakeLong("set");
    // As on an H200.
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value > 227 * 1024) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const MutexLock lock(S().mutex);
    S().calls.push_back("set " + std::to_string(static_cast<int>(attribute)) + " " +
                        std::to_string(value));
    return CUDA_SUCCESS;
  };
  d->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags = [](int* blocks, CUfunction, int, size_t,
                                                               unsigned) {
    TakeLong("occupancy");
    return *blocks = 8, CUDA_SUCCESS;
  };
  d->cuOccupancyMaxActiveClusters = [](int* clusters, CUfunction, const CUlaunchConfig*) {
    return *clusters = 16, CUDA_SUCCESS;
  };
  d->cuOccupancyMaxPotentialClusterSize = [](int* size, CUfunction, const CUlaunchConfig*) {
    return *size = 8, CUDA_SUCCESS;
  };
  d->cuOccupancyAvailableDynamicSMemPerBlock = [](size_t* bytes, CUfunction, int, int) {
    return *bytes = 4096, CUDA_SUCCESS;
  };
  d->cuLibraryGetManaged = [](CUdeviceptr* address, size_t* size, CUlibrary, const char*) {
    *address = 0x7100'0000'0000;
    *size = 256;
    return Synchronising("managed");
  };
  d->cuMemcpyDtoH_v2 = [](void*, CUdeviceptr, size_t) { return Synchronising("read"); };
  d->cuLibraryGetGlobal = [](CUdeviceptr* address, size_t* size, CUlibrary library, const char*) {
    *address = 0x7000'0000'0000 + Number(library) * 4096;
    *size = 256;
    return Instantiate();
  };
}

template <typename T>
void Set(T TestingState::*field, T value) {
  const MutexLock lock(S().mutex);
  S().*field = value;
}

}  // namespace

CUresult TestingSynchronising(const char* what) { return Synchronising(what); }
void TestingTakeLong(const char* what) { TakeLong(what); }

CUresult TestingNewStream(CUstream* stream, const char* kind, uint64_t of) {
  const MutexLock lock(S().mutex);
  *stream = Make<CUstream>(++S().streams);
  S().calls.push_back(std::string(kind) + " " + std::to_string(Number(*stream)) + " of " +
                      std::to_string(of));
  return S().failure;
}

const Driver& TestingDriver::Reset() {
  static const Driver kDriver = [] {
    Driver driver;
    FillTable(&driver);
    FillGraphTable(&driver);
    FillGreenTable(&driver);
    FillAttributeTable(&driver);
    FillReferenceTable(&driver);
    FillShareTable(&driver);
    return driver;
  }();
  ForgetReferences();
  ForgetShares();
  TestingDriver::SetLocalBytes(0);
  const MutexLock lock(S().mutex);
  S().held = false;
  ++S().release;
  S().loads_block = S().refuses_cubins = false;
  S().failure = S().graph_failure = CUDA_SUCCESS;
  S().assert_text.clear();
  S().streams = S().events = 0;
  S().stream_work.clear();
  S().event_work.clear();
  S().graph_operations.clear();
  S().graph_of.clear();
  S().conditional.clear();
  S().calls.clear();
  S().unquiet = 0;
  S().limit = 1024;
  S().link_threads.clear();
  S().foreign_link_calls = 0;
  LetCallsGo();
  return kDriver;
}

void TestingDriver::Hold() {
  const MutexLock lock(S().mutex);
  S().held = true;
}

void TestingDriver::Release() {
  const MutexLock lock(S().mutex);
  S().held = false;
  ++S().release;
  LetCallsGo();
}

void TestingDriver::HoldCalls(const char* what, int most) {
  const MutexLock lock(S().mutex);
  S().held_call = what;
  S().most_held_calls = most;
}

void TestingDriver::ReleaseCalls() {
  const MutexLock lock(S().mutex);
  LetCallsGo();
}

int TestingDriver::held_calls() {
  const MutexLock lock(S().mutex);
  return S().held_calls;
}

void TestingDriver::Fail(CUresult result) { Set(&TestingState::failure, result); }
void TestingDriver::FailAssert(int errors_fd, const char* text) {
  const MutexLock lock(S().mutex);
  S().errors_fd = errors_fd;
  S().assert_text = text;
  S().failure = CUDA_ERROR_ASSERT;
}
void TestingDriver::RefuseGraphs(CUresult result) { Set(&TestingState::graph_failure, result); }
void TestingDriver::RefuseCubins() { Set(&TestingState::refuses_cubins, true); }
void TestingDriver::SetLoadsBlock(bool block) { Set(&TestingState::loads_block, block); }

std::vector<int> TestingDriver::TakePriorities() {
  const MutexLock lock(S().mutex);
  return std::move(S().priorities);
}

std::vector<std::string> TestingDriver::TakeCalls() {
  const MutexLock lock(S().mutex);
  return std::move(S().calls);
}

bool TestingDriver::WasCalled(std::string_view begin) {
  const MutexLock lock(S().mutex);
  return std::any_of(S().calls.begin(), S().calls.end(),
                     [begin](const std::string& call) { return call.starts_with(begin); });
}

int TestingDriver::live_graphs() { return S().live_graphs; }

int TestingDriver::foreign_link_calls() {
  const MutexLock lock(S().mutex);
  return S().foreign_link_calls;
}

int TestingDriver::unquiet_calls() {
  const MutexLock lock(S().mutex);
  return S().unquiet;
}

}  // namespace gpuloom::executor
