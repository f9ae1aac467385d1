// SPDX-License-Identifier: Apache-2.0
// What happened on this machine's GPUs between two queries of their schedulers. Pure functions of the answers; safe
// from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/answer/output.h"
#include "agent/run/scheduler_figures.h"

namespace gpuloom::run {

enum class TopOrder { kTime, kMemory, kKernels, kWait, kName };
inline constexpr const char* kTopOrders[] = {"time", "memory", "kernels", "wait", "name"};

// Parts of the time between the looks. Executors tell their figures once a second, so those of a short interval jump.
// Nothing: not known, because the scheduler does not answer or is of an older release, or there was no look before.
struct TopGpu {
  std::string gpu, name;
  std::optional<double> busy, copies_to_device, copies_from_device;
  std::optional<uint64_t> memory_used_bytes, memory_promised_bytes;
  std::optional<uint64_t> memory_bytes;
  std::optional<uint64_t> tenants, processes;
};

struct TopTenant {
  std::string pod_namespace, pod, container, gpu;
  std::optional<double> gpu_share;  // of the GPU's time, without that of the copy engines
  std::optional<double> kernels_per_second;
  std::optional<double> queued,
      throttled;  // time in which its work was ready but waited; the part of it that a limit caused
  uint64_t memory_used_bytes = 0, memory_quota_bytes = 0;
  std::string state;
};

struct TopView {
  std::optional<double> seconds;  // between the queries, by the first scheduler's clock
  std::vector<TopGpu> gpus;
  std::vector<TopTenant> tenants;
};

// `before` may be empty. The figures of a tenant that is not in it, or of a scheduler that has been replaced since,
// count from zero.
TopView Compare(const std::vector<SchedulerFigures>& before,
                const std::vector<SchedulerFigures>& now, TopOrder order);

// A row for each GPU whose scheduler does not answer.
void AddSilent(const std::vector<SchedulerFigures>& silent, TopView* view);

// GPUs are shortened as far as they stay apart. Each line ends with a newline.
std::string FormatTop(const TopView& view);
Json JsonOf(const TopView& view);

}  // namespace gpuloom::run
