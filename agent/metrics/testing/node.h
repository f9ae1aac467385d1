// SPDX-License-Identifier: Apache-2.0
// A state directory, and a scheduler that reports what a test says, for tests of those that ask one. `report` is
// guarded by `mutex`: another thread may be asking.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>

#include "agent/metrics/observer.h"
#include "agent/metrics/testing/reports.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class ReportingScheduler : public SchedulerClient {
 public:
  absl::Status AddAllocation(const std::string&, const std::string&, int) override { return No(); }
  absl::Status BindAllocation(const BindOrder&) override { return No(); }
  absl::Status PrepareExecutor(const std::string&) override { return No(); }
  absl::Status RemoveAllocation(const std::string&) override { return No(); }
  absl::StatusOr<std::vector<std::string>> ListAllocations() override { return No(); }
  absl::StatusOr<std::vector<UnsupportedCalls>> ListUnsupported() override { return No(); }
  bool IsConnected() override { return true; }
  absl::StatusOr<GpuReport> Report() override {
    const MutexLock lock(mutex);
    return report;
  }

  Mutex mutex;
  absl::StatusOr<GpuReport> report = GpuReport{};

 private:
  static absl::Status No() { return absl::UnimplementedError("nobody asks for this here"); }
};

class MetricsNode : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "metricsXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    state_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(state_); }

  Observer::Options Options() {
    Observer::Options options;
    options.state_directory = state_;
    options.gpu_uuids = {kGpu};
    options.connect =
        [this](const std::string& directory) -> absl::StatusOr<std::shared_ptr<SchedulerClient>> {
      EXPECT_EQ(directory, state_ + "/gpus/" + kGpu);
      ++connections_;
      if (scheduler_ == nullptr) return absl::NotFoundError("scheduler: nobody listens");
      return std::shared_ptr<SchedulerClient>(scheduler_);
    };
    options.node = [] {
      NodeFigures node;
      node.gpus.emplace_back().gpu.uuid = kGpu;
      return node;
    };
    return options;
  }
  void Report(uint64_t factor, double running_s) {
    control::AllocationState state = AllocationOf("a1", "red", "p");
    Use(&state, factor);
    const MutexLock lock(scheduler_->mutex);
    scheduler_->report = ReportOf({state}, running_s);
  }

  std::string state_;
  std::shared_ptr<ReportingScheduler> scheduler_ = std::make_shared<ReportingScheduler>();
  int connections_ = 0;
};

}  // namespace gpuloom
