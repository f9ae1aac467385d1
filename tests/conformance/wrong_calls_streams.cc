// SPDX-License-Identifier: Apache-2.0
// Streams, events, host functions, and the device's waits for memory.
#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr CUdeviceptr kNowhere = 0x1234'5678'9000;

}  // namespace

void WrongStreams(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUstream stream = nullptr, other = nullptr;
  CUevent event = nullptr;
  CUcontext context = nullptr;
  CUstreamCaptureMode mode = static_cast<CUstreamCaptureMode>(99);
  CUstreamAttrValue value{};
  unsigned flags = 0;
  int number = 0;
  c("cuStreamCreate without output", [&] { return cu.cuStreamCreate(nullptr, 0); });
  c("cuStreamCreate with unknown flags", [&] { return cu.cuStreamCreate(&other, 0x100); });
  c("cuStreamCreateWithPriority without output",
    [&] { return cu.cuStreamCreateWithPriority(nullptr, 0, 0); });
  c("cuStreamCreateWithPriority with unknown flags",
    [&] { return cu.cuStreamCreateWithPriority(&other, 0x100, 0); });
  c("cuStreamCreateWithPriority of -1000",
    [&] { return cu.cuStreamCreateWithPriority(&other, 0, -1000); });
  c("cuStreamCreateWithPriority of 1000",
    [&] { return cu.cuStreamCreateWithPriority(&other, 0, 1000); });
  c("cuStreamDestroy of the default stream", [&] { return cu.cuStreamDestroy_v2(nullptr); });
  c("cuStreamDestroy of the legacy stream",
    [&] { return cu.cuStreamDestroy_v2(CU_STREAM_LEGACY); });
  c("cuStreamDestroy of the thread's stream",
    [&] { return cu.cuStreamDestroy_v2(CU_STREAM_PER_THREAD); });
  c("cuStreamWaitEvent of none", [&] { return cu.cuStreamWaitEvent(nullptr, nullptr, 0); });
  if (!c.Has("cuStreamCreate", cu.cuStreamCreate(&stream, 0))) return;
  if (!c.Has("cuEventCreate", cu.cuEventCreate(&event, 0))) return;
  c("cuStreamWaitEvent with unknown flags",
    [&] { return cu.cuStreamWaitEvent(stream, event, 0x80); });
  c("cuStreamWaitEvent of one that was never recorded",
    [&] { return cu.cuStreamWaitEvent(stream, event, 0); });
  c("cuStreamGetFlags without output", [&] { return cu.cuStreamGetFlags(stream, nullptr); });
  c("cuStreamGetFlags of the default stream", [&] { return cu.cuStreamGetFlags(nullptr, &flags); });
  c("cuStreamGetPriority without output", [&] { return cu.cuStreamGetPriority(stream, nullptr); });
  c("cuStreamGetPriority of the default stream",
    [&] { return cu.cuStreamGetPriority(nullptr, &number); });
  c("cuStreamGetCtx without output", [&] { return cu.cuStreamGetCtx(stream, nullptr); });
  c("cuStreamGetCtx of the default stream", [&] { return cu.cuStreamGetCtx(nullptr, &context); });
  c("cuStreamGetId without output", [&] { return cu.cuStreamGetId(stream, nullptr); });
  c("cuStreamGetDevice without output", [&] { return cu.cuStreamGetDevice(stream, nullptr); });
  c("cuStreamGetAttribute unknown",
    [&] { return cu.cuStreamGetAttribute(stream, static_cast<CUstreamAttrID>(99), &value); });
  c("cuStreamGetAttribute without output", [&] {
    return cu.cuStreamGetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, nullptr);
  });
  c("cuStreamSetAttribute unknown",
    [&] { return cu.cuStreamSetAttribute(stream, static_cast<CUstreamAttrID>(99), &value); });
  c("cuStreamSetAttribute without a value", [&] {
    return cu.cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, nullptr);
  });
  c("cuStreamSetAttribute of an unknown policy", [&] {
    value.syncPolicy = static_cast<CUsynchronizationPolicy>(99);
    return cu.cuStreamSetAttribute(stream, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value);
  });
  c("cuStreamCopyAttributes onto itself",
    [&] { return cu.cuStreamCopyAttributes(stream, stream); });
  c("cuStreamAddCallback of none",
    [&] { return cu.cuStreamAddCallback(stream, nullptr, nullptr, 0); });
  c("cuStreamAddCallback with flags", [&] {
    return cu.cuStreamAddCallback(
        stream, [](CUstream, CUresult, void*) {}, nullptr, 1);
  });
  c("cuLaunchHostFunc of none", [&] { return cu.cuLaunchHostFunc(stream, nullptr, nullptr); });
  c("cuStreamIsCapturing without output", [&] { return cu.cuStreamIsCapturing(stream, nullptr); });
  c("cuThreadExchangeStreamCaptureMode without a mode",
    [&] { return cu.cuThreadExchangeStreamCaptureMode(nullptr); });
  c("cuThreadExchangeStreamCaptureMode to an unknown mode",
    [&] { return cu.cuThreadExchangeStreamCaptureMode(&mode); });
  c("cuStreamQuery of an idle stream", [&] { return cu.cuStreamQuery(stream); });
  c("cuStreamDestroy at last", [&] { return cu.cuStreamDestroy_v2(stream); });
}

void WrongEvents(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUevent first = nullptr, second = nullptr, untimed = nullptr, other = nullptr;
  CUstream busy = nullptr;
  float ms = 0;
  c("cuEventCreate without output", [&] { return cu.cuEventCreate(nullptr, 0); });
  c("cuEventCreate with unknown flags", [&] { return cu.cuEventCreate(&other, 0x100); });
  c("cuEventCreate for processes, with timing",
    [&] { return cu.cuEventCreate(&other, CU_EVENT_INTERPROCESS); });
  c("cuEventDestroy of none", [&] { return cu.cuEventDestroy_v2(nullptr); });
  c("cuEventRecord of none", [&] { return cu.cuEventRecord(nullptr, nullptr); });
  c("cuEventQuery of none", [&] { return cu.cuEventQuery(nullptr); });
  c("cuEventSynchronize of none", [&] { return cu.cuEventSynchronize(nullptr); });
  c("cuEventElapsedTime of none", [&] { return cu.cuEventElapsedTime_v2(&ms, nullptr, nullptr); });
  if (!c.Has("cuEventCreate", cu.cuEventCreate(&first, 0))) return;
  if (!c.Has("cuEventCreate", cu.cuEventCreate(&second, 0))) return;
  if (!c.Has("cuEventCreate", cu.cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING))) return;
  c("cuEventQuery of one that was never recorded", [&] { return cu.cuEventQuery(first); });
  c("cuEventSynchronize of one that was never recorded",
    [&] { return cu.cuEventSynchronize(first); });
  c("cuEventElapsedTime of two that were never recorded",
    [&] { return cu.cuEventElapsedTime_v2(&ms, first, second); });
  c("cuEventElapsedTime (first form) of two that were never recorded",
    [&] { return cu.cuEventElapsedTime(&ms, first, second); });
  if (!c.Has("cuEventRecord", cu.cuEventRecord(first, nullptr))) return;
  c("cuEventElapsedTime to one that was never recorded",
    [&] { return cu.cuEventElapsedTime_v2(&ms, first, second); });
  if (!c.Has("cuEventRecord", cu.cuEventRecord(second, nullptr))) return;
  if (!c.Has("cuEventRecord", cu.cuEventRecord(untimed, nullptr))) return;
  if (!c.Has("cuCtxSynchronize", cu.cuCtxSynchronize())) return;
  c("cuCtxRecordEvent of no context", [&] { return cu.cuCtxRecordEvent(nullptr, first); });
  c("cuCtxRecordEvent without an event", [&] { return cu.cuCtxRecordEvent(at.context, nullptr); });
  c("cuCtxWaitEvent of no context", [&] { return cu.cuCtxWaitEvent(nullptr, first); });
  c("cuCtxWaitEvent without an event", [&] { return cu.cuCtxWaitEvent(at.context, nullptr); });
  c("cuCtxRecordEvent of neither", [&] { return cu.cuCtxRecordEvent(nullptr, nullptr); });
  c("cuCtxRecordEvent of a destroyed event", [&] {
    (void)cu.cuEventCreate(&other, 0);
    (void)cu.cuEventDestroy_v2(other);
    return cu.cuCtxRecordEvent(at.context, other);
  });
  c("cuEventElapsedTime without output",
    [&] { return cu.cuEventElapsedTime_v2(nullptr, first, second); });
  c("cuEventElapsedTime of one without timing",
    [&] { return cu.cuEventElapsedTime_v2(&ms, first, untimed); });
  c("cuEventElapsedTime of one alone", [&] { return cu.cuEventElapsedTime_v2(&ms, first, first); });
  c("cuEventRecordWithFlags of unknown flags",
    [&] { return cu.cuEventRecordWithFlags(first, nullptr, 0x80); });
  c("cuEventRecordWithFlags as external, outside of a capture",
    [&] { return cu.cuEventRecordWithFlags(first, nullptr, CU_EVENT_RECORD_EXTERNAL); });
  // Of a stream that is busy until the host says so.
  CUmodule module = nullptr;
  CUfunction wait_for = nullptr;
  void* gate = nullptr;
  if (!c.Has("cuModuleLoadData", cu.cuModuleLoadData(&module, kKernels))) return;
  if (!c.Has("cuModuleGetFunction", cu.cuModuleGetFunction(&wait_for, module, "wait_for"))) return;
  if (!c.Has("cuMemHostAlloc", cu.cuMemHostAlloc(&gate, 4, CU_MEMHOSTALLOC_DEVICEMAP))) return;
  if (!c.Has("cuStreamCreate", cu.cuStreamCreate(&busy, CU_STREAM_NON_BLOCKING))) return;
  *static_cast<volatile unsigned*>(gate) = 0;
  void* values[] = {&gate};
  if (!c.Has("cuLaunchKernel",
             cu.cuLaunchKernel(wait_for, 1, 1, 1, 1, 1, 1, 0, busy, values, nullptr)))
    return;
  if (!c.Has("cuEventRecord", cu.cuEventRecord(second, busy))) return;
  c("cuEventQuery of one that is not reached", [&] { return cu.cuEventQuery(second); });
  c("cuEventElapsedTime to one that is not reached",
    [&] { return cu.cuEventElapsedTime_v2(&ms, first, second); });
  c("cuStreamQuery of a busy stream", [&] { return cu.cuStreamQuery(busy); });
  c("cuEventDestroy of one that is not reached", [&] { return cu.cuEventDestroy_v2(second); });
  *static_cast<volatile unsigned*>(gate) = 1;
  c("cuStreamSynchronize after all of them", [&] { return cu.cuStreamSynchronize(busy); });
}

void WrongStreamMemory(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUdeviceptr word = 0;
  CUstreamBatchMemOpParams operations[2] = {};
  if (!c.Has("cuMemAlloc", cu.cuMemAlloc_v2(&word, 4096))) return;
  if (!c.Has("cuMemsetD32", cu.cuMemsetD32_v2(word, 0, 1024))) return;
  c("cuStreamWriteValue32 to NULL",
    [&] { return cu.cuStreamWriteValue32_v2(nullptr, 0, 1, CU_STREAM_WRITE_VALUE_DEFAULT); });
  c("cuStreamWriteValue32 to nowhere", [&] {
    return cu.cuStreamWriteValue32_v2(nullptr, kNowhere, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  });
  c("cuStreamWriteValue32 to an address of 2", [&] {
    return cu.cuStreamWriteValue32_v2(nullptr, word + 2, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  });
  c("cuStreamWriteValue32 with unknown flags",
    [&] { return cu.cuStreamWriteValue32_v2(nullptr, word, 1, 0x80); });
  c("cuStreamWriteValue64 to an address of 4", [&] {
    return cu.cuStreamWriteValue64_v2(nullptr, word + 4, 1, CU_STREAM_WRITE_VALUE_DEFAULT);
  });
  c("cuStreamWaitValue32 of NULL",
    [&] { return cu.cuStreamWaitValue32_v2(nullptr, 0, 0, CU_STREAM_WAIT_VALUE_EQ); });
  c("cuStreamWaitValue32 of nowhere",
    [&] { return cu.cuStreamWaitValue32_v2(nullptr, kNowhere, 0, CU_STREAM_WAIT_VALUE_EQ); });
  c("cuStreamWaitValue32 of an address of 1",
    [&] { return cu.cuStreamWaitValue32_v2(nullptr, word + 1, 0, CU_STREAM_WAIT_VALUE_EQ); });
  c("cuStreamWaitValue32 with unknown flags",
    [&] { return cu.cuStreamWaitValue32_v2(nullptr, word, 0, 0x80); });
  c("cuStreamBatchMemOp of none",
    [&] { return cu.cuStreamBatchMemOp_v2(nullptr, 0, operations, 0); });
  c("cuStreamBatchMemOp without a list",
    [&] { return cu.cuStreamBatchMemOp_v2(nullptr, 2, nullptr, 0); });
  c("cuStreamBatchMemOp of 100000",
    [&] { return cu.cuStreamBatchMemOp_v2(nullptr, 100000, operations, 0); });
  c("cuStreamBatchMemOp with flags", [&] {
    operations[0].writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                .address = word,
                                .value = 1,
                                .flags = 0,
                                .alias = 0};
    return cu.cuStreamBatchMemOp_v2(nullptr, 1, operations, 1);
  });
  c("cuStreamBatchMemOp of an unknown operation", [&] {
    operations[0].operation = static_cast<CUstreamBatchMemOpType>(99);
    return cu.cuStreamBatchMemOp_v2(nullptr, 1, operations, 0);
  });
  c("cuCtxSynchronize after all of them", [&] { return cu.cuCtxSynchronize(); });
}

}  // namespace gpuloom::conformance
