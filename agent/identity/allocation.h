// SPDX-License-Identifier: Apache-2.0
// An allocation, made by one Allocate of the kubelet: a directory that is mounted into one container, and its owner.
// Plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/clock.h"
#include "proto/control/messages.h"

namespace gpuloom {

struct PodContainer {
  std::string pod_namespace;
  std::string pod;
  std::string container;  // empty: an init container, whose name the kubelet does not report
  bool operator==(const PodContainer&) const = default;
};

// An allocation's owner and what it was granted, known from its first PreStartContainer on.
struct Binding {
  PodContainer owner;
  std::string trust_domain;
  uint64_t quota_bytes = 0;
  control::ShareTerms shares{};
  uint32_t memory_wait_ms = 0;
  control::PartitionTerms partition{};
  control::KernelTerms kernels{};
  control::TraceTerms trace = control::TraceTerms::kNone;
  uint32_t rescue_after_ms = 0;  // as in control::BindAllocation
  Clock::Time bound_at;
  bool operator==(const Binding&) const = default;
};

// The libraries and programs that a container has mounted, by file name in the shim store.
struct LibraryFiles {
  std::string cuda;
  std::string nvml;        // empty: an older agent gave none
  std::string trace = {};  // gpuloom-trace; the same
};

struct Allocation {
  std::string name;  // 128 random bits in hex: the directory's name and the scheduler's
  std::string gpu_uuid;
  std::vector<std::string> device_ids;  // the kubelet's, sorted
  std::vector<int> slots;               // the GPU's slots; empty: the device IDs name them
  LibraryFiles library_files;           // kept in the store as long as this allocation
  // The size of a slot of "auto" memory when this was made: a promise, whatever --slots has become. 0: an older agent
  // did not record it.
  uint64_t auto_slot_bytes = 0;
  Clock::Time created_at;
  std::optional<Binding> binding;
};

}  // namespace gpuloom
