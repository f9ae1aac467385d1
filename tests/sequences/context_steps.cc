// SPDX-License-Identifier: Apache-2.0
// Contexts: made with all that belongs to them, and destroyed; green ones.
#include "tests/sequences/kernels.h"
#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

// Everything in a context of its own, which then goes with what is left in it.
bool Created(World& world) {
  Random& random = world.random();
  CUcontext context = nullptr;
  DO(cuCtxCreate_v2, &context, 0, world.shared().device);
  std::string text = kKernels;
  for (size_t at; (at = text.find("STAMP")) != std::string::npos;) text.replace(at, 5, "77");
  CUmodule module = nullptr;
  DO(cuModuleLoadData, &module, text.c_str());
  CUfunction stamp = nullptr;
  DO(cuModuleGetFunction, &stamp, module, "stamp");
  CUstream stream = nullptr;
  DO(cuStreamCreate, &stream, random.Chance(50) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT);
  CUevent event = nullptr;
  DO(cuEventCreate, &event, CU_EVENT_DEFAULT);
  CUdeviceptr memory = 0;
  const uint32_t count = random.Between(1, 2000);
  DO(cuMemAlloc_v2, &memory, size_t{count} * 4);
  const auto first = static_cast<uint32_t>(random.Next()),
             value = static_cast<uint32_t>(random.Next());
  DO(cuMemsetD32Async, memory, first, count, stream);
  uint32_t n = count, v = value;
  void* pointers[] = {&memory, &n, &v, nullptr};
  DO(cuLaunchKernel, stamp, (count + 127) / 128, 1, 1, 128, 1, 1, 0, stream, pointers, nullptr);
  DO(cuEventRecord, event, stream);
  if (random.Chance(50)) DO(cuEventSynchronize, event);
  DO(cuStreamSynchronize, stream);
  std::vector<uint32_t> found(count);
  DO(cuMemcpyDtoH_v2, found.data(), memory, size_t{count} * 4);
  for (const uint32_t word : found) {
    if (word != (first ^ 77u) + value) Fail("a created context's memory holds other words");
  }
  if (random.Chance(50)) {
    DO(cuMemFree_v2, memory);
    DO(cuEventDestroy_v2, event);
    DO(cuStreamDestroy_v2, stream);
    DO(cuModuleUnload, module);
  }
  if (random.Chance(30)) {
    // Made current elsewhere in the stack and taken away again.
    CUcontext popped = nullptr;
    DO(cuCtxPopCurrent_v2, &popped);
    if (popped != context) Fail("another context was current");
    DO(cuCtxPushCurrent_v2, popped);
  }
  DO(cuCtxDestroy_v2, context);
  CUcontext current = nullptr;
  DO(cuCtxGetCurrent, &current);
  if (current != world.shared().primary) Fail("the context below is not current again");
  return true;
}

bool Stacked(World& world) {
  DO(cuCtxPushCurrent_v2, world.shared().primary);
  if (const auto work = world.MakeWork(false)) world.Queue(world.AnyStream(), work);
  CUcontext popped = nullptr;
  DO(cuCtxPopCurrent_v2, &popped);
  if (popped != world.shared().primary) Fail("another context was current");
  return true;
}

bool Retained(World& world) {
  CUcontext context = nullptr;
  DO(cuDevicePrimaryCtxRetain, &context, world.shared().device);
  if (context != world.shared().primary) Fail("the primary context is another one");
  DO(cuDevicePrimaryCtxRelease_v2, world.shared().device);
  return true;
}

bool Green(World& world) {
  if (!world.shared().has_green || world.greens.size() >= 2) return false;
  CUdevResource all = {}, part = {};
  DO(cuDeviceGetDevResource, world.shared().device, &all, CU_DEV_RESOURCE_TYPE_SM);
  unsigned groups = 1;
  unsigned least = all.sm.minSmPartitionSize;
  if (world.random().Chance(50) && 2 * least <= all.sm.smCount) least *= 2;
  DO(cuDevSmResourceSplitByCount, &part, &groups, &all, nullptr, 0, least);
  CUdevResourceDesc description = nullptr;
  DO(cuDevResourceGenerateDesc, &description, &part, 1);
  auto green = std::make_shared<GreenObject>();
  green->number = world.NextNumber();
  DO(cuGreenCtxCreate, &green->handle, description, world.shared().device,
     CU_GREEN_CTX_DEFAULT_STREAM);
  world.greens.push_back(green);
  world.journal().Note("green context %u", green->number);
  for (uint32_t i = world.random().Below(3); i-- > 0;) {
    auto stream = std::make_shared<StreamObject>();
    stream->number = world.NextNumber();
    stream->blocking = false;
    stream->green = green->handle;
    DO(cuGreenCtxStreamCreate, &stream->handle, green->handle, CU_STREAM_NON_BLOCKING, 0);
    world.streams.push_back(stream);
  }
  return true;
}

bool GreenEnds(World& world) {
  if (world.greens.empty()) return false;
  const GreenRef green = world.random().Of(world.greens);
  world.journal().Note("green context %u", green->number);
  for (size_t i = world.streams.size(); i-- > 0;) {
    if (world.streams[i]->green != green->handle) continue;
    DO(cuStreamSynchronize, world.streams[i]->handle);
    world.DestroyStream(world.streams[i]);
  }
  Remove(&world.greens, green);
  DO(cuGreenCtxDestroy, green->handle);
  return true;
}

}  // namespace

std::vector<Step> ContextSteps() {
  return {{"context.created", 2, Created},
          {"context.stacked", 1, Stacked},
          {"context.retained", 1, Retained},
          {"green.make", 2, Green},
          {"green.end", 1, GreenEnds}};
}

}  // namespace gpuloom::sequences
