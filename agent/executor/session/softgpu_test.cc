// SPDX-License-Identifier: Apache-2.0
// The real loop on the software GPU: kernels that compute, spin and fault.
#include "agent/executor/testing/softgpu.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "agent/executor/memory/device_space.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/held_kernel.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using std::chrono::milliseconds;
using wire::DevicePtr;
using wire::HostPtr;
using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

class SoftGpuTest : public HeldKernelTest {
 protected:
  static Ticket CopyOut(TestingTenant* tenant, uint32_t stream, uint32_t* to, uint64_t from) {
    return tenant->Post<wire::Copy>({StreamId{stream}, wire::CopyKind::kDeviceToHost,
                                     reinterpret_cast<uint64_t>(to), from, 128});
  }

  // Steps of the neighbour while `caller` waits. What waited for the kernel would never end.
  void ComputesBeside(TestingTenant* caller, const char* label) {
    ASSERT_NO_FATAL_FAILURE(MakeNeighbours());
    std::unique_ptr<TestingTenant> other;
    if (caller == nullptr) {
      other = scheduler_.AddTenant(label);
      caller = other.get();
    }
    ASSERT_TRUE(NeighbourGoesOn());
    Gate gate(host_ + 64);
    const Ticket endless = Hold(tenant_.get(), 0, memory_, gate);
    const Ticket asked =
        caller->Post<wire::ContextSetLimit>({CU_LIMIT_STACK_SIZE, 0, 8192 + 16 * ++raised_}, {}, 7);
    for (int step = 0; step < 200; ++step) {
      ASSERT_TRUE(NeighbourGoesOn()) << step;
    }
    EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, endless));
    EXPECT_EQ(caller->reader.FindReply(7, asked), nullptr);
    gate.Open();
    const wire::ReplySlot* answer = nullptr;
    ASSERT_TRUE(
        caller->Wait([&] { return (answer = caller->reader.FindReply(7, asked)) != nullptr; }));
    EXPECT_EQ(answer->result, 0u);
    EXPECT_TRUE(tenant_->WaitDone(0, endless));
  }
  static inline uint64_t raised_ = 0;

  // A graph that waits until there is a 5.
  static TestingGraph WaitFor(uint64_t word) {
    TestingGraph graph;
    graph.AddOperation({CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_EQ, word, 5});
    return graph;
  }
  void LaunchWaitFor(uint64_t word) {
    const wire::GraphInstantiate::Request request{wire::GraphId{1}, 0, HostPtr{0}, 0};
    ASSERT_EQ(tenant_->Call<wire::GraphInstantiate>(request, nullptr, WaitFor(word).Block()),
              CUDA_SUCCESS);
    const Ticket launch = tenant_->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
    EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.Done(StreamId{0}, launch); }));
  }
  // In streams of their own, numbered as the graphs from 1.
  std::vector<Ticket> LaunchEach(uint32_t graphs, const TestingGraph& graph) {
    std::vector<Ticket> launches;
    for (uint32_t i = 1; i <= graphs; ++i) {
      EXPECT_EQ(tenant_->Call<wire::GraphInstantiate>({wire::GraphId{i}, 0, HostPtr{0}, 0}, nullptr,
                                                      graph.Block()),
                CUDA_SUCCESS);
      EXPECT_TRUE(tenant_->CreateStream(i, true));
      launches.push_back(tenant_->Post<wire::GraphLaunch>({wire::GraphId{i}, StreamId{i}}));
    }
    return launches;
  }
  void ExpectDrains() {
    tenant_->doorbell.Reset();
    const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->fatal, 0u);
    EXPECT_EQ(ended->drained, 1u);
    // A library goes, with what it is charged for, in a quiet moment.
    auto next = scheduler_.AddTenant();
    EXPECT_TRUE(next->Wait([&] { return scheduler_.memory_in_use() == 0; }));
  }

  // A granule that the tenant has mapped itself.
  uint64_t Map() {
    wire::AddressSpace::Reply space{};
    EXPECT_EQ(tenant_->Call<wire::AddressSpace>({}, &space), CUDA_SUCCESS);
    EXPECT_EQ(tenant_->Call<wire::PhysicalCreate>({wire::PhysicalId{1}, 0, kGranuleBytes}),
              CUDA_SUCCESS);
    const DevicePtr address{space.begin};
    EXPECT_EQ(tenant_->Call<wire::MemMap>({address, kGranuleBytes, wire::PhysicalId{1}, 0}),
              CUDA_SUCCESS);
    EXPECT_EQ(tenant_->Call<wire::MemSetAccess>(
                  {address, kGranuleBytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 0}),
              CUDA_SUCCESS);
    return space.begin;
  }
};

TEST_F(SoftGpuTest, ComputesInOrder) {
  ASSERT_EQ(tenant_->ready.ok, 1u) << tenant_->ready.message;
  ASSERT_TRUE(LoadProgram(tenant_.get()));
  const uint64_t memory = tenant_->Alloc(4096);
  ASSERT_NE(memory, 0u);
  uint32_t* host = Pin(tenant_.get());
  ASSERT_NE(host, nullptr);
  for (uint32_t i = 0; i < 32; ++i) host[i] = i;
  tenant_->Post<wire::Copy>(
      {StreamId{0}, wire::CopyKind::kHostToDevice, memory, reinterpret_cast<uint64_t>(host), 128});
  for (int i = 0; i < 5; ++i) Scale(tenant_.get(), 0, memory, 3);
  ASSERT_TRUE(tenant_->WaitDone(0, CopyOut(tenant_.get(), 0, host, memory)));
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(host[i], i * 243);
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

// CUDA makes these while its caller waits for the stream.
TEST_F(SoftGpuTest, ACopyFromHostToHostKeepsNobodyWaiting) {
  ASSERT_NO_FATAL_FAILURE(MakeNeighbours());
  ASSERT_TRUE(tenant_->CreateStream(1, /*nonblocking=*/true));
  uint32_t* const host = host_;
  const auto at = [host](uint32_t word) { return reinterpret_cast<uint64_t>(host + word); };
  for (uint32_t i = 0; i < 16; ++i) host[128 + i] = i;

  Gate gate(host + 64);
  Hold(tenant_.get(), 1, memory_, gate);
  tenant_->Post<wire::Copy>({StreamId{1}, wire::CopyKind::kHostToHost, at(256), at(128), 64});
  // Two rows of 8 bytes, each 16 bytes behind the one before it.
  wire::CopyBlock::Request block{};
  block.stream = StreamId{1};
  block.copy = {{wire::GraphCopySpace::kHost, 0, at(512), 16, 2, 0, 0, 0},
                {wire::GraphCopySpace::kHost, 0, at(256), 16, 2, 0, 0, 0},
                8,
                2,
                1};
  const Ticket copied = tenant_->Post<wire::CopyBlock>(block);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(NeighbourGoesOn());
  }
  EXPECT_FALSE(tenant_->reader.Done(StreamId{1}, copied));
  EXPECT_EQ(host[257], 0u);
  gate.Open();
  ASSERT_TRUE(tenant_->WaitDone(1, copied));
  for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(host[256 + i], i);
  EXPECT_EQ(host[513], 1u);
  EXPECT_EQ(host[514], 0u) << "not of the block";
  EXPECT_EQ(host[517], 5u);
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

TEST_F(SoftGpuTest, ACopyFromHostToHostOfManyPiecesIsWhole) {
  constexpr uint64_t kRows = 20'000;  // of 8 bytes each; a row counts like a page
  constexpr uint64_t kPitch = 16;
  constexpr uint64_t kBytes = 1u << 20;
  const uint64_t from = tenant_->order.host_range_begin + (1u << 20);
  const uint64_t to = from + kBytes;
  auto* words = reinterpret_cast<uint32_t*>(from);
  for (uint32_t i = 0; i < 2 * kBytes / 4; ++i) words[i] = i < kBytes / 4 ? i * 7 : 0;
  ASSERT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{from}, 2 * kBytes}), CUDA_SUCCESS);
  wire::CopyBlock::Request block{};
  block.copy = {{wire::GraphCopySpace::kHost, 0, to, kPitch, kRows / 2, 0, 0, 0},
                {wire::GraphCopySpace::kHost, 0, from, kPitch, kRows / 2, 0, 0, 0},
                8,
                kRows / 2,
                2};
  ASSERT_TRUE(tenant_->WaitDone(0, tenant_->Post<wire::CopyBlock>(block)));
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < kRows * kPitch / 4; ++i) {
    wrong += words[kBytes / 4 + i] != (i % 4 < 2 ? words[i] : 0);
  }
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(words[kBytes / 4 + kRows * kPitch / 4], 0u);
}

TEST_F(SoftGpuTest, LegacyStreamIsABarrierForBlockingStreamsOnly) {
  ASSERT_TRUE(LoadProgram(tenant_.get()));
  ASSERT_TRUE(tenant_->CreateStream(1, /*nonblocking=*/false));
  ASSERT_TRUE(tenant_->CreateStream(2, /*nonblocking=*/true));
  const uint64_t memory = tenant_->Alloc(4096);
  const uint64_t other = tenant_->Alloc(4096);
  ASSERT_NE(other, 0u);
  uint32_t* host = Pin(tenant_.get());
  ASSERT_NE(host, nullptr);
  Gate gate(host + 64), open(host + 65);
  open.Open();
  tenant_->Post<wire::Fill>({StreamId{0}, 4, 5, 0, memory, 32});
  const Ticket held = Hold(tenant_.get(), 1, memory, gate);   // 5 → 6, then
  const Ticket scaled = Scale(tenant_.get(), 0, memory, 10);  // 6 → 60, then
  const Ticket again = Hold(tenant_.get(), 1, memory, open);  // 60 → 61
  const Ticket free = tenant_->Post<wire::Fill>({StreamId{2}, 4, 1, 0, other, 32});
  ASSERT_TRUE(tenant_->WaitDone(2, free));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{1}, held));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, scaled));
  gate.Open();
  ASSERT_TRUE(tenant_->WaitDone(1, again));
  EXPECT_TRUE(tenant_->reader.Done(StreamId{0}, scaled));
  ASSERT_TRUE(tenant_->WaitDone(0, CopyOut(tenant_.get(), 0, host, memory)));
  EXPECT_EQ(host[0], 61u);
  EXPECT_EQ(host[1], 50u);
}

TEST_F(SoftGpuTest, EventsOrderStreamsWithoutWaitingForWhatComesAfterThem) {
  ASSERT_TRUE(LoadProgram(tenant_.get()));
  ASSERT_TRUE(tenant_->CreateStream(1, true));
  ASSERT_TRUE(tenant_->CreateStream(2, true));
  const uint64_t memory = tenant_->Alloc(4096);
  uint32_t* host = Pin(tenant_.get());
  tenant_->Post<wire::EventCreate>({wire::EventId{1}, 0});
  ASSERT_TRUE(tenant_->WaitDone(1, tenant_->Post<wire::Fill>({StreamId{1}, 4, 0, 0, memory, 32})));
  Gate gate(host + 64), later_gate(host + 65);
  const Ticket first = Hold(tenant_.get(), 1, memory, gate);
  const Ticket record = tenant_->Post<wire::EventRecord>({wire::EventId{1}, StreamId{1}});
  const Ticket second = Hold(tenant_.get(), 1, memory + 512, later_gate);
  tenant_->Post<wire::StreamWaitEvent>({StreamId{2}, wire::EventId{1}});
  const Ticket out = CopyOut(tenant_.get(), 2, host, memory);
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.Done(StreamId{2}, out); }))
      << "the copy did not wait for the kernel before the event";
  gate.Open();
  ASSERT_TRUE(tenant_->WaitDone(2, out)) << "the copy waits for what comes after the event";
  EXPECT_EQ(host[0], 1u);
  EXPECT_TRUE(tenant_->reader.Done(StreamId{1}, first));
  EXPECT_TRUE(tenant_->reader.Done(StreamId{1}, record));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{1}, second));
  // It reads its gate until then.
  later_gate.Open();
  EXPECT_TRUE(tenant_->WaitDone(1, second));
}

// The promise to neighbours of one domain: somebody's long kernel delays nothing of mine. What ends
// while the kernel is held has not waited for it.
TEST_F(SoftGpuTest, NeighboursLongKernelDelaysNothing) {
  ASSERT_TRUE(LoadProgram(tenant_.get()));
  const uint64_t memory = tenant_->Alloc(4096);
  ASSERT_NE(memory, 0u);
  uint32_t* host = Pin(tenant_.get());
  ASSERT_NE(host, nullptr);
  Gate gate(host + 64);
  const Ticket long_kernel = Hold(tenant_.get(), 0, memory, gate);

  auto neighbour = scheduler_.AddTenant();
  const uint64_t large = neighbour->Alloc(16u << 20);
  const uint64_t small = neighbour->Alloc(1000);
  EXPECT_NE(large, 0u);
  EXPECT_NE(small, 0u);
  // The same program: one of its own would wait for the kernel, as quiet.h says.
  EXPECT_TRUE(LoadProgram(neighbour.get()));
  EXPECT_TRUE(neighbour->WaitDone(0, Scale(neighbour.get(), 0, small, 2)));
  EXPECT_NE(Pin(neighbour.get()), nullptr);
  EXPECT_EQ(neighbour->Free(large), CUDA_SUCCESS);
  EXPECT_EQ(neighbour->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  scheduler_.RemoveTenant(*neighbour);
  EXPECT_TRUE(scheduler_.WaitEnded(neighbour->order.session_id).has_value());

  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, long_kernel));
  gate.Open();
  EXPECT_TRUE(tenant_->WaitDone(0, long_kernel));
}

// A kernel of 32 threads that multiplies.
TestingGraph ScaleGraph(uint64_t data, uint32_t factor) {
  const ScaleParams params{data, factor};
  TestingGraph graph;
  graph.AddKernel(kScale, {reinterpret_cast<const uint8_t*>(&params), 12});
  return graph;
}

TEST_F(SoftGpuTest, GraphsComputeAndChange) {
  ASSERT_TRUE(LoadProgram(tenant_.get()));
  const uint64_t memory = tenant_->Alloc(4096);
  uint32_t* host = Pin(tenant_.get());
  TestingGraph graph = ScaleGraph(memory, 3);
  graph.AddHostCall(9);
  graph.AddFill(memory + 4, 1, 1, 0, 77);
  graph.AddEdge(0, 1);
  graph.AddEdge(1, 2);
  ASSERT_EQ(tenant_->Call<wire::GraphInstantiate>({wire::GraphId{1}, 0, HostPtr{0}, 0}, nullptr,
                                                  graph.Block()),
            CUDA_SUCCESS);
  tenant_->Post<wire::Fill>({StreamId{0}, 4, 2, 0, memory, 32});
  const auto run = [&](uint32_t n) {
    tenant_->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
    ASSERT_TRUE(tenant_->Wait([&] { return tenant_->reader.host_functions_due() == n; }));
    EXPECT_EQ(tenant_->reader.HostFunction(n - 1), 9u);
    tenant_->writer.PublishHostFunctionsDone(n);
    channel::RingDoorbell(tenant_->doorbell.get());
    ASSERT_TRUE(tenant_->WaitDone(0, CopyOut(tenant_.get(), 0, host, memory)));
  };
  run(1);
  EXPECT_EQ(host[0], 6u);
  EXPECT_EQ(host[1], 77u);
  ASSERT_EQ(tenant_->Call<wire::GraphUpdate>({wire::GraphId{1}, 0, HostPtr{0}, 0}, nullptr,
                                             ScaleGraph(memory, 5).Block()),
            CUDA_SUCCESS);
  run(2);
  EXPECT_EQ(host[0], 30u);
}

TEST_F(SoftGpuTest, GraphsThatWaitEndWithTheirSession) {
  ASSERT_TRUE(LoadProgram(tenant_.get()));
  const uint64_t memory = tenant_->Alloc(4096);
  tenant_->Post<wire::Fill>({StreamId{0}, 4, 0, 0, memory, 32});
  TestingGraph graph;
  // For values that nobody writes, one after the other; and for a function that nobody runs.
  graph.AddOperation({CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_EQ, memory, 5});
  graph.AddOperation({CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_EQ, memory, 6});
  graph.AddOperation({CU_STREAM_MEM_OP_WAIT_VALUE_64, CU_STREAM_WAIT_VALUE_GEQ, memory + 8, 7});
  graph.AddHostCall(1);
  for (uint32_t i = 1; i < 4; ++i) graph.AddEdge(i - 1, i);
  ASSERT_EQ(tenant_->Call<wire::GraphInstantiate>({wire::GraphId{1}, 0, HostPtr{0}, 0}, nullptr,
                                                  graph.Block()),
            CUDA_SUCCESS);
  const Ticket launch = tenant_->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
  tenant_->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.Done(StreamId{0}, launch); }));
  ExpectDrains();
}

// ---- what a launch waits for, when the tenant changes its mind about it and ends

TEST_F(SoftGpuTest, Malicious_AGraphThatWaitsForAnotherWordSince) {
  const uint64_t memory = tenant_->Alloc(4096);
  LaunchWaitFor(memory);
  ASSERT_EQ(tenant_->Call<wire::GraphUpdate>({wire::GraphId{1}, 0, HostPtr{0}, 0}, nullptr,
                                             WaitFor(memory + 64).Block()),
            CUDA_SUCCESS);
  ExpectDrains();
}

TEST_F(SoftGpuTest, Malicious_AGraphThatWaitsForManyWordsSince) {
  constexpr uint32_t kAnswered = 16;
  const wire::GraphUpdate::Request request{wire::GraphId{1}, 0, HostPtr{0}, 0};
  const uint64_t memory = tenant_->Alloc(8 * (kAnswered + 2));
  LaunchWaitFor(memory);
  tenant_->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
  for (uint32_t i = 1; i <= kAnswered; ++i) {
    ASSERT_EQ(tenant_->Call<wire::GraphUpdate>(request, nullptr, WaitFor(memory + 8 * i).Block()),
              CUDA_SUCCESS);
  }
  // What is not made yet piles up no further.
  const Ticket next =
      tenant_->Post<wire::GraphUpdate>(request, WaitFor(memory + 8 * (kAnswered + 1)).Block(), 5);
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.FindReply(5, next) != nullptr; }));
  ExpectDrains();
}

// The device would wait, and with it whatever its driver waits for.
TEST_F(SoftGpuTest, Malicious_GraphsThatWaitKeepNobodyElse) {
  const uint64_t memory = tenant_->Alloc(4096);
  tenant_->Post<wire::Fill>({StreamId{0}, 4, 0, 0, memory, 32});
  TestingGraph graph = WaitFor(memory);
  graph.AddCopy(memory + 2048, memory + 1024, 64, 1, 1, 64, 1);
  graph.AddEdge(0, 1);
  const std::vector<Ticket> launches = LaunchEach(40, graph);
  auto neighbour = scheduler_.AddTenant();
  ASSERT_TRUE(LoadProgram(neighbour.get()));
  const uint64_t theirs = neighbour->Alloc(4096);
  neighbour->Post<wire::Fill>({StreamId{0}, 4, 1, 0, theirs, 32});
  EXPECT_TRUE(neighbour->WaitDone(0, Scale(neighbour.get(), 0, theirs, 2)));
  tenant_->Post<wire::Fill>({StreamId{0}, 4, 5, 0, memory, 32});
  for (uint32_t i = 1; i <= 40; ++i) EXPECT_TRUE(tenant_->WaitDone(i, launches[i - 1])) << i;
}

// Natively it would be a fault of the device.
TEST_F(SoftGpuTest, Malicious_AGraphThatWaitsInMemoryThatWasFreed) {
  const uint64_t memory = tenant_->Alloc(4096);
  const wire::GraphInstantiate::Request request{wire::GraphId{1}, 0, HostPtr{0}, 0};
  ASSERT_EQ(tenant_->Call<wire::GraphInstantiate>(request, nullptr, WaitFor(memory).Block()),
            CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::MemFree>({DevicePtr{memory}}), CUDA_SUCCESS);
  ASSERT_NE(tenant_->Alloc(4u << 20), 0u);
  const Ticket launch = tenant_->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
  EXPECT_TRUE(tenant_->WaitDone(0, launch));
  EXPECT_EQ(tenant_->reader.async_error_code(), uint32_t{CUDA_ERROR_ILLEGAL_ADDRESS});
}

TEST_F(SoftGpuTest, Malicious_AGraphThatWaitsInMemoryThatIsFreedMeanwhile) {
  const uint64_t memory = tenant_->Alloc(4096);
  LaunchWaitFor(memory);
  tenant_->Post<wire::MemFreeLater>({DevicePtr{memory}});
  ASSERT_NE(tenant_->Alloc(4096), 0u);  // that has been read
  ExpectDrains();
}

TEST_F(SoftGpuTest, Malicious_AGraphThatWaitsInMemoryThatIsUnregisteredMeanwhile) {
  const uint32_t* host = Pin(tenant_.get());
  const auto page = reinterpret_cast<uint64_t>(host);
  LaunchWaitFor(page);
  tenant_->Post<wire::HostUnregister>({HostPtr{page}, 4096}, {}, 3);
  ASSERT_NE(tenant_->Alloc(4096), 0u);  // that has been read
  ExpectDrains();
}

TEST_F(SoftGpuTest, Malicious_AGraphThatWaitsInMemoryThatIsUnmappedMeanwhile) {
  const uint64_t memory = Map();
  LaunchWaitFor(memory);
  tenant_->Post<wire::MemUnmap>({DevicePtr{memory}, kGranuleBytes}, {}, 3);
  ASSERT_NE(tenant_->Alloc(4096), 0u);  // that has been read
  ExpectDrains();
}

TEST_F(SoftGpuTest, Malicious_AGraphThatWaitsInMemoryThatMayNotBeReachedMeanwhile) {
  const uint64_t memory = Map();
  LaunchWaitFor(memory);
  tenant_->Post<wire::MemSetAccess>(
      {DevicePtr{memory}, kGranuleBytes, CU_MEM_ACCESS_FLAGS_PROT_NONE, 0}, {}, 3);
  ASSERT_NE(tenant_->Alloc(4096), 0u);  // that has been read
  ExpectDrains();
}

TEST_F(SoftGpuTest, Malicious_AGraphThatWaitsInAVariableWhoseLibraryIsUnloadedMeanwhile) {
  ASSERT_TRUE(
      LoadProgram(tenant_.get(), std::string(kScaleAndHold) + ".visible .global .u32 word;\n"));
  wire::GlobalGet::Reply variable{};
  const uint8_t name[] = {'w', 'o', 'r', 'd'};
  ASSERT_EQ(tenant_->Call<wire::GlobalGet>({LibraryId{1}}, &variable, name), CUDA_SUCCESS);
  LaunchWaitFor(static_cast<uint64_t>(variable.address));
  ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  ExpectDrains();
}

TEST_F(SoftGpuTest, Malicious_AGraphThatWaitsForWhatNoValueEnds) {
  const uint64_t memory = tenant_->Alloc(4096);
  TestingGraph graph;
  graph.AddOperation({CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_AND, memory, 0});
  graph.AddOperation(
      {CU_STREAM_MEM_OP_WAIT_VALUE_64, CU_STREAM_WAIT_VALUE_NOR, memory, ~uint64_t{0}});
  const std::vector<Ticket> launches = LaunchEach(1, graph);
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.Done(StreamId{1}, launches[0]); }));
  ExpectDrains();
}

// All of them at their turn together, each with more to do behind its wait than a round has room for.
TEST_F(SoftGpuTest, Malicious_ManyNodesThatWait) {
  const uint64_t memory = tenant_->Alloc(4096);
  tenant_->Post<wire::Fill>({StreamId{0}, 4, 0, 0, memory, 32});
  TestingGraph graph;
  for (uint32_t node = 0; node < 512; ++node) {
    graph.AddOperation({CU_STREAM_MEM_OP_WAIT_VALUE_32, CU_STREAM_WAIT_VALUE_EQ, memory, 5});
  }
  const std::vector<Ticket> launches = LaunchEach(4, graph);
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.Done(StreamId{1}, launches[0]); }));
  tenant_->Post<wire::Fill>({StreamId{0}, 4, 5, 0, memory, 32});
  for (uint32_t i = 1; i <= 4; ++i) EXPECT_TRUE(tenant_->WaitDone(i, launches[i - 1])) << i;
}

// A tenant whose kernel runs without end wishes for a moment of quiet, by raising a limit; a neighbour that loads
// nothing computes on.
TEST_F(SoftGpuTest, Malicious_AWishForQuietBesideTheCallersOwnKernel) {
  ComputesBeside(tenant_.get(), nullptr);
}

TEST_F(SoftGpuTest, Malicious_AWishForQuietBesideAnotherProcessesKernel) {
  ComputesBeside(nullptr, tenant_->order.label);
}

TEST_F(SoftGpuTest, Malicious_AWishForQuietBesideAnothersKernel) {
  ComputesBeside(nullptr, nullptr);
}

// A set of multiprocessors that nobody has had is made while nothing runs: who is to have it waits for a neighbour's kernel,
// and nobody else does.
TEST_F(SoftGpuTest, Malicious_ANewSetOfMultiprocessorsBesideAnothersKernel) {
  ASSERT_NO_FATAL_FAILURE(MakeNeighbours());
  const auto limited = scheduler_.AddTenant();
  ASSERT_TRUE(LoadProgram(limited.get()));
  const uint64_t memory = limited->Alloc(4096);
  ASSERT_TRUE(NeighbourGoesOn());
  Gate gate(host_ + 64);
  const Ticket endless = Hold(tenant_.get(), 0, memory_, gate);
  scheduler_.SetPartition(*limited, {0, 0, 25, 0});
  // The executor has the change when it has the next session, and has looked at it when it has polled the neighbour, whose
  // turn in a round comes before that of the limited one; what is sent then is read in the next round.
  const auto later = scheduler_.AddTenant();
  ASSERT_TRUE(NeighbourGoesOn());
  const Ticket waits = Scale(limited.get(), 0, memory, 2);
  for (int step = 0; step < 200; ++step) {
    ASSERT_TRUE(NeighbourGoesOn()) << step;
  }
  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, endless));
  EXPECT_FALSE(limited->reader.Done(StreamId{0}, waits));
  gate.Open();
  EXPECT_TRUE(limited->WaitDone(0, waits));
  EXPECT_TRUE(tenant_->WaitDone(0, endless));
}

// Last: there is no context in this process any more afterwards.
TEST_F(SoftGpuTest, FaultEndsTheContextWithItsOwnCode) {
  auto neighbour = scheduler_.AddTenant();
  ASSERT_TRUE(LoadProgram(tenant_.get()));
  Scale(tenant_.get(), 0, 0x1234'5678'0000, 2);
  for (TestingTenant* one : {tenant_.get(), neighbour.get()}) {
    EXPECT_TRUE(one->Wait([&] { return one->reader.fault() == CUDA_ERROR_ILLEGAL_ADDRESS; }));
  }
  const auto fault = scheduler_.WaitFault();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->result, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(fault->session_id, tenant_->order.session_id);
  EXPECT_EQ(fault->launches, 1u);
  EXPECT_STREQ(fault->function, "scale");
}

}  // namespace
}  // namespace gpuloom::executor
