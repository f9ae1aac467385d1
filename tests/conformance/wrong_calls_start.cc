// SPDX-License-Identifier: Apache-2.0
// Before cuInit, about devices, and without a context.
#include <cstring>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {

void WrongBeforeInit(Calls& c, const Place&) {
  const Driver& cu = Cu();
  int number = 0;
  unsigned flags = 0;
  size_t size_bytes = 0, size_too = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUgraph graph = nullptr;
  CUlibrary library = nullptr;
  CUmemoryPool pool = nullptr;
  CUmemPoolProps pool_props{};
  CUmemAllocationProp prop{};
  CUmemGenericAllocationHandle handle = 0;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUdriverProcAddressQueryResult status;
  void* pointer = nullptr;
  const void* table = nullptr;
  const char* text = nullptr;
  char name[64];
  CUuuid uuid{};
  c("cuDriverGetVersion without output", [&] { return cu.cuDriverGetVersion(nullptr); });
  c("cuGetErrorName of no error",
    [&] { return cu.cuGetErrorName(static_cast<CUresult>(12345), &text); });
  c("cuGetErrorString of no error",
    [&] { return cu.cuGetErrorString(static_cast<CUresult>(-7), &text); });
  c("cuGetErrorName without output", [&] { return cu.cuGetErrorName(CUDA_SUCCESS, nullptr); });
  c("cuGetProcAddress of an unknown name",
    [&] { return cu.cuGetProcAddress_v2("cuNoSuchFunction", &pointer, 13000, 0, &status); });
  c("cuGetProcAddress of an unknown name, no status",
    [&] { return cu.cuGetProcAddress_v2("cuNoSuchFunction", &pointer, 13000, 0, nullptr); });
  c("cuGetProcAddress without output",
    [&] { return cu.cuGetProcAddress_v2("cuInit", nullptr, 13000, 0, &status); });
  c("cuGetProcAddress without a name",
    [&] { return cu.cuGetProcAddress_v2(nullptr, &pointer, 13000, 0, &status); });
  c("cuGetProcAddress of a version too old",
    [&] { return cu.cuGetProcAddress_v2("cuMemCreate", &pointer, 9000, 0, &status); });
  c("cuGetProcAddress with unknown flags",
    [&] { return cu.cuGetProcAddress_v2("cuInit", &pointer, 13000, 1u << 20, &status); });
  c("cuGetProcAddress with both stream flags", [&] {
    return cu.cuGetProcAddress_v2(
        "cuMemcpyHtoD", &pointer, 13000,
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status);
  });
  c("cuGetExportTable of an unknown id", [&] {
    std::memset(&uuid, 0x5a, sizeof(uuid));
    return cu.cuGetExportTable(&table, &uuid);
  });
  c("cuDeviceGetCount", [&] { return cu.cuDeviceGetCount(&number); });
  c("cuDeviceGetCount without output", [&] { return cu.cuDeviceGetCount(nullptr); });
  c("cuDeviceGet", [&] { return cu.cuDeviceGet(&device, 0); });
  c("cuDeviceGetName", [&] { return cu.cuDeviceGetName(name, sizeof(name), 0); });
  c("cuDeviceTotalMem", [&] { return cu.cuDeviceTotalMem_v2(&size_bytes, 0); });
  c("cuDeviceGetAttribute",
    [&] { return cu.cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0); });
  c("cuDeviceGetUuid", [&] { return cu.cuDeviceGetUuid_v2(&uuid, 0); });
  c("cuDevicePrimaryCtxRetain", [&] { return cu.cuDevicePrimaryCtxRetain(&context, 0); });
  c("cuDevicePrimaryCtxGetState",
    [&] { return cu.cuDevicePrimaryCtxGetState(0, &flags, &number); });
  c("cuCtxGetCurrent", [&] { return cu.cuCtxGetCurrent(&context); });
  c("cuCtxSetCurrent of none", [&] { return cu.cuCtxSetCurrent(nullptr); });
  c("cuCtxSynchronize", [&] { return cu.cuCtxSynchronize(); });
  c("cuMemAlloc", [&] { return cu.cuMemAlloc_v2(&memory, 4); });
  c("cuMemFree of nothing", [&] { return cu.cuMemFree_v2(0); });
  c("cuMemGetInfo", [&] { return cu.cuMemGetInfo_v2(&size_bytes, &size_too); });
  c("cuMemHostAlloc", [&] { return cu.cuMemHostAlloc(&pointer, 4, 0); });
  c("cuMemFreeHost of nothing", [&] { return cu.cuMemFreeHost(nullptr); });
  c("cuPointerGetAttribute",
    [&] { return cu.cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1000); });
  c("cuModuleLoadData", [&] { return cu.cuModuleLoadData(&module, kKernels); });
  c("cuModuleGetLoadingMode", [&] {
    CUmoduleLoadingMode loading;
    return cu.cuModuleGetLoadingMode(&loading);
  });
  c("cuLibraryLoadData", [&] {
    return cu.cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0);
  });
  c("cuStreamCreate", [&] { return cu.cuStreamCreate(&stream, 0); });
  c("cuStreamSynchronize of the default stream", [&] { return cu.cuStreamSynchronize(nullptr); });
  c("cuEventCreate", [&] { return cu.cuEventCreate(&event, 0); });
  c("cuGraphCreate", [&] { return cu.cuGraphCreate(&graph, 0); });
  c("cuThreadExchangeStreamCaptureMode",
    [&] { return cu.cuThreadExchangeStreamCaptureMode(&mode); });
  c("cuMemPoolCreate", [&] { return cu.cuMemPoolCreate(&pool, &pool_props); });
  c("cuMemCreate", [&] { return cu.cuMemCreate(&handle, 2 << 20, &prop, 0); });
  c("cuMemAddressReserve", [&] { return cu.cuMemAddressReserve(&memory, 2 << 20, 0, 0, 0); });
  c("cuInit with flags", [&] { return cu.cuInit(1); });
  c("cuInit with all flags", [&] { return cu.cuInit(~0u); });
  c("cuDeviceGetCount after a wrong cuInit", [&] { return cu.cuDeviceGetCount(&number); });
}

void WrongDevices(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  constexpr CUdevice kNone = 1000;
  int number = 0;
  unsigned flags = 0;
  size_t size_bytes = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUmemoryPool pool = nullptr;
  CUuuid uuid{};
  char text[64];
  c("cuDeviceGetCount without output", [&] { return cu.cuDeviceGetCount(nullptr); });
  c("cuDeviceGet without output", [&] { return cu.cuDeviceGet(nullptr, 0); });
  c("cuDeviceGet of -1", [&] { return cu.cuDeviceGet(&device, -1); });
  c("cuDeviceGet of 1000", [&] { return cu.cuDeviceGet(&device, kNone); });
  c("cuDeviceGetName without output", [&] { return cu.cuDeviceGetName(nullptr, 64, at.device); });
  c("cuDeviceGetName of length 0", [&] { return cu.cuDeviceGetName(text, 0, at.device); });
  c("cuDeviceGetName of a negative length",
    [&] { return cu.cuDeviceGetName(text, -1, at.device); });
  c("cuDeviceGetName of length 1", [&] { return cu.cuDeviceGetName(text, 1, at.device); });
  c("cuDeviceGetName of no device", [&] { return cu.cuDeviceGetName(text, 64, kNone); });
  c("cuDeviceTotalMem without output", [&] { return cu.cuDeviceTotalMem_v2(nullptr, at.device); });
  c("cuDeviceTotalMem of no device", [&] { return cu.cuDeviceTotalMem_v2(&size_bytes, kNone); });
  c("cuDeviceGetAttribute without output",
    [&] { return cu.cuDeviceGetAttribute(nullptr, CU_DEVICE_ATTRIBUTE_WARP_SIZE, at.device); });
  c("cuDeviceGetAttribute 0", [&] {
    return cu.cuDeviceGetAttribute(&number, static_cast<CUdevice_attribute>(0), at.device);
  });
  c("cuDeviceGetAttribute -1", [&] {
    return cu.cuDeviceGetAttribute(&number, static_cast<CUdevice_attribute>(-1), at.device);
  });
  c("cuDeviceGetAttribute 100000", [&] {
    return cu.cuDeviceGetAttribute(&number, static_cast<CUdevice_attribute>(100000), at.device);
  });
  c("cuDeviceGetAttribute of no device",
    [&] { return cu.cuDeviceGetAttribute(&number, CU_DEVICE_ATTRIBUTE_WARP_SIZE, kNone); });
  c("cuDeviceGetUuid without output", [&] { return cu.cuDeviceGetUuid_v2(nullptr, at.device); });
  c("cuDeviceGetUuid of no device", [&] { return cu.cuDeviceGetUuid_v2(&uuid, kNone); });
  c("cuDeviceGetLuid", [&] { return cu.cuDeviceGetLuid(text, &flags, at.device); });
  c("cuDeviceGetPCIBusId without output",
    [&] { return cu.cuDeviceGetPCIBusId(nullptr, 64, at.device); });
  c("cuDeviceGetPCIBusId of length 4", [&] { return cu.cuDeviceGetPCIBusId(text, 4, at.device); });
  c("cuDeviceGetPCIBusId of no device", [&] { return cu.cuDeviceGetPCIBusId(text, 64, kNone); });
  c("cuDeviceGetByPCIBusId without output",
    [&] { return cu.cuDeviceGetByPCIBusId(nullptr, "0000:00:00.0"); });
  c("cuDeviceGetByPCIBusId without a name",
    [&] { return cu.cuDeviceGetByPCIBusId(&device, nullptr); });
  c("cuDeviceGetByPCIBusId of garbage", [&] { return cu.cuDeviceGetByPCIBusId(&device, "gpu"); });
  c("cuDeviceGetByPCIBusId of nothing there",
    [&] { return cu.cuDeviceGetByPCIBusId(&device, "fffe:ee:1d.3"); });
  c("cuDeviceComputeCapability without output",
    [&] { return cu.cuDeviceComputeCapability(nullptr, nullptr, at.device); });
  c("cuDeviceComputeCapability of no device",
    [&] { return cu.cuDeviceComputeCapability(&number, &number, kNone); });
  c("cuDeviceGetProperties without output",
    [&] { return cu.cuDeviceGetProperties(nullptr, at.device); });
  c("cuDeviceCanAccessPeer without output",
    [&] { return cu.cuDeviceCanAccessPeer(nullptr, at.device, at.device); });
  c("cuDeviceCanAccessPeer of itself",
    [&] { return cu.cuDeviceCanAccessPeer(&number, at.device, at.device); });
  c("cuDeviceCanAccessPeer of no device",
    [&] { return cu.cuDeviceCanAccessPeer(&number, at.device, kNone); });
  c("cuDeviceGetP2PAttribute of itself", [&] {
    return cu.cuDeviceGetP2PAttribute(&number, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, at.device,
                                      at.device);
  });
  c("cuDeviceGetP2PAttribute of no device", [&] {
    return cu.cuDeviceGetP2PAttribute(&number, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, at.device,
                                      kNone);
  });
  c("cuDeviceGetDefaultMemPool without output",
    [&] { return cu.cuDeviceGetDefaultMemPool(nullptr, at.device); });
  c("cuDeviceGetDefaultMemPool of no device",
    [&] { return cu.cuDeviceGetDefaultMemPool(&pool, kNone); });
  c("cuDeviceGetMemPool without output", [&] { return cu.cuDeviceGetMemPool(nullptr, at.device); });
  c("cuDeviceSetMemPool of none", [&] { return cu.cuDeviceSetMemPool(at.device, nullptr); });
  size_t width = 0;
  c("cuDeviceGetTexture1DLinearMaxWidth without output", [&] {
    return cu.cuDeviceGetTexture1DLinearMaxWidth(nullptr, CU_AD_FORMAT_FLOAT, 1, at.device);
  });
  c("cuDeviceGetTexture1DLinearMaxWidth of 3 channels", [&] {
    return cu.cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 3, at.device);
  });
  c("cuDeviceGetTexture1DLinearMaxWidth of an unknown format", [&] {
    return cu.cuDeviceGetTexture1DLinearMaxWidth(&width, static_cast<CUarray_format>(99), 1,
                                                 at.device);
  });
  c("cuDeviceGetTexture1DLinearMaxWidth of compressed blocks", [&] {
    return cu.cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_BC1_UNORM, 4, at.device);
  });
  c("cuDeviceGetTexture1DLinearMaxWidth of no device",
    [&] { return cu.cuDeviceGetTexture1DLinearMaxWidth(&width, CU_AD_FORMAT_FLOAT, 1, kNone); });
  unsigned capability = 0;
  CUatomicOperation operation = CU_ATOMIC_OPERATION_CAS;
  CUatomicOperation unknown = CU_ATOMIC_OPERATION_MAX;
  c("cuDeviceGetHostAtomicCapabilities of none",
    [&] { return cu.cuDeviceGetHostAtomicCapabilities(&capability, &operation, 0, at.device); });
  c("cuDeviceGetHostAtomicCapabilities without output",
    [&] { return cu.cuDeviceGetHostAtomicCapabilities(nullptr, &operation, 1, at.device); });
  c("cuDeviceGetHostAtomicCapabilities without operations",
    [&] { return cu.cuDeviceGetHostAtomicCapabilities(&capability, nullptr, 1, at.device); });
  c("cuDeviceGetHostAtomicCapabilities of an unknown operation",
    [&] { return cu.cuDeviceGetHostAtomicCapabilities(&capability, &unknown, 1, at.device); });
  c("cuDeviceGetHostAtomicCapabilities of no device",
    [&] { return cu.cuDeviceGetHostAtomicCapabilities(&capability, &operation, 1, kNone); });
  c("cuDeviceGetHostAtomicCapabilities of nothing at all",
    [&] { return cu.cuDeviceGetHostAtomicCapabilities(nullptr, nullptr, 0, kNone); });
  c("cuDeviceGetP2PAtomicCapabilities of one device", [&] {
    return cu.cuDeviceGetP2PAtomicCapabilities(&capability, &operation, 1, at.device, at.device);
  });
  c("cuDeviceGetP2PAtomicCapabilities of no device", [&] {
    return cu.cuDeviceGetP2PAtomicCapabilities(&capability, &operation, 1, at.device, kNone);
  });
  c("cuDeviceGetP2PAtomicCapabilities without output", [&] {
    return cu.cuDeviceGetP2PAtomicCapabilities(nullptr, &operation, 1, at.device, at.device);
  });
  c("cuDeviceGetExecAffinitySupport of an unknown kind", [&] {
    return cu.cuDeviceGetExecAffinitySupport(&number, static_cast<CUexecAffinityType>(77),
                                             at.device);
  });
  c("cuDeviceGetExecAffinitySupport without output", [&] {
    return cu.cuDeviceGetExecAffinitySupport(nullptr, CU_EXEC_AFFINITY_TYPE_SM_COUNT, at.device);
  });
  c("cuDeviceGetGraphMemAttribute unknown", [&] {
    uint64_t value = 0;
    return cu.cuDeviceGetGraphMemAttribute(at.device, static_cast<CUgraphMem_attribute>(99),
                                           &value);
  });
  c("cuDeviceGraphMemTrim of no device", [&] { return cu.cuDeviceGraphMemTrim(kNone); });
  c("cuDevicePrimaryCtxGetState without flags",
    [&] { return cu.cuDevicePrimaryCtxGetState(at.device, nullptr, &number); });
  c("cuDevicePrimaryCtxGetState without state",
    [&] { return cu.cuDevicePrimaryCtxGetState(at.device, &flags, nullptr); });
  c("cuDevicePrimaryCtxGetState of no device",
    [&] { return cu.cuDevicePrimaryCtxGetState(kNone, &flags, &number); });
  c("cuDevicePrimaryCtxSetFlags unknown",
    [&] { return cu.cuDevicePrimaryCtxSetFlags_v2(at.device, 0x8000); });
  c("cuDevicePrimaryCtxSetFlags of two schedules", [&] {
    return cu.cuDevicePrimaryCtxSetFlags_v2(at.device, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD);
  });
  c("cuDevicePrimaryCtxSetFlags of no device",
    [&] { return cu.cuDevicePrimaryCtxSetFlags_v2(kNone, 0); });
  c("cuDevicePrimaryCtxRelease before a retain",
    [&] { return cu.cuDevicePrimaryCtxRelease_v2(at.device); });
  c("cuDevicePrimaryCtxRelease of no device",
    [&] { return cu.cuDevicePrimaryCtxRelease_v2(kNone); });
  c("cuDevicePrimaryCtxReset before a retain",
    [&] { return cu.cuDevicePrimaryCtxReset_v2(at.device); });
  c("cuDevicePrimaryCtxReset of no device", [&] { return cu.cuDevicePrimaryCtxReset_v2(kNone); });
  c("cuDevicePrimaryCtxRetain without output",
    [&] { return cu.cuDevicePrimaryCtxRetain(nullptr, at.device); });
  c("cuDevicePrimaryCtxRetain of no device",
    [&] { return cu.cuDevicePrimaryCtxRetain(&context, kNone); });
  c("cuCtxCreate of no device", [&] { return cu.cuCtxCreate_v2(&context, 0, kNone); });
  c("cuCtxCreate without output", [&] { return cu.cuCtxCreate_v2(nullptr, 0, at.device); });
  c("cuCtxCreate with unknown flags",
    [&] { return cu.cuCtxCreate_v2(&context, 0x4000'0000, at.device); });
}

void WrongWithoutContext(Calls& c, const Place&) {
  const Driver& cu = Cu();
  int number = 0;
  unsigned flags = 0, version = 0;
  unsigned long long id = 0;
  size_t size_bytes = 0, size_too = 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  CUmodule module = nullptr;
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUfunc_cache cache;
  CUmemoryPool pool = nullptr;
  CUstreamCaptureStatus capture;
  void* pointer = nullptr;
  char host[16] = {};
  c("cuCtxGetDevice", [&] { return cu.cuCtxGetDevice(&device); });
  c("cuCtxGetFlags", [&] { return cu.cuCtxGetFlags(&flags); });
  c("cuCtxGetId of none", [&] { return cu.cuCtxGetId(nullptr, &id); });
  c("cuCtxGetApiVersion of none", [&] { return cu.cuCtxGetApiVersion(nullptr, &version); });
  c("cuCtxGetLimit", [&] { return cu.cuCtxGetLimit(&size_bytes, CU_LIMIT_STACK_SIZE); });
  c("cuCtxSetLimit", [&] { return cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024); });
  c("cuCtxGetCacheConfig", [&] { return cu.cuCtxGetCacheConfig(&cache); });
  c("cuCtxGetStreamPriorityRange",
    [&] { return cu.cuCtxGetStreamPriorityRange(&number, &number); });
  c("cuCtxSynchronize", [&] { return cu.cuCtxSynchronize(); });
  c("cuCtxPopCurrent", [&] { return cu.cuCtxPopCurrent_v2(&context); });
  c("cuCtxPushCurrent of none", [&] { return cu.cuCtxPushCurrent_v2(nullptr); });
  c("cuCtxSetCurrent of none", [&] { return cu.cuCtxSetCurrent(nullptr); });
  c("cuCtxDestroy of none", [&] { return cu.cuCtxDestroy_v2(nullptr); });
  c("cuCtxGetCurrent without output", [&] { return cu.cuCtxGetCurrent(nullptr); });
  c("cuCtxAttach", [&] { return cu.cuCtxAttach(&context, 0); });
  c("cuCtxDetach of none", [&] { return cu.cuCtxDetach(nullptr); });
  c("cuMemAlloc", [&] { return cu.cuMemAlloc_v2(&memory, 4); });
  c("cuMemAlloc of nothing without output", [&] { return cu.cuMemAlloc_v2(nullptr, 0); });
  c("cuMemAllocManaged", [&] { return cu.cuMemAllocManaged(&memory, 4, CU_MEM_ATTACH_GLOBAL); });
  c("cuMemAllocPitch", [&] { return cu.cuMemAllocPitch_v2(&memory, &size_bytes, 64, 4, 4); });
  c("cuMemAllocAsync", [&] { return cu.cuMemAllocAsync(&memory, 4, nullptr); });
  c("cuMemFree of nothing", [&] { return cu.cuMemFree_v2(0); });
  c("cuMemFree of garbage", [&] { return cu.cuMemFree_v2(0x1234); });
  c("cuMemGetInfo", [&] { return cu.cuMemGetInfo_v2(&size_bytes, &size_too); });
  c("cuMemGetAddressRange",
    [&] { return cu.cuMemGetAddressRange_v2(&memory, &size_bytes, 0x1000); });
  c("cuMemHostAlloc", [&] { return cu.cuMemHostAlloc(&pointer, 4, 0); });
  c("cuMemFreeHost of nothing", [&] { return cu.cuMemFreeHost(nullptr); });
  c("cuMemHostRegister", [&] { return cu.cuMemHostRegister_v2(host, sizeof(host), 0); });
  c("cuMemsetD8", [&] { return cu.cuMemsetD8_v2(0x1000, 0, 4); });
  c("cuMemcpyHtoD", [&] { return cu.cuMemcpyHtoD_v2(0x1000, host, 4); });
  c("cuMemcpyDtoH", [&] { return cu.cuMemcpyDtoH_v2(host, 0x1000, 4); });
  c("cuMemcpy of nothing", [&] { return cu.cuMemcpy(0, 0, 0); });
  c("cuModuleLoadData", [&] { return cu.cuModuleLoadData(&module, kKernels); });
  c("cuModuleLoadData without an image", [&] { return cu.cuModuleLoadData(&module, nullptr); });
  c("cuModuleUnload of none", [&] { return cu.cuModuleUnload(nullptr); });
  c("cuStreamCreate", [&] { return cu.cuStreamCreate(&stream, 0); });
  c("cuStreamCreateWithPriority", [&] { return cu.cuStreamCreateWithPriority(&stream, 0, 0); });
  c("cuStreamSynchronize of the default stream", [&] { return cu.cuStreamSynchronize(nullptr); });
  c("cuStreamQuery of the default stream", [&] { return cu.cuStreamQuery(nullptr); });
  c("cuStreamQuery of the thread's stream", [&] { return cu.cuStreamQuery(CU_STREAM_PER_THREAD); });
  c("cuStreamIsCapturing of the default stream",
    [&] { return cu.cuStreamIsCapturing(nullptr, &capture); });
  c("cuEventCreate", [&] { return cu.cuEventCreate(&event, 0); });
  c("cuEventRecord of none", [&] { return cu.cuEventRecord(nullptr, nullptr); });
  c("cuLaunchKernel of none",
    [&] { return cu.cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); });
  c("cuLaunchHostFunc of none", [&] { return cu.cuLaunchHostFunc(nullptr, nullptr, nullptr); });
  c("cuPointerGetAttribute of garbage",
    [&] { return cu.cuPointerGetAttribute(&number, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1234); });
  c("cuMemPoolCreate without properties", [&] { return cu.cuMemPoolCreate(&pool, nullptr); });
  c("cuGraphLaunch of none", [&] { return cu.cuGraphLaunch(nullptr, nullptr); });
  c("cuStreamWriteValue32", [&] { return cu.cuStreamWriteValue32_v2(nullptr, 0x1000, 1, 0); });
}

}  // namespace gpuloom::conformance
