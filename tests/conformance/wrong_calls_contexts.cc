// SPDX-License-Identifier: Apache-2.0
// Contexts, current and not.
#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {

void WrongContexts(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  int number = 0;
  unsigned flags = 0, version = 0;
  size_t size_bytes = 0;
  CUcontext context = nullptr;
  CUexecAffinityParam affinity;
  CUdevice device = 0;
  c("cuCtxGetCurrent without output", [&] { return cu.cuCtxGetCurrent(nullptr); });
  c("cuCtxGetDevice without output", [&] { return cu.cuCtxGetDevice(nullptr); });
  c("cuCtxGetFlags without output", [&] { return cu.cuCtxGetFlags(nullptr); });
  c("cuCtxGetId without output", [&] { return cu.cuCtxGetId(at.context, nullptr); });
  c("cuCtxGetApiVersion without output",
    [&] { return cu.cuCtxGetApiVersion(at.context, nullptr); });
  c("cuCtxGetApiVersion of the current one",
    [&] { return cu.cuCtxGetApiVersion(nullptr, &version); });
  c("cuCtxGetLimit without output", [&] { return cu.cuCtxGetLimit(nullptr, CU_LIMIT_STACK_SIZE); });
  c("cuCtxGetLimit unknown",
    [&] { return cu.cuCtxGetLimit(&size_bytes, static_cast<CUlimit>(77)); });
  c("cuCtxSetLimit unknown", [&] { return cu.cuCtxSetLimit(static_cast<CUlimit>(77), 1); });
  c("cuCtxSetLimit of a stack of 1 GiB",
    [&] { return cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1 << 30); });
  c("cuCtxSetLimit of the shared memory size",
    [&] { return cu.cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1); });
  c("cuCtxGetLimit of the shared memory size",
    [&] { return cu.cuCtxGetLimit(&size_bytes, CU_LIMIT_SHMEM_SIZE); });
  c("cuCtxSetLimit of an L2 fetch of 1000",
    [&] { return cu.cuCtxSetLimit(CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 1000); });
  c("cuCtxGetCacheConfig without output", [&] { return cu.cuCtxGetCacheConfig(nullptr); });
  c("cuCtxSetCacheConfig unknown",
    [&] { return cu.cuCtxSetCacheConfig(static_cast<CUfunc_cache>(9)); });
  c("cuCtxGetSharedMemConfig without output", [&] { return cu.cuCtxGetSharedMemConfig(nullptr); });
  c("cuCtxSetSharedMemConfig unknown",
    [&] { return cu.cuCtxSetSharedMemConfig(static_cast<CUsharedconfig>(9)); });
  c("cuCtxGetStreamPriorityRange without output",
    [&] { return cu.cuCtxGetStreamPriorityRange(nullptr, nullptr); });
  c("cuCtxGetExecAffinity without output",
    [&] { return cu.cuCtxGetExecAffinity(nullptr, CU_EXEC_AFFINITY_TYPE_SM_COUNT); });
  c("cuCtxGetExecAffinity unknown",
    [&] { return cu.cuCtxGetExecAffinity(&affinity, static_cast<CUexecAffinityType>(9)); });
  c("cuCtxSetFlags unknown", [&] { return cu.cuCtxSetFlags(0x4000'0000); });
  c("cuCtxSetFlags of two schedules",
    [&] { return cu.cuCtxSetFlags(CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD); });
  c("cuCtxAttach without output", [&] { return cu.cuCtxAttach(nullptr, 0); });
  c("cuCtxAttach with flags", [&] { return cu.cuCtxAttach(&context, 1); });
  c("cuCtxDetach of none", [&] { return cu.cuCtxDetach(nullptr); });
  c("cuCtxDestroy of none", [&] { return cu.cuCtxDestroy_v2(nullptr); });
  c("cuCtxPushCurrent of none", [&] { return cu.cuCtxPushCurrent_v2(nullptr); });
  c("cuCtxEnablePeerAccess to itself", [&] { return cu.cuCtxEnablePeerAccess(at.context, 0); });
  c("cuCtxEnablePeerAccess to none", [&] { return cu.cuCtxEnablePeerAccess(nullptr, 0); });
  c("cuCtxEnablePeerAccess with flags", [&] { return cu.cuCtxEnablePeerAccess(at.context, 1); });
  c("cuCtxDisablePeerAccess to itself", [&] { return cu.cuCtxDisablePeerAccess(at.context); });
  c("cuCtxDisablePeerAccess to none", [&] { return cu.cuCtxDisablePeerAccess(nullptr); });
  c("cuCtxCreate without output", [&] { return cu.cuCtxCreate_v2(nullptr, 0, at.device); });
  c("cuCtxCreate with unknown flags",
    [&] { return cu.cuCtxCreate_v2(&context, 0x4000'0000, at.device); });
  c("cuCtxCreate of two schedules",
    [&] { return cu.cuCtxCreate_v2(&context, CU_CTX_SCHED_SPIN | CU_CTX_SCHED_YIELD, at.device); });
  c("cuCtxCreate of no device", [&] { return cu.cuCtxCreate_v2(&context, 0, -1); });
  c("cuDevicePrimaryCtxSetFlags while active, unknown",
    [&] { return cu.cuDevicePrimaryCtxSetFlags_v2(at.device, 0x8000); });
  c("cuDevicePrimaryCtxGetState without outputs",
    [&] { return cu.cuDevicePrimaryCtxGetState(at.device, nullptr, nullptr); });
  c("cuFlushGPUDirectRDMAWrites to an unknown target", [&] {
    return cu.cuFlushGPUDirectRDMAWrites(static_cast<CUflushGPUDirectRDMAWritesTarget>(9),
                                         CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  });
  c("cuCtxPopCurrent without output", [&] { return cu.cuCtxPopCurrent_v2(nullptr); });
  c("cuCtxPopCurrent of an empty stack", [&] { return cu.cuCtxPopCurrent_v2(&context); });
  c("cuCtxGetDevice of an empty stack", [&] { return cu.cuCtxGetDevice(&device); });
  c("cuCtxSynchronize of an empty stack", [&] { return cu.cuCtxSynchronize(); });
  c("cuCtxGetFlags of an empty stack", [&] { return cu.cuCtxGetFlags(&flags); });
  c("cuCtxEnablePeerAccess of an empty stack",
    [&] { return cu.cuCtxEnablePeerAccess(at.context, 0); });
  c("cuDevicePrimaryCtxRelease once too often", [&] {
    (void)cu.cuDevicePrimaryCtxRelease_v2(at.device);
    return cu.cuDevicePrimaryCtxRelease_v2(at.device);
  });
  c("cuDevicePrimaryCtxGetState after the last release",
    [&] { return cu.cuDevicePrimaryCtxGetState(at.device, &flags, &number); });
}

void WrongContextsApart(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUdeviceptr memory = 0;
  CUstream stream = nullptr;
  CUcontext current = nullptr;
  unsigned version = 0;
  c("cuCtxDestroy of the primary context", [&] { return cu.cuCtxDestroy_v2(at.context); });
  c("cuMemAlloc after the primary context was released", [&] {
    (void)cu.cuDevicePrimaryCtxRelease_v2(at.device);
    return cu.cuMemAlloc_v2(&memory, 4);
  });
  c("cuStreamCreate after the primary context was released", [&] {
    (void)cu.cuDevicePrimaryCtxRelease_v2(at.device);
    return cu.cuStreamCreate(&stream, 0);
  });
  c("cuCtxSynchronize after the primary context was reset", [&] {
    (void)cu.cuDevicePrimaryCtxReset_v2(at.device);
    return cu.cuCtxSynchronize();
  });
  c("cuMemFree of what lay in a context that was reset", [&] {
    (void)cu.cuMemAlloc_v2(&memory, 4);
    (void)cu.cuDevicePrimaryCtxReset_v2(at.device);
    return cu.cuMemFree_v2(memory);
  });
  c("cuStreamSynchronize of a stream of a context that was reset", [&] {
    (void)cu.cuStreamCreate(&stream, 0);
    (void)cu.cuDevicePrimaryCtxReset_v2(at.device);
    return cu.cuStreamSynchronize(stream);
  });
  c("cuCtxGetApiVersion of the released primary context", [&] {
    (void)cu.cuDevicePrimaryCtxRelease_v2(at.device);
    return cu.cuCtxGetApiVersion(at.context, &version);
  });
  c("cuCtxSetCurrent to the released primary context", [&] {
    (void)cu.cuCtxSetCurrent(nullptr);
    (void)cu.cuDevicePrimaryCtxRelease_v2(at.device);
    return cu.cuCtxSetCurrent(at.context);
  });
  c("cuCtxGetCurrent after the primary context was released", [&] {
    (void)cu.cuDevicePrimaryCtxRelease_v2(at.device);
    return cu.cuCtxGetCurrent(&current);
  });
}

}  // namespace gpuloom::conformance
