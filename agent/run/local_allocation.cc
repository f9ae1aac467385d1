// SPDX-License-Identifier: Apache-2.0
#include "agent/run/local_allocation.h"

#include <algorithm>

#include "proto/control/connection.h"

namespace gpuloom::run {
namespace {

// Kept back for the executors' own contexts: 0.6 GiB each on real hardware.
constexpr uint64_t kReserveBytes = uint64_t{1} << 30;
// The most host memory that one command can pin, so that it cannot take the whole machine's.
constexpr uint64_t kPinnedLimitBytes = uint64_t{16} << 30;

// In bytes. A small GPU keeps back no more than an eighth.
uint64_t Quota(const CommandLine& line, uint64_t device_memory_bytes) {
  if (line.memory_bytes) return *line.memory_bytes;
  const uint64_t reserve = std::min(kReserveBytes, device_memory_bytes / 8);
  return (device_memory_bytes - reserve) / kSlotsPerGpu * static_cast<uint64_t>(line.slots);
}

}  // namespace

bool Describe(const CommandLine& line, const std::string& name, const std::string& path,
              uint64_t device_memory_bytes, LocalAllocation* allocation, std::string* error) {
  const uint64_t quota = Quota(line, device_memory_bytes);
  if (quota > device_memory_bytes) {
    *error = "--memory asks for " + std::to_string(quota >> 20) + " MiB, but the GPU has " +
             std::to_string(device_memory_bytes >> 20) + " MiB";
    return false;
  }
  *allocation = {};
  control::AddAllocation& add = allocation->add;
  control::SetText(add.name, name.c_str());
  if (path.size() >= sizeof(add.directory)) {
    *error = "the path " + path + " is too long: choose a shorter --state-dir";
    return false;
  }
  control::SetText(add.directory, path.c_str());
  add.slots = static_cast<uint32_t>(line.slots);
  // Should this process die, the scheduler takes the allocation back.
  add.ends_with_connection = 1;
  control::BindAllocation& bind = allocation->bind;
  control::SetText(bind.name, name.c_str());
  // There is no pod: the random name stands for it, and the program's for the container's.
  control::SetText(bind.pod_namespace, "local");
  control::SetText(bind.pod, name.c_str());
  control::SetText(bind.pod_uid, name.c_str());
  const std::string& program = line.command[0];
  control::SetText(bind.container, program.substr(program.rfind('/') + 1).c_str());
  control::SetText(bind.trust_domain, line.domain.c_str());
  bind.memory_quota_bytes = quota;
  bind.pinned_limit_bytes = kPinnedLimitBytes;
  bind.shares.weight = line.weight;
  bind.shares.priority = line.priority;
  bind.shares.time_permille = 10 * line.time_percent;
  bind.partition.sm_percent = line.sm_percent;
  bind.partition.sm_reserved = line.sm_reserved;
  // Other commands may join its domain at any time.
  if (line.traces) bind.trace = static_cast<uint32_t>(control::TraceTerms::kOwn);
  bind.memory_wait_ms = static_cast<uint32_t>(line.memory_wait.count());
  return true;
}

}  // namespace gpuloom::run
