// SPDX-License-Identifier: Apache-2.0
// What the agent asks of one GPU's scheduler. The interface; control_client.h is the real one. Safe
// from any thread. Every call is bounded in time and repeatable: adding or binding again what is
// there already is no error. Unavailable (message starts "scheduler:") means that the connection is
// gone and stays gone: the supervisor finds or starts another scheduler and tells it everything
// anew. Any other failure is a refusal, in the scheduler's words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/control/messages.h"

namespace gpuloom {

struct BindOrder {
  std::string name;  // the allocation
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::string trust_domain;
  uint64_t memory_quota_bytes = 0;
  uint64_t pinned_limit_bytes = 0;
  // Schedulers before control 3.2 do not know these two.
  control::ShareTerms shares{};
  uint32_t memory_wait_ms = 0;
  // Those before 3.4 do not know these two.
  control::KernelTerms kernels{};
  control::PartitionTerms partition{};
  // Those before 3.6 do not know this.
  control::TraceTerms trace = control::TraceTerms::kNone;
  // Those before 3.7 do not know this. As in control::BindAllocation.
  uint32_t rescue_after_ms = 0;
};

// What an allocation's programs have asked of CUDA that is not supported.
struct UnsupportedCalls {
  std::string allocation;
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::vector<std::string> names;
};

// What a scheduler knows of its GPU and of all who use it. Schedulers before control 3.3 say nothing of the GPU.
struct GpuReport {
  bool tells_gpu = false;
  control::GpuState gpu{};
  std::vector<control::DomainState> domains;
  std::vector<control::AllocationState> allocations;
};

class SchedulerClient {
 public:
  virtual ~SchedulerClient() = default;
  // Makes gpuloom.sock in the directory. Sessions there are refused until the allocation is bound.
  virtual absl::Status AddAllocation(const std::string& name, const std::string& directory,
                                     int slots) = 0;
  virtual absl::Status BindAllocation(const BindOrder& order) = 0;
  // A program of the bound allocation is about to start: have its domain's executor ready. Advice; a
  // refusal means only that the program's first call will wait for it.
  virtual absl::Status PrepareExecutor(const std::string& name) = 0;
  virtual absl::Status RemoveAllocation(const std::string& name) = 0;
  // Names of the allocations that the scheduler knows.
  virtual absl::StatusOr<std::vector<std::string>> ListAllocations() = 0;
  // Of all allocations that the scheduler knows.
  virtual absl::StatusOr<std::vector<UnsupportedCalls>> ListUnsupported() = 0;
  virtual absl::StatusOr<GpuReport> Report() = 0;
  // False once the scheduler has hung up. Never blocks.
  virtual bool IsConnected() = 0;
};

}  // namespace gpuloom
