// SPDX-License-Identifier: Apache-2.0
// Raw ring bytes into the real reader, dispatcher and handlers, with a driver that does nothing. A
// tenant that has set up a stream, an event, memory, a kernel, graphs and conditional handles turns hostile: the input follows
// in its ring. Whatever it is, the session must end or go on, and give back all memory at its end.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/executor/process/log.h"
#include "agent/executor/testing/device.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/rounds.h"

namespace gpuloom::executor {
namespace {

constexpr uint64_t kDeviceBytes = uint64_t{1} << 30;
constexpr uint64_t kHostBytes = 1u << 20;
constexpr char kImage[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 a, .param .u32 "
    "n) "
    "{ ret; }\n";

// With a texture reference, which is bound to memory.
constexpr char kReferring[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n.global .texref texture;\n.visible .entry "
    "k() { ret; }\n";

void Check(bool ok, int line = __builtin_LINE()) {
  if (ok) return;
  fprintf(stderr, "ring_fuzz.cc:%d: does not hold\n", line);
  abort();
}

class Harness {
 public:
  void Run(const uint8_t* data, size_t size) {
    Begin();
    SetUp();
    auto* region = reinterpret_cast<wire::CommandRegion*>(rounds_.tenant().commands.data());
    const uint32_t begin = region->head.tail;
    for (size_t i = 0; i < size; ++i) region->ring[(begin + i) % wire::kRingBytes] = data[i];
    region->head.tail = begin + wire::RoundUpToRecord(static_cast<uint32_t>(size));
    Turn(4);
    rounds_.session()->End(wire::Fatal::kNone, now_ns_);
    for (int i = 0; i < 100 && rounds_.session()->state() != Session::State::kEnded; ++i) Turn(1);
    Check(rounds_.session()->state() == Session::State::kEnded);
    // Arrays go when the device has been idle for a while.
    for (int i = 0; i < 100 && !rounds_.IsQuiet(); ++i) Turn(1);
    Turn(1);
    Check(rounds_.grants().in_use_bytes() == 0);
    rounds_.DropSession();
    Check(TestingDriver::live_graphs() == 0);
  }

 private:
  void Begin() {
    // The previous session's arena lives until all that it pinned is released.
    for (int i = 0; i < 100 && !rounds_.IsQuiet(); ++i) Turn(1);
    control::AddSession order = rounds_.NewOrder(kDeviceBytes, kHostBytes);
    // Inputs name addresses.
    order.device_range_begin = kTestingDeviceBegin;
    order.host_range_begin = kTestingHostBegin;
    order.drain_timeout_ms = 1000;
    rounds_.Begin(order);
  }

  template <wire::Command C>
  void Post(const typename C::Request& request, uint16_t slot = wire::kNoReply,
            std::span<const uint8_t> payload = {}) {
    wire::Ticket ticket{};
    Check(rounds_.tenant().TryPost<C>(request, payload, slot, &ticket));
  }

  // Ids 1 of everything, memory at the range's begin, the arena's second page pinned.
  void SetUp() {
    auto* arena = reinterpret_cast<uint8_t*>(kTestingHostBegin);
    std::memcpy(arena, kImage, sizeof(kImage) - 1);
    std::memset(arena + 4096, 1, 4096);
    const uint8_t name[] = {'k'};
    Post<wire::LibraryLoad>(
        {wire::LibraryId{1}, 0, wire::HostPtr{kTestingHostBegin}, sizeof(kImage) - 1}, 0);
    Post<wire::StreamCreate>({wire::StreamId{1}, 0, 0}, 1);
    Post<wire::EventCreate>({wire::EventId{1}, 1});
    Post<wire::MemAlloc>({2u << 20}, 2);
    Post<wire::HostRegister>({wire::HostPtr{kTestingHostBegin + 4096}, 4096}, 3);
    Turn(4);
    Post<wire::KernelGet>({wire::LibraryId{1}, wire::KernelId{1}}, 0, name);
    Turn(4);
    std::memcpy(arena, kReferring, sizeof(kReferring) - 1);
    Post<wire::LibraryLoad>(
        {wire::LibraryId{2}, 0, wire::HostPtr{kTestingHostBegin}, sizeof(kReferring) - 1}, 0);
    Turn(4);
    const uint8_t texture[] = {'t', 'e', 'x', 't', 'u', 'r', 'e'};
    Post<wire::ReferenceGet>(
        {wire::LibraryId{2}, wire::ReferenceId{1}, wire::ReferenceKind::kTexture}, 0, texture);
    Post<wire::KernelGet>({wire::LibraryId{2}, wire::KernelId{2}}, 1, name);
    Turn(6);
    wire::ReferenceSet::Request bound{};
    bound.reference = wire::ReferenceId{1};
    bound.bound = 1;
    bound.look.resource = wire::ViewResource::kLinear;
    bound.look.address = kTestingDeviceBegin;
    bound.look.size_bytes = 4096;
    bound.look.format = CU_AD_FORMAT_FLOAT;
    bound.look.channels = 1;
    Post<wire::ReferenceSet>(bound);
    TestingGraph graph;
    const uint8_t params[12] = {};
    graph.AddKernel(1, params);
    graph.AddFill(kTestingDeviceBegin, 16, 1, 0);
    graph.AddEvent(wire::GraphNodeKind::kEventRecord, 1);
    graph.AddEdge(0, 1);
    graph.AddEdge(1, 2);
    Post<wire::GraphInstantiate>({wire::GraphId{1}, 0, wire::HostPtr{0}, 0}, 0, graph.Block());
    Turn(6);
    // Reservation 1 has a graph, reservation 2 none yet.
    for (const uint32_t reservation : {1, 2, 2}) {
      Post<wire::ConditionCreate>({wire::ReservationId{reservation}, 1, 1, 0}, 0);
      Turn(2);
    }
    TestingGraph loop;
    loop.AddKernel(1, params);
    loop.AddConditional(1, 0, CU_GRAPH_COND_TYPE_WHILE, {1});
    loop.AddEdge(0, 1);
    loop.AddKernel(1, params);
    Post<wire::GraphInstantiate>({wire::GraphId{2}, 0, wire::HostPtr{0}, 0}, 0, loop.Block());
    Turn(6);
    Check(rounds_.session()->state() == Session::State::kServing);
  }

  // Runs rounds of the loop.
  void Turn(int times) {
    for (int i = 0; i < times; ++i) rounds_.Round(now_ns_ += 2'000'000);
  }

  uint64_t now_ns_ = 0;
  TestingRounds rounds_{TestingDriver::Reset(), {}};
};

}  // namespace
}  // namespace gpuloom::executor

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gpuloom;
  using namespace gpuloom::executor;
  if (size > gpuloom::wire::kRingBytes / 2) return -1;
  SetLogLevel(LogLevel::kNone);
  TestingDriver::Reset();
  static auto* const kHarness = new Harness;
  kHarness->Run(data, size);
  (void)TestingDriver::TakeCalls();
  return 0;
}
