// SPDX-License-Identifier: Apache-2.0
// A tenant that creates and launches graphs in the real loop, with a driver that needs no GPU. For tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {

class GraphTest : public ::testing::Test {
 protected:
  // Releases everything, so that nothing left by a failed test hangs.
  ~GraphTest() override { TestingDriver::Release(); }
  void SetUp() override { ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx)); }

  wire::Ticket Launch(uint32_t graph, uint32_t stream = 0) {
    return tenant_->Post<wire::GraphLaunch>({wire::GraphId{graph}, wire::StreamId{stream}});
  }
  std::optional<CUresult> Instantiate(uint32_t graph, const TestingGraph& definition,
                                      wire::GraphInstantiate::Reply* reply = nullptr) {
    return tenant_->Call<wire::GraphInstantiate>({wire::GraphId{graph}, 0, wire::HostPtr{0}, 0},
                                                 reply, definition.Block());
  }
  std::optional<CUresult> Update(uint32_t graph, const TestingGraph& update,
                                 wire::GraphUpdate::Reply* reply = nullptr) {
    return tenant_->Call<wire::GraphUpdate>({wire::GraphId{graph}, 0, wire::HostPtr{0}, 0}, reply,
                                            update.Block());
  }
  std::optional<CUresult> InstantiateFromArena(uint32_t graph, const TestingGraph& definition) {
    const std::vector<uint8_t> block = definition.Block();
    const uint64_t address = tenant_->order.host_range_begin + (1u << 20);
    std::memcpy(reinterpret_cast<void*>(address), block.data(), block.size());
    return tenant_->Call<wire::GraphInstantiate>(
        {wire::GraphId{graph}, 0, wire::HostPtr{address}, block.size()});
  }
  bool WaitDue(uint32_t functions) {
    return tenant_->Wait([&] { return tenant_->reader.host_functions_due() == functions; });
  }
  void Ran(uint32_t functions) {
    tenant_->writer.PublishHostFunctionsDone(functions);
    if (tenant_->writer.ExecutorSleeps()) channel::RingDoorbell(tenant_->doorbell.get());
  }
  // A kernel, a host function that depends on it, and a kernel that depends on the function.
  static TestingGraph AroundFunction(uint64_t token) {
    TestingGraph graph;
    graph.AddKernel(1, PlainParams());
    graph.AddHostCall(token);
    graph.AddKernel(1, PlainParams());
    graph.AddEdge(0, 1);
    graph.AddEdge(1, 2);
    return graph;
  }
  // The session has ended cleanly, and nothing of it is left.
  void ExpectDrained() {
    const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->drained, 1u);
    EXPECT_EQ(ended->fatal, 0u);
    auto next = scheduler_.AddTenant();
    EXPECT_TRUE(next->Wait([&] { return TestingDriver::live_graphs() == graphs_before_; }));
  }
  bool WaitGraphs(int live) {
    return tenant_->Wait([&] { return TestingDriver::live_graphs() == live; });
  }

  const Driver& driver_ = TestingDriver::Reset();
  const int graphs_before_ = TestingDriver::live_graphs();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

}  // namespace gpuloom::executor
