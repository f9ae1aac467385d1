// SPDX-License-Identifier: Apache-2.0
// Streams and events: made, used, destroyed while they are in use, and made again.
#include <thread>

#include "tests/sequences/world.h"

namespace gpuloom::sequences {
namespace {

constexpr size_t kMostStreams = 10;
constexpr size_t kMostEvents = 12;

bool Make(World& world) {
  if (world.streams.size() >= kMostStreams) return false;
  Random& random = world.random();
  auto stream = std::make_shared<StreamObject>();
  stream->number = world.NextNumber();
  const unsigned flags = random.Chance(60) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT;
  stream->blocking = flags == CU_STREAM_DEFAULT;
  if (random.Chance(50)) {
    const int least = world.shared().priority_least, greatest = world.shared().priority_greatest;
    stream->priority =
        greatest + static_cast<int>(random.Below(static_cast<uint32_t>(least - greatest + 1)));
    DO(cuStreamCreateWithPriority, &stream->handle, flags, stream->priority);
  } else {
    DO(cuStreamCreate, &stream->handle, flags);
  }
  world.streams.push_back(stream);
  world.journal().Note("stream %u, flags %u", stream->number, flags);
  return true;
}

bool Destroy(World& world) {
  const StreamRef stream = world.AnyOwnStream();
  if (stream == nullptr) return false;
  if (world.random().Chance(30)) world.Spin(stream, world.random().Between(1, 300) * 1000);
  world.DestroyStream(stream);
  // What waits for everything, and the next stream, are often next.
  if (world.random().Chance(40)) {
    const BufferRef freed =
        world.AnyBuffer([](const Buffer& b) { return b.place != Place::kMapped; });
    if (freed != nullptr) world.Free(freed);
  }
  if (world.random().Chance(60)) Make(world);
  return true;
}

bool Ask(World& world) {
  const StreamRef stream = world.AnyOwnStream();
  if (stream == nullptr) return false;
  unsigned flags = 99;
  DO(cuStreamGetFlags, stream->handle, &flags);
  if ((flags == CU_STREAM_DEFAULT) != stream->blocking) Fail("a stream has other flags");
  int priority = 99;
  DO(cuStreamGetPriority, stream->handle, &priority);
  if (priority != stream->priority) Fail("a stream has another priority");
  const CUresult done = Cu().cuStreamQuery(stream->handle);
  if (done != CUDA_ERROR_NOT_READY) Judge("cuStreamQuery", done);
  return true;
}

bool Synchronize(World& world) {
  const uint32_t number = world.random().Below(10);
  if (number == 0) {
    world.SynchronizeContext();
  } else {
    DO(cuStreamSynchronize, world.AnyStream()->handle);
  }
  return true;
}

bool Chain(World& world) {
  const StreamRef from = world.AnyStream(), to = world.AnyStream();
  if (from == to) return false;
  const EventRef event = world.MakeEvent(CU_EVENT_DISABLE_TIMING);
  world.Record(event, from);
  DO(cuStreamWaitEvent, to->handle, event->handle, 0);
  return true;
}

bool SpinSomewhere(World& world) {
  world.Spin(world.AnyStream(), world.random().Between(1, 400) * 1000);
  return true;
}

// A thread that uses a default stream of its own and ends.
bool ShortThread(World& world) {
  const BufferRef buffer =
      world.AnyBuffer([](const Buffer& b) { return b.OnDevice() && b.place != Place::kVariable; });
  if (buffer == nullptr) return false;
  world.Finish(&buffer->uses);
  const uint32_t value = static_cast<uint32_t>(world.random().Next());
  const uint32_t count = std::min(buffer->size(), 1024u);
  const bool waits = world.random().Chance(50);
  const uint64_t spin_ns = world.random().Below(200) * 1000;
  const ModuleRef module = world.AnyModule();
  CUfunction add = module->Function("add"), spin = module->Function("spin");
  EventRef event = world.MakeEvent(CU_EVENT_DISABLE_TIMING);
  Journal* journal = &world.journal();
  std::thread([&] {
    SetThisJournal(journal);
    DO(cuCtxSetCurrent, world.shared().primary);
    CUstream own = reinterpret_cast<CUstream>(uintptr_t{2});
    uint64_t address = buffer->device, ns = spin_ns;
    uint32_t n = count, v = value;
    void* spins[] = {&ns, nullptr};
    if (ns != 0) DO(cuLaunchKernel, spin, 1, 1, 1, 1, 1, 1, 0, own, spins, nullptr);
    void* adds[] = {&address, &n, &v, nullptr};
    DO(cuLaunchKernel, add, (n + 63) / 64, 1, 1, 64, 1, 1, 0, own, adds, nullptr);
    DO(cuEventRecord, event->handle, own);
    if (waits) DO(cuStreamSynchronize, own);
  }).join();
  event->recorded = true;
  for (uint32_t i = 0; i < count; ++i) buffer->words[i] += value;
  buffer->uses.push_back({nullptr, event});
  if (!module->shared) module->uses.push_back({nullptr, event});
  return true;
}

bool MakeAnEvent(World& world) {
  if (world.events.size() >= kMostEvents) return false;
  static constexpr unsigned kFlags[] = {CU_EVENT_DEFAULT, CU_EVENT_BLOCKING_SYNC,
                                        CU_EVENT_DISABLE_TIMING,
                                        CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING,
                                        CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING};
  const uint32_t kinds = world.shared().has_interprocess ? 5 : 4;
  world.events.push_back(world.MakeEvent(kFlags[world.random().Below(kinds)]));
  return true;
}

bool DropAnEvent(World& world) {
  if (world.events.empty()) return false;
  Remove(&world.events, world.random().Of(world.events));
  return true;
}

bool UseAnEvent(World& world) {
  if (world.events.empty()) return false;
  const EventRef event = world.random().Of(world.events);
  switch (world.random().Below(4)) {
    case 0:
      world.Record(event, world.AnyStream());
      break;
    case 1:
      DO(cuStreamWaitEvent, world.AnyStream()->handle, event->handle, 0);
      break;
    case 2:
      DO(cuEventSynchronize, event->handle);
      break;
    default: {
      const CUresult done = Cu().cuEventQuery(event->handle);
      if (done != CUDA_ERROR_NOT_READY) Judge("cuEventQuery", done);
    }
  }
  return true;
}

bool TakeTime(World& world) {
  const StreamRef stream = world.AnyStream();
  const EventRef begin = world.MakeEvent(CU_EVENT_DEFAULT), end = world.MakeEvent(CU_EVENT_DEFAULT);
  world.Record(begin, stream);
  const uint32_t spin_us = world.random().Below(100);
  if (spin_us != 0) world.Spin(stream, spin_us * 1000);
  world.Record(end, stream);
  if (world.random().Chance(50)) {
    DO(cuEventSynchronize, end->handle);
  } else {
    DO(cuStreamSynchronize, stream->handle);
  }
  float ms = -1;
  DO(cuEventElapsedTime, &ms, begin->handle, end->handle);
  if (ms < 0) Fail("an event is " + std::to_string(ms) + " ms behind an earlier one");
  return true;
}

bool Rest(World& world) {
  std::this_thread::sleep_for(std::chrono::microseconds(world.random().Below(1000)));
  return true;
}

}  // namespace

std::vector<Step> StreamSteps() {
  return {{"stream.make", 10, Make},
          {"stream.destroy", 9, Destroy},
          {"stream.ask", 3, Ask},
          {"stream.synchronize", 4, Synchronize},
          {"stream.chain", 3, Chain},
          {"stream.spin", 4, SpinSomewhere},
          {"stream.thread", 2, ShortThread},
          {"event.make", 4, MakeAnEvent},
          {"event.drop", 4, DropAnEvent},
          {"event.use", 8, UseAnEvent},
          {"event.time", 3, TakeTime},
          {"rest", 3, Rest}};
}

}  // namespace gpuloom::sequences
