// SPDX-License-Identifier: Apache-2.0
// Device resources and green contexts.
#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {
namespace {

constexpr CUdevResourceType kSm = CU_DEV_RESOURCE_TYPE_SM;

// A device's resource, a part of it with what is left, and a green context of that part.
struct Parts {
  CUdevResource all = {}, part = {}, left = {};
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  CUstream stream = nullptr;

  bool Make(Calls& c, const Place& at) {
    const Driver& cu = Cu();
    unsigned count = 1;
    return c.Has("cuDeviceGetDevResource", cu.cuDeviceGetDevResource(at.device, &all, kSm)) &&
           c.Has("cuDevSmResourceSplitByCount",
                 cu.cuDevSmResourceSplitByCount(&part, &count, &all, &left, 0,
                                                all.sm.minSmPartitionSize)) &&
           c.Has("cuDevResourceGenerateDesc",
                 cu.cuDevResourceGenerateDesc(&description, &part, 1)) &&
           c.Has("cuGreenCtxCreate", cu.cuGreenCtxCreate(&green, description, at.device,
                                                         CU_GREEN_CTX_DEFAULT_STREAM)) &&
           c.Has("cuCtxFromGreenCtx", cu.cuCtxFromGreenCtx(&context, green)) &&
           c.Has("cuGreenCtxStreamCreate",
                 cu.cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
  }
};

}  // namespace

void WrongResources(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  Parts parts;
  if (!parts.Make(c, at)) return;
  const CUdevResource& all = parts.all;
  const unsigned least = all.sm.minSmPartitionSize;
  CUdevResource some[2] = {}, left = {};
  const CUdevResource none = {};
  unsigned count = 1;
  CUdevResourceDesc description = nullptr;
  c("cuDeviceGetDevResource of no type",
    [&] { return cu.cuDeviceGetDevResource(at.device, &left, CU_DEV_RESOURCE_TYPE_INVALID); });
  c("cuDeviceGetDevResource of an unknown type", [&] {
    return cu.cuDeviceGetDevResource(at.device, &left, static_cast<CUdevResourceType>(1000));
  });
  c("cuDeviceGetDevResource without output",
    [&] { return cu.cuDeviceGetDevResource(at.device, nullptr, kSm); });
  c("cuDeviceGetDevResource of no device",
    [&] { return cu.cuDeviceGetDevResource(1000, &left, kSm); });
  c("cuCtxGetDevResource of no context",
    [&] { return cu.cuCtxGetDevResource(nullptr, &left, kSm); });
  c("cuCtxGetDevResource without output",
    [&] { return cu.cuCtxGetDevResource(at.context, nullptr, kSm); });
  c("cuCtxGetDevResource of an unknown type", [&] {
    return cu.cuCtxGetDevResource(at.context, &left, static_cast<CUdevResourceType>(1000));
  });
  c("cuGreenCtxGetDevResource of no context",
    [&] { return cu.cuGreenCtxGetDevResource(nullptr, &left, kSm); });
  c("cuGreenCtxGetDevResource without output",
    [&] { return cu.cuGreenCtxGetDevResource(parts.green, nullptr, kSm); });
  c("cuGreenCtxGetDevResource of no type",
    [&] { return cu.cuGreenCtxGetDevResource(parts.green, &left, CU_DEV_RESOURCE_TYPE_INVALID); });
  const auto split = [&](CUdevResource* groups, unsigned* groups_count, const CUdevResource* input,
                         unsigned flags, unsigned min_count) {
    if (groups_count != nullptr && groups_count != &count) count = *groups_count;
    return cu.cuDevSmResourceSplitByCount(groups, groups_count, input, &left, flags, min_count);
  };
  const auto one = [&] { return count = 1, &count; };
  c("cuDevSmResourceSplitByCount without count",
    [&] { return split(some, nullptr, &all, 0, least); });
  c("cuDevSmResourceSplitByCount without input",
    [&] { return split(some, one(), nullptr, 0, least); });
  c("cuDevSmResourceSplitByCount into no groups",
    [&] { return count = 0, split(some, &count, &all, 0, least); });
  c("cuDevSmResourceSplitByCount of an unknown flag",
    [&] { return split(some, one(), &all, 8, least); });
  c("cuDevSmResourceSplitByCount of nothing", [&] { return split(some, one(), &none, 0, least); });
  c("cuDevSmResourceSplitByCount of more than there is",
    [&] { return split(some, one(), &all, 0, all.sm.smCount + 1); });
  c("cuDevSmResourceSplitByCount of a group",
    [&] { return split(some, one(), &parts.part, 0, least); });
  c("cuDevSmResourceSplitByCount of what is left",
    [&] { return split(some, one(), &parts.left, 0, least); });
  c("cuDevResourceGenerateDesc without output",
    [&] { return cu.cuDevResourceGenerateDesc(nullptr, &parts.part, 1); });
  c("cuDevResourceGenerateDesc without resources",
    [&] { return cu.cuDevResourceGenerateDesc(&description, nullptr, 1); });
  c("cuDevResourceGenerateDesc of no resources",
    [&] { return cu.cuDevResourceGenerateDesc(&description, &parts.part, 0); });
  c("cuDevResourceGenerateDesc of a resource that is none", [&] {
    some[0] = none;
    return cu.cuDevResourceGenerateDesc(&description, some, 1);
  });
  c("cuDevResourceGenerateDesc of a group twice", [&] {
    some[0] = some[1] = parts.part;
    return cu.cuDevResourceGenerateDesc(&description, some, 2);
  });
  c("cuDevResourceGenerateDesc of two splits", [&] {
    some[0] = parts.part;
    (void)split(&some[1], one(), &all, 0, least);
    return cu.cuDevResourceGenerateDesc(&description, some, 2);
  });
  c("cuDevResourceGenerateDesc of a part and the whole", [&] {
    some[0] = parts.part;
    some[1] = all;
    return cu.cuDevResourceGenerateDesc(&description, some, 2);
  });
}

void WrongGreenContexts(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  Parts parts;
  CUevent event = nullptr;
  if (!parts.Make(c, at) || !c.Has("cuEventCreate", cu.cuEventCreate(&event, 0))) return;
  CUgreenCtx green = nullptr;
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  unsigned long long id = 0;
  c("cuGreenCtxCreate without flags",
    [&] { return cu.cuGreenCtxCreate(&green, parts.description, at.device, 0); });
  c("cuGreenCtxCreate of unknown flags",
    [&] { return cu.cuGreenCtxCreate(&green, parts.description, at.device, 3); });
  c("cuGreenCtxCreate without output",
    [&] { return cu.cuGreenCtxCreate(nullptr, parts.description, at.device, 1); });
  c("cuGreenCtxCreate without description",
    [&] { return cu.cuGreenCtxCreate(&green, nullptr, at.device, 1); });
  c("cuGreenCtxCreate on no device",
    [&] { return cu.cuGreenCtxCreate(&green, parts.description, 1000, 1); });
  c("cuGreenCtxDestroy of none", [&] { return cu.cuGreenCtxDestroy(nullptr); });
  c("cuCtxDestroy of a green context", [&] { return cu.cuCtxDestroy_v2(parts.context); });
  c("cuCtxFromGreenCtx without output", [&] { return cu.cuCtxFromGreenCtx(nullptr, parts.green); });
  c("cuCtxFromGreenCtx of none", [&] { return cu.cuCtxFromGreenCtx(&context, nullptr); });
  c("cuGreenCtxGetId without output", [&] { return cu.cuGreenCtxGetId(parts.green, nullptr); });
  c("cuGreenCtxGetId of none, none is current", [&] { return cu.cuGreenCtxGetId(nullptr, &id); });
  c("cuGreenCtxStreamCreate without flags",
    [&] { return cu.cuGreenCtxStreamCreate(&stream, parts.green, 0, 0); });
  c("cuGreenCtxStreamCreate of unknown flags",
    [&] { return cu.cuGreenCtxStreamCreate(&stream, parts.green, 5, 0); });
  c("cuGreenCtxStreamCreate without output",
    [&] { return cu.cuGreenCtxStreamCreate(nullptr, parts.green, CU_STREAM_NON_BLOCKING, 0); });
  c("cuGreenCtxStreamCreate in none",
    [&] { return cu.cuGreenCtxStreamCreate(&stream, nullptr, CU_STREAM_NON_BLOCKING, 0); });
  c("cuStreamGetGreenCtx without output",
    [&] { return cu.cuStreamGetGreenCtx(parts.stream, nullptr); });
  c("cuStreamGetCtx_v2 without context",
    [&] { return cu.cuStreamGetCtx_v2(parts.stream, nullptr, &green); });
  c("cuStreamGetCtx_v2 without green context",
    [&] { return cu.cuStreamGetCtx_v2(parts.stream, &context, nullptr); });
  c("cuGreenCtxRecordEvent of none", [&] { return cu.cuGreenCtxRecordEvent(nullptr, event); });
  c("cuGreenCtxRecordEvent without event",
    [&] { return cu.cuGreenCtxRecordEvent(parts.green, nullptr); });
  c("cuGreenCtxWaitEvent of none", [&] { return cu.cuGreenCtxWaitEvent(nullptr, event); });
  c("cuGreenCtxWaitEvent without event",
    [&] { return cu.cuGreenCtxWaitEvent(parts.green, nullptr); });
  const auto inside = [&](auto call) {
    (void)cu.cuCtxSetCurrent(parts.context);
    const CUresult result = call();
    (void)cu.cuCtxSetCurrent(at.context);
    return result;
  };
  c("cuStreamSynchronize of the thread's stream, a green context is current",
    [&] { return inside([&] { return cu.cuStreamSynchronize(CU_STREAM_PER_THREAD); }); });
  c("cuStreamGetCtx_v2 of the thread's stream, a green context is current", [&] {
    return inside([&] { return cu.cuStreamGetCtx_v2(CU_STREAM_PER_THREAD, &context, &green); });
  });
  c("cuStreamBeginCapture of a green context's default stream", [&] {
    return inside(
        [&] { return cu.cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL); });
  });
  c("cuGreenCtxRecordEvent while a stream captures", [&] {
    (void)cu.cuStreamBeginCapture_v2(parts.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    const CUresult result = cu.cuGreenCtxRecordEvent(parts.green, event);
    CUgraph graph = nullptr;
    (void)cu.cuStreamEndCapture(parts.stream, &graph);
    return result;
  });
}

void WrongGreenContextsDestroyed(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  Parts parts;
  CUevent event = nullptr;
  if (!parts.Make(c, at) || !c.Has("cuEventCreate", cu.cuEventCreate(&event, 0)) ||
      !c.Has("cuGreenCtxDestroy", cu.cuGreenCtxDestroy(parts.green))) {
    return;
  }
  CUdevResource left = {};
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  unsigned long long id = 0;
  unsigned count = 1;
  c("cuStreamSynchronize", [&] { return cu.cuStreamSynchronize(parts.stream); });
  c("cuStreamQuery", [&] { return cu.cuStreamQuery(parts.stream); });
  c("cuStreamDestroy", [&] { return cu.cuStreamDestroy_v2(parts.stream); });
  c("cuEventRecord", [&] { return cu.cuEventRecord(event, parts.stream); });
  c("cuStreamGetCtx", [&] { return cu.cuStreamGetCtx(parts.stream, &context); });
  c("cuCtxSetCurrent", [&] { return cu.cuCtxSetCurrent(parts.context); });
  c("cuGreenCtxDestroy", [&] { return cu.cuGreenCtxDestroy(parts.green); });
  c("cuCtxFromGreenCtx", [&] { return cu.cuCtxFromGreenCtx(&context, parts.green); });
  c("cuGreenCtxGetId", [&] { return cu.cuGreenCtxGetId(parts.green, &id); });
  c("cuGreenCtxStreamCreate",
    [&] { return cu.cuGreenCtxStreamCreate(&stream, parts.green, CU_STREAM_NON_BLOCKING, 0); });
  c("cuGreenCtxGetDevResource",
    [&] { return cu.cuGreenCtxGetDevResource(parts.green, &left, kSm); });
  c("cuDevSmResourceSplitByCount of what it had", [&] {
    CUgreenCtx green = nullptr;
    CUdevResource has = {}, part = {};
    (void)cu.cuGreenCtxCreate(&green, parts.description, at.device, 1);
    (void)cu.cuGreenCtxGetDevResource(green, &has, kSm);
    (void)cu.cuGreenCtxDestroy(green);
    return cu.cuDevSmResourceSplitByCount(&part, &count, &has, &left, 0, 1);
  });
}

}  // namespace gpuloom::conformance
