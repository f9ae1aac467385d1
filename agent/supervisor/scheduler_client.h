// SPDX-License-Identifier: Apache-2.0
// The agent's interface to one GPU's scheduler; control_client.h is the real implementation. Safe from any thread.
// Arguments are used during the call only, and answers are copies.
// Every call is bounded in time and repeatable: adding or binding again what is there already is not an error.
// Unavailable (message starts "scheduler:") means that the connection is lost for good: the supervisor finds or
// starts another scheduler and gives it all allocations again. Any other failure is a refusal, in the scheduler's
// words.
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
  // Schedulers before version 3.2 of the control protocol do not know these two.
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

// The unsupported CUDA features that an allocation's programs have asked for.
struct UnsupportedCalls {
  std::string allocation;
  std::string pod_namespace;
  std::string pod;
  std::string container;
  std::vector<std::string> names;
};

// What a scheduler knows about its GPU and all its tenants. Schedulers before control 3.3 report nothing about the GPU
// (`tells_gpu` is false).
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
  // Asks for the domain's executor to be ready, because a program of the bound allocation is about to start. A hint: if
  // it is refused, the program's first call waits for the executor.
  virtual absl::Status PrepareExecutor(const std::string& name) = 0;
  virtual absl::Status RemoveAllocation(const std::string& name) = 0;
  // The names of the allocations that the scheduler knows.
  virtual absl::StatusOr<std::vector<std::string>> ListAllocations() = 0;
  // The unsupported features of all allocations that the scheduler knows.
  virtual absl::StatusOr<std::vector<UnsupportedCalls>> ListUnsupported() = 0;
  virtual absl::StatusOr<GpuReport> Report() = 0;
  // False once the scheduler has hung up. Never blocks.
  virtual bool IsConnected() = 0;
};

}  // namespace gpuloom
