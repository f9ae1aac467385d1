// SPDX-License-Identifier: Apache-2.0
// What happened on this machine's GPUs between two looks at their schedulers. Pure functions of what was answered; safe from
// any thread.
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
  std::optional<double> gpu_share;  // of the GPU's time, the copy engines' apart
  std::optional<double> kernels_per_second;
  std::optional<double> queued,
      throttled;  // its work was ready and waited; the part that a ceiling caused
  uint64_t memory_used_bytes = 0, memory_quota_bytes = 0;
  std::string state;
};

struct TopView {
  std::optional<double> seconds;  // between the looks, by the first scheduler's clock
  std::vector<TopGpu> gpus;
  std::vector<TopTenant> tenants;
};

// `before` may be empty. A tenant that was not there then began after it, and so did its figures; the same with a scheduler
// that has been replaced.
TopView Compare(const std::vector<SchedulerFigures>& before,
                const std::vector<SchedulerFigures>& now, TopOrder order);

// A row for each GPU whose scheduler does not answer.
void AddSilent(const std::vector<SchedulerFigures>& silent, TopView* view);

// GPUs are shortened as far as they stay apart. Each line ends with a newline.
std::string FormatTop(const TopView& view);
Json JsonOf(const TopView& view);

}  // namespace gpuloom::run
