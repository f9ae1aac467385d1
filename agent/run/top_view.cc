// SPDX-License-Identifier: Apache-2.0
#include "agent/run/top_view.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "agent/answer/table.h"

namespace gpuloom::run {
namespace {

// "GPU-1a2b3c4d…": enough to be told apart, on most machines.
constexpr size_t kShortUuid = 13;

const SchedulerFigures* FindScheduler(const std::vector<SchedulerFigures>& schedulers,
                                      const std::string& folder) {
  const auto found = std::ranges::find(schedulers, folder, &SchedulerFigures::folder);
  return found == schedulers.end() ? nullptr : &*found;
}

// Finds it by name, which is random and never reused: a pod's next allocation is another one.
const control::AllocationState* FindAllocation(const SchedulerFigures* scheduler,
                                               const control::AllocationState& like) {
  if (scheduler == nullptr) return nullptr;
  for (const control::AllocationState& state : scheduler->allocations) {
    if (std::string_view(state.name, control::TextLength(state.name)) ==
        std::string_view(like.name, control::TextLength(like.name))) {
      return &state;
    }
  }
  return nullptr;
}

// The time between two looks at one scheduler, by that scheduler's own clock, and what a figure
// that only grows comes to in it. A scheduler that has been replaced began to count anew: then the
// interval is its whole life.
class Interval {
 public:
  // `before`: null if the scheduler was not there, or is another one by now.
  Interval(const SchedulerFigures* before, const SchedulerFigures& now)
      : is_known_(before != nullptr && before->speaks_3_3 && now.speaks_3_3) {
    if (!is_known_) return;
    // One that has run for less than before is another one.
    is_same_ = now.gpu.running_ns >= before->gpu.running_ns;
    seconds_ =
        static_cast<double>(now.gpu.running_ns - (is_same_ ? before->gpu.running_ns : 0)) / 1e9;
    is_known_ = seconds_ > 0;
  }

  bool is_known() const { return is_known_; }
  bool is_same_scheduler() const { return is_same_; }
  double seconds() const { return seconds_; }
  // Nothing without an interval. A figure that has become smaller began anew, too.
  std::optional<double> PerSecond(uint64_t before, uint64_t now) const {
    if (!is_known_) return std::nullopt;
    const uint64_t grown = is_same_ && now >= before ? now - before : now;
    return static_cast<double>(grown) / seconds_;
  }
  std::optional<double> Part(uint64_t before_ns, uint64_t now_ns) const {
    const std::optional<double> ns = PerSecond(before_ns, now_ns);
    return ns ? std::optional(*ns / 1e9) : std::nullopt;
  }

 private:
  bool is_known_;
  bool is_same_ = false;
  double seconds_ = 0;
};

// Unknown figures have no value.
TopGpu GpuOf(const SchedulerFigures* before, const SchedulerFigures& now,
             const Interval& interval) {
  TopGpu gpu;
  gpu.gpu = now.name();
  gpu.memory_bytes = now.memory_bytes;
  gpu.tenants = now.allocations.size();
  if (!now.speaks_3_3) return gpu;
  gpu.name = Text(now.gpu.name);
  gpu.memory_used_bytes = now.gpu.memory_used_bytes;
  gpu.memory_promised_bytes = now.gpu.memory_promised_bytes;
  gpu.processes = now.gpu.sessions;
  const control::BusyTime was = before == nullptr ? control::BusyTime{} : before->gpu.busy;
  const control::BusyTime& is = now.gpu.busy;
  gpu.busy = interval.Part(was.compute_ns, is.compute_ns);
  gpu.copies_to_device = interval.Part(was.copy_to_device_ns, is.copy_to_device_ns);
  gpu.copies_from_device = interval.Part(was.copy_from_device_ns, is.copy_from_device_ns);
  return gpu;
}

TopTenant TenantOf(const control::AllocationState* before, const control::AllocationState& now,
                   const SchedulerFigures& scheduler, const Interval& interval) {
  TopTenant tenant;
  tenant.pod_namespace = Text(now.pod_namespace);
  tenant.pod = Text(now.pod);
  tenant.container = Text(now.container);
  tenant.gpu = scheduler.name();
  tenant.memory_used_bytes = now.memory_used_bytes;
  tenant.memory_quota_bytes = now.memory_quota_bytes;
  tenant.state = StateOf(now);
  // A tenant that was not there before has all its figures from this interval.
  const control::AllocationState none{};
  const control::AllocationState& was = before == nullptr ? none : *before;
  tenant.gpu_share = interval.Part(was.time.compute_ns, now.time.compute_ns);
  tenant.kernels_per_second = interval.PerSecond(was.kernels_launched, now.kernels_launched);
  tenant.queued = interval.Part(was.time.queue_ns, now.time.queue_ns);
  tenant.throttled = interval.Part(was.time.throttled_ns, now.time.throttled_ns);
  return tenant;
}

void Sort(TopOrder order, std::vector<TopTenant>* tenants) {
  // The most first, and what is not known last.
  // Negated, because sorting is ascending; kName leaves the order to the names.
  const auto rank = [order](const TopTenant& tenant) {
    switch (order) {
      case TopOrder::kTime:
        return -tenant.gpu_share.value_or(-1);
      case TopOrder::kMemory:
        return -static_cast<double>(tenant.memory_used_bytes);
      case TopOrder::kKernels:
        return -tenant.kernels_per_second.value_or(-1);
      case TopOrder::kWait:
        return -tenant.queued.value_or(-1);
      case TopOrder::kName:
        break;
    }
    return 0.0;
  };
  // Equal ranks by name, so that lines do not change places without a reason.
  std::ranges::sort(*tenants, {}, [&](const TopTenant& tenant) {
    return std::tuple(rank(tenant), tenant.pod_namespace, tenant.pod, tenant.container, tenant.gpu);
  });
}

std::string Percent(const std::optional<double>& part) {
  return part ? Decimal(100 * *part) + "%" : kNotSaid;
}

std::string Size(const std::optional<uint64_t>& bytes) {
  return bytes ? RoundedSize(*bytes) : kNotSaid;
}

std::string Count(const std::optional<uint64_t>& number) {
  return number ? std::to_string(*number) : kNotSaid;
}

// How much of the UUIDs tells them apart.
size_t ShortestName(const std::vector<TopGpu>& gpus) {
  size_t longest = 0;
  for (const TopGpu& gpu : gpus) longest = std::max(longest, Letters(gpu.gpu));
  for (size_t letters = kShortUuid; letters < longest; ++letters) {
    std::set<std::string> names;
    for (const TopGpu& gpu : gpus) names.insert(CutToLetters(gpu.gpu, letters));
    if (names.size() == gpus.size()) return letters;
  }
  return longest;
}

}  // namespace

TopView Compare(const std::vector<SchedulerFigures>& before,
                const std::vector<SchedulerFigures>& now, TopOrder order) {
  TopView view;
  for (const SchedulerFigures& scheduler : now) {
    const SchedulerFigures* was = FindScheduler(before, scheduler.folder);
    const Interval interval(was, scheduler);
    if (interval.is_known() && !view.seconds) view.seconds = interval.seconds();
    view.gpus.push_back(GpuOf(was, scheduler, interval));
    for (const control::AllocationState& state : scheduler.allocations) {
      view.tenants.push_back(TenantOf(FindAllocation(was, state), state, scheduler, interval));
    }
  }
  Sort(order, &view.tenants);
  return view;
}

void AddSilent(const std::vector<SchedulerFigures>& silent, TopView* view) {
  for (const SchedulerFigures& scheduler : silent) {
    view->gpus.push_back({});
    view->gpus.back().gpu = scheduler.name();
  }
  std::ranges::stable_sort(view->gpus, {}, &TopGpu::gpu);
}

std::string FormatTop(const TopView& view) {
  const size_t letters = ShortestName(view.gpus);
  std::vector<std::vector<std::string>> gpus = {{"GPU", "NAME", "BUSY", "COPIES-IN", "COPIES-OUT",
                                                 "USED", "PROMISED", "MEMORY", "TENANTS",
                                                 "PROCESSES"}};
  for (const TopGpu& gpu : view.gpus) {
    gpus.push_back({CutToLetters(gpu.gpu, letters), gpu.name.empty() ? kNotSaid : gpu.name,
                    Percent(gpu.busy), Percent(gpu.copies_to_device),
                    Percent(gpu.copies_from_device), Size(gpu.memory_used_bytes),
                    Size(gpu.memory_promised_bytes), Size(gpu.memory_bytes), Count(gpu.tenants),
                    Count(gpu.processes)});
  }
  std::vector<std::vector<std::string>> tenants = {{"NAMESPACE", "POD", "CONTAINER", "GPU",
                                                    "GPU-TIME", "MEMORY", "KERNELS/S", "WAITED",
                                                    "THROTTLED", "STATE"}};
  for (const TopTenant& tenant : view.tenants) {
    tenants.push_back(
        {tenant.pod_namespace, tenant.pod, tenant.container, CutToLetters(tenant.gpu, letters),
         Percent(tenant.gpu_share),
         RoundedSize(tenant.memory_used_bytes) + "/" + RoundedSize(tenant.memory_quota_bytes),
         tenant.kernels_per_second ? Decimal(*tenant.kernels_per_second) : kNotSaid,
         Percent(tenant.queued), Percent(tenant.throttled), tenant.state});
  }
  return FormatTable(gpus) + "\n" + FormatTable(tenants);
}

Json JsonOf(const TopView& view) {
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json json = {
      {"seconds", or_null(view.seconds)}, {"gpus", Json::array()}, {"tenants", Json::array()}};
  for (const TopGpu& gpu : view.gpus) {
    json["gpus"].push_back({{"gpu", gpu.gpu},
                            {"name", gpu.name},
                            {"busy", or_null(gpu.busy)},
                            {"copies_to_device", or_null(gpu.copies_to_device)},
                            {"copies_from_device", or_null(gpu.copies_from_device)},
                            {"memory_used_bytes", or_null(gpu.memory_used_bytes)},
                            {"memory_promised_bytes", or_null(gpu.memory_promised_bytes)},
                            {"memory_bytes", or_null(gpu.memory_bytes)},
                            {"tenants", or_null(gpu.tenants)},
                            {"processes", or_null(gpu.processes)}});
  }
  for (const TopTenant& tenant : view.tenants) {
    json["tenants"].push_back({{"namespace", tenant.pod_namespace},
                               {"pod", tenant.pod},
                               {"container", tenant.container},
                               {"gpu", tenant.gpu},
                               {"state", tenant.state},
                               {"gpu_share", or_null(tenant.gpu_share)},
                               {"memory_used_bytes", tenant.memory_used_bytes},
                               {"memory_quota_bytes", tenant.memory_quota_bytes},
                               {"kernels_per_second", or_null(tenant.kernels_per_second)},
                               {"queued", or_null(tenant.queued)},
                               {"throttled", or_null(tenant.throttled)}});
  }
  return json;
}

}  // namespace gpuloom::run
