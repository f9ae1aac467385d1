// SPDX-License-Identifier: Apache-2.0
// Launches in sections, with the host's turn between them.
#include <gtest/gtest.h>

#include "agent/executor/testing/graph_test_fixture.h"

namespace gpuloom::executor {
namespace {

using wire::GraphId;
using wire::HostPtr;
using wire::StreamId;
using wire::Ticket;

using GraphSectionsTest = GraphTest;

TEST_F(GraphSectionsTest, HostFunctionsRunInTheTenant) {
  TestingGraph graph;
  graph.AddHostCall(41);
  graph.AddHostCall(42);
  graph.AddEdge(0, 1);
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  for (uint32_t round = 0; round < 2; ++round) {
    const Ticket launch = Launch(1);
    for (uint32_t i = 0; i < 2; ++i) {
      const uint32_t n = round * 2 + i;
      ASSERT_TRUE(tenant_->Wait([&] { return tenant_->reader.host_functions_due() == n + 1; }));
      EXPECT_EQ(tenant_->reader.HostFunction(n), 41 + i);
      EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, launch));
      tenant_->writer.PublishHostFunctionsDone(n + 1);
      channel::RingDoorbell(tenant_->doorbell.get());
    }
    EXPECT_TRUE(tenant_->WaitDone(0, launch));
  }
}

// The device waits for no function: what comes behind one is handed over when it has returned.
TEST_F(GraphSectionsTest, FunctionsRunBetweenItsSections) {
  ASSERT_EQ(Instantiate(1, AroundFunction(41)), CUDA_SUCCESS);
  ASSERT_TRUE(tenant_->CreateStream(1, true));
  for (uint32_t round = 1; round <= 3; ++round) {
    TestingDriver::Hold();
    (void)TestingDriver::TakeCalls();
    const Ticket launch = Launch(1);
    ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("graph"); }));
    EXPECT_EQ(tenant_->reader.host_functions_due(), round - 1);
    TestingDriver::Release();
    ASSERT_TRUE(WaitDue(round));
    // What waits for a moment without work does not wait for the function.
    const uint32_t library = round + 1;
    EXPECT_TRUE(tenant_->LoadKernel(library, library, "k", kEmptyPtx));
    EXPECT_TRUE(tenant_->WaitDone(1, tenant_->LaunchPlain(1, 1)));
    EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, launch));
    (void)TestingDriver::TakeCalls();
    Ran(round);
    EXPECT_TRUE(tenant_->WaitDone(0, launch));
    EXPECT_TRUE(TestingDriver::WasCalled("graph"));
  }
}

// The driver would wait for everything before such a copy while it launches the graph.
TEST_F(GraphSectionsTest, CopiesFromHostToHostAreNoneOfTheDevices) {
  const uint64_t from = tenant_->order.host_range_begin + (2u << 20);
  const uint64_t to = from + 4096;
  auto* words = reinterpret_cast<uint32_t*>(from);
  for (uint32_t i = 0; i < 2048; ++i) words[i] = i < 1024 ? i + 1 : 0;
  // ThreadSanitizer does not see that the ring orders this and what the worker does: each side has its own
  // mapping of it. Of a lock that both take it knows.
  const auto word = [words](uint32_t i) {
    (void)TestingDriver::TakeCalls();
    return words[i];
  };
  EXPECT_EQ(word(0), 1u);
  ASSERT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{from}, 8192}), CUDA_SUCCESS);
  TestingGraph graph;
  graph.AddKernel(1, PlainParams());
  graph.AddHostCopy(to, from, 64);
  graph.AddKernel(1, PlainParams());
  graph.AddEdge(0, 1);
  graph.AddEdge(1, 2);
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  TestingDriver::Hold();
  (void)TestingDriver::TakeCalls();
  const Ticket launch = Launch(1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("graph"); }));
  EXPECT_EQ(word(1024), 0u);
  TestingDriver::Release();
  ASSERT_TRUE(tenant_->WaitDone(0, launch));
  EXPECT_EQ(word(1024 + 15), 16u);
  EXPECT_EQ(word(1024 + 16), 0u);

  TestingGraph update;
  update.AddHostCopy(to + 256, from, 64);
  update.Rename(0, 1);
  EXPECT_EQ(Update(1, update), CUDA_SUCCESS);
  ASSERT_TRUE(tenant_->WaitDone(0, Launch(1)));
  EXPECT_EQ(word(1024 + 64), 1u);

  TestingGraph off;
  off.AddHostCopy(to + 512, from, 64);
  off.Rename(0, 1);
  off.Disable(0);
  EXPECT_EQ(Update(1, off), CUDA_SUCCESS);
  ASSERT_TRUE(tenant_->WaitDone(0, Launch(1)));
  EXPECT_EQ(word(1024 + 128), 0u);

  TestingGraph other;
  const uint64_t memory = tenant_->Alloc(4096);
  other.AddCopy(memory, memory + 2048, 64, 1, 1, 64, 1);
  other.Rename(0, 1);
  EXPECT_EQ(Update(1, other), CUDA_ERROR_INVALID_VALUE) << "another kind of memory";
}

TEST_F(GraphSectionsTest, LaunchesOfOneGraphDoNotMixTheirSections) {
  ASSERT_EQ(Instantiate(1, AroundFunction(41)), CUDA_SUCCESS);
  ASSERT_TRUE(tenant_->CreateStream(1, true));
  ASSERT_TRUE(tenant_->CreateStream(2, true));
  const Ticket first = Launch(1, 1);
  ASSERT_TRUE(WaitDue(1));
  (void)TestingDriver::TakeCalls();
  const Ticket second = Launch(1, 2);
  // Between the two, under the token that the second shall have.
  TestingGraph update;
  update.AddHostCall(42);
  update.Rename(0, 1);
  ASSERT_TRUE(tenant_->CreateStream(3, true));
  EXPECT_TRUE(tenant_->WaitDone(3, tenant_->LaunchPlain(3, 1)));
  EXPECT_FALSE(TestingDriver::WasCalled("graph"));
  EXPECT_EQ(tenant_->reader.host_functions_due(), 1u);
  Ran(1);
  EXPECT_TRUE(tenant_->WaitDone(1, first));
  ASSERT_TRUE(WaitDue(2));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{2}, second));
  Ran(2);
  EXPECT_TRUE(tenant_->WaitDone(2, second));
  ASSERT_EQ(Update(1, update), CUDA_SUCCESS);
  Launch(1, 1);
  ASSERT_TRUE(WaitDue(3));
  EXPECT_EQ(tenant_->reader.HostFunction(1), 41u);
  EXPECT_EQ(tenant_->reader.HostFunction(2), 42u);
}

TEST_F(GraphSectionsTest, LaunchesOfOneGraphRunAsTheyCame) {
  TestingGraph graph;
  graph.AddHostCall(41);
  graph.AddKernel(1, PlainParams());
  graph.AddEdge(0, 1);
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  ASSERT_TRUE(tenant_->CreateStream(1, true));
  ASSERT_TRUE(tenant_->CreateStream(2, true));
  ASSERT_TRUE(tenant_->CreateStream(3, true));
  TestingDriver::Hold();
  tenant_->LaunchPlain(1, 1);
  const Ticket first = Launch(1, 1);
  const Ticket second = Launch(1, 2);
  // Nothing stands before the second in its stream.
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.host_functions_due() != 0; }));
  TestingDriver::Release();
  ASSERT_TRUE(WaitDue(1));
  Ran(1);
  ASSERT_TRUE(WaitDue(2));
  EXPECT_TRUE(tenant_->reader.Done(StreamId{1}, first));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{2}, second));
  Ran(2);
  EXPECT_TRUE(tenant_->WaitDone(2, second));
}

TEST_F(GraphSectionsTest, AnUpdateWaitsForTheLastSectionOfTheLaunchesBeforeIt) {
  TestingGraph graph;
  graph.AddHostCall(41);
  graph.AddKernel(1, PlainParams());
  graph.AddEdge(0, 1);
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  ASSERT_TRUE(tenant_->CreateStream(1, true));
  Launch(1);
  ASSERT_TRUE(WaitDue(1));
  TestingGraph update;
  update.AddKernel(1, PlainParams());
  update.Rename(0, 1);
  (void)TestingDriver::TakeCalls();
  const Ticket updated =
      tenant_->Post<wire::GraphUpdate>({GraphId{1}, 0, HostPtr{0}, 0}, update.Block(), 3);
  EXPECT_TRUE(tenant_->WaitDone(1, tenant_->LaunchPlain(1, 1)));
  EXPECT_FALSE(TestingDriver::WasCalled("update"));
  Ran(1);
  EXPECT_TRUE(tenant_->Wait([&] { return tenant_->reader.FindReply(3, updated) != nullptr; }));
  EXPECT_TRUE(TestingDriver::WasCalled("update"));
}

TEST_F(GraphSectionsTest, ASessionThatEndsBetweenSectionsDrains) {
  ASSERT_EQ(Instantiate(1, AroundFunction(1)), CUDA_SUCCESS);
  TestingDriver::Hold();
  (void)TestingDriver::TakeCalls();
  Launch(1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("graph"); }));
  tenant_->doorbell.Reset();
  // It has work at the device, and ends when that is done. Whoever comes later is served behind the hang-up.
  const auto late = scheduler_.AddTenant();
  EXPECT_TRUE(late->Never([&] {
    return scheduler_.WaitEnded(tenant_->order.session_id, std::chrono::milliseconds(0))
        .has_value();
  }));
  TestingDriver::Release();
  ExpectDrained();
}

TEST_F(GraphSectionsTest, ASessionThatEndsInAHostFunctionDrains) {
  TestingGraph graph;
  graph.AddHostCall(1);
  graph.AddHostCall(2);
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  Launch(1);
  ASSERT_TRUE(WaitDue(2)) << "neither needs the other";
  tenant_->doorbell.Reset();
  ExpectDrained();
}

}  // namespace
}  // namespace gpuloom::executor
