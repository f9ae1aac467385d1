// SPDX-License-Identifier: Apache-2.0
// Tenants with a kernel in the real loop, with a driver that needs no GPU. For tests.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {

class TenantTest : public ::testing::Test {
 protected:
  // Releases everything, so that nothing left by a failed test hangs.
  ~TenantTest() override { TestingDriver::Release(); }

  std::unique_ptr<TestingTenant> AddTenant() {
    auto tenant = scheduler_.AddTenant();
    EXPECT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
    return tenant;
  }
  static bool IsDone(const TestingTenant& tenant, wire::Ticket ticket) {
    return tenant.reader.Done(wire::StreamId{0}, ticket);
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = AddTenant();
};

}  // namespace gpuloom::executor
