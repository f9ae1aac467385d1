// SPDX-License-Identifier: Apache-2.0
// Commands for which CUDA makes no stream, because the device has no memory for it: each fails, and whatever waits for
// it goes on.
#include <gtest/gtest.h>

#include <atomic>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::EventId;
using wire::GraphId;
using wire::StreamId;

class RefusedStreamTest : public ::testing::Test {
 protected:
  static Driver ThatMayBeFull() {
    Driver driver = TestingDriver::Reset();
    is_full_ = false;
    make_ = driver.cuStreamCreateWithPriority;
    driver.cuStreamCreateWithPriority = [](CUstream* stream, unsigned flags, int priority) {
      return is_full_ ? CUDA_ERROR_OUT_OF_MEMORY : make_(stream, flags, priority);
    };
    return driver;
  }
  // Until the command has failed; then there is room again.
  template <wire::Command C>
  void PostWhileFull(const typename C::Request& request) {
    is_full_ = true;
    tenant_->Post<C>(request);
    EXPECT_TRUE(tenant_->Wait([&] { return tenant_->reader.async_error_count() == 1; }));
    is_full_ = false;
  }

  static inline std::atomic<bool> is_full_;
  static inline decltype(Driver::cuStreamCreateWithPriority) make_;
  const Driver driver_ = ThatMayBeFull();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(RefusedStreamTest, AnEventIsRecordedForWhoeverWaitsForIt) {
  const auto neighbour = scheduler_.AddTenant();
  ASSERT_TRUE(neighbour->LoadKernel(1, 1, "k", kEmptyPtx));
  tenant_->Post<wire::EventCreate>({EventId{1}, 0});
  wire::EventShare::Reply shared = {};
  ASSERT_EQ(tenant_->Call<wire::EventShare>({EventId{1}}, &shared), CUDA_SUCCESS);
  ASSERT_EQ(neighbour->Call<wire::EventOpen>({EventId{1}, 0, shared.token}), CUDA_SUCCESS);
  PostWhileFull<wire::EventRecord>({EventId{1}, StreamId{0}});
  neighbour->Post<wire::StreamWaitEvent>({StreamId{0}, EventId{1}});
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
  EXPECT_EQ(neighbour->Call<wire::EventDone>({EventId{1}, 1}), CUDA_SUCCESS);
  EXPECT_EQ(neighbour->reader.async_error_count(), 0u);
}

TEST_F(RefusedStreamTest, AGraphIsUpdatedAfterwards) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingGraph graph;
  graph.AddKernel(1, PlainParams());
  ASSERT_EQ(tenant_->Call<wire::GraphInstantiate>({GraphId{1}, 0, wire::HostPtr{0}, 0}, nullptr,
                                                  graph.Block()),
            CUDA_SUCCESS);
  PostWhileFull<wire::GraphLaunch>({GraphId{1}, StreamId{0}});
  TestingGraph update;
  update.AddKernel(1, PlainParams());
  update.Rename(0, 0);
  EXPECT_EQ(tenant_->Call<wire::GraphUpdate>({GraphId{1}, 0, wire::HostPtr{0}, 0}, nullptr,
                                             update.Block()),
            CUDA_SUCCESS);
  EXPECT_TRUE(tenant_->WaitDone(0, tenant_->Post<wire::GraphLaunch>({GraphId{1}, StreamId{0}})));
  EXPECT_EQ(tenant_->reader.async_error_count(), 1u);
}

// More than there are without memory for more: their work fails, at once, and that of the others does not.
TEST_F(RefusedStreamTest, Malicious_StreamsBeyondWhatTheDriverHasFailAlone) {
  const auto neighbour = scheduler_.AddTenant();
  for (TestingTenant* tenant : {tenant_.get(), neighbour.get()}) {
    ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
  }
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
  is_full_ = true;
  for (uint32_t stream = 1; stream <= 200; ++stream) {
    ASSERT_TRUE(tenant_->CreateStream(stream, /*nonblocking=*/true));
    ASSERT_TRUE(tenant_->WaitDone(stream, tenant_->LaunchPlain(stream, 1))) << stream;
  }
  EXPECT_NE(tenant_->reader.async_error_count(), 0u);
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
  EXPECT_EQ(neighbour->reader.async_error_count(), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
