// SPDX-License-Identifier: Apache-2.0
#include <inttypes.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "tests/bench/kernels.h"
#include "tests/bench/lines.h"
#include "tests/bench/report.h"
#include "tests/bench/work_counts.h"

namespace gpuloom::bench {
namespace {

constexpr uint64_t kWindowNs = 100'000'000;
// Work begins so long before what is counted, so that all are at work when it begins.
constexpr uint64_t kWarmNs = 200'000'000;
constexpr uint32_t kThreads = 128;

void SleepUntil(uint64_t when_ns) {
  timespec when{};
  when.tv_sec = static_cast<time_t>(when_ns / 1'000'000'000);
  when.tv_nsec = static_cast<long>(when_ns % 1'000'000'000);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, nullptr) != 0) {
  }
}

// Launches of one kind, and the order in which they end. From one thread.
class Launches {
 public:
  Launches(Gpu& gpu, const Work& work) : gpu_(gpu), work_(work), iterations_(work.iterations) {}

  // False with the error kept in the Gpu. Calibrates where `work` does not say the iterations.
  bool Start(const Plan& plan);

  uint32_t iterations() const { return iterations_; }
  double kernel_us() const { return kernel_us_; }
  int multiprocessors() const { return multiprocessors_; }
  uint64_t kernels_a_launch() const {
    return work_.graph_kernels > 0 ? static_cast<uint64_t>(work_.graph_kernels) : 1;
  }

  // One launch, by itself. 0 when it failed.
  double AloneUs();
  // Keeps `queued` launches in flight, and tells `ended` of each end, until that says false; what is in flight then
  // ends uncounted.
  template <typename Ended>
  bool KeepQueued(const Ended& ended) {
    bool more = true;
    while (more && !gpu_.failed()) {
      while (in_flight_ < static_cast<int>(events_.size()) && LaunchOne()) {
      }
      more = WaitForOldest() && ended();
    }
    while (in_flight_ > 0 && WaitForOldest()) {
    }
    return !gpu_.failed();
  }

 private:
  bool Calibrate(const Plan& plan);
  bool MakeGraph();
  bool LaunchOne();
  bool WaitForOldest();
  CUresult LaunchKernel(uint32_t iterations);
  uint32_t SharedBytes();
  double TimeOf(uint32_t iterations, int times);
  double KernelAmongOthersUs(int launches);

  Gpu& gpu_;
  const Work work_;
  CUfunction kernel_ = nullptr;
  CUgraphExec graph_ = nullptr;
  CUdeviceptr out_ = 0;
  int multiprocessors_ = 1;
  uint32_t blocks_ = 1;
  uint32_t shared_bytes_ = 0;
  uint32_t shapes_ = 0;  // how many launches have changed
  uint32_t iterations_;
  double kernel_us_ = 0;
  std::vector<CUevent> events_;  // of the launches in flight, as a ring
  size_t oldest_ = 0;
  int in_flight_ = 0;
};

bool Launches::Start(const Plan& plan) {
  const Driver& cu = gpu_.cu();
  CUdevice device = 0;
  CUmodule module = nullptr;
  int multiprocessors = 0;
  int shared_bytes = 0;
  if (!gpu_.Ok(cu.cuCtxGetDevice(&device), "cuCtxGetDevice") ||
      !gpu_.Ok(cu.cuDeviceGetAttribute(&multiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
                                       device),
               "cuDeviceGetAttribute") ||
      !gpu_.Ok(cu.cuDeviceGetAttribute(
                   &shared_bytes, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device),
               "cuDeviceGetAttribute") ||
      !gpu_.Ok(cu.cuModuleLoadData(&module, kWorkKernel), "cuModuleLoadData") ||
      !gpu_.Ok(cu.cuModuleGetFunction(&kernel_, module, "work"), "cuModuleGetFunction") ||
      !gpu_.Ok(cu.cuFuncSetAttribute(kernel_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                     shared_bytes),
               "cuFuncSetAttribute")) {
    return false;
  }
  multiprocessors_ = plan.Times(multiprocessors, 1);
  blocks_ = static_cast<uint32_t>(work_.blocks == 0 ? multiprocessors_ : work_.blocks);
  shared_bytes_ = static_cast<uint32_t>(shared_bytes);
  if (!gpu_.Ok(cu.cuMemAlloc_v2(&out_, size_t{blocks_} * 4), "cuMemAlloc")) return false;
  // Who waits for single launches wants to know at once; with some in flight there is time to wake up, and many
  // processes that poll would keep the processors from each other.
  const bool requests = work_.busy_percent > 0;
  events_.resize(requests ? 1 : static_cast<size_t>(work_.queued));
  for (CUevent& event : events_) {
    unsigned flags = CU_EVENT_DISABLE_TIMING;
    if (events_.size() > 1) flags |= CU_EVENT_BLOCKING_SYNC;
    if (!gpu_.Ok(cu.cuEventCreate(&event, flags), "cuEventCreate")) return false;
  }
  if (iterations_ == 0 && !Calibrate(plan)) return false;
  // Code is loaded lazily: not while others are measured.
  return MakeGraph() && LaunchOne() && WaitForOldest();
}

// Of the next launch: always more than half of the most, so that no two blocks fit into a multiprocessor.
uint32_t Launches::SharedBytes() {
  constexpr uint32_t kStep = 16;
  return work_.changing ? shared_bytes_ - shapes_++ % (shared_bytes_ / 4 / kStep) * kStep
                        : shared_bytes_;
}

CUresult Launches::LaunchKernel(uint32_t iterations) {
  void* parameters[] = {&out_, &iterations};
  const uint32_t shared_bytes = SharedBytes();
  if (work_.cooperative) {
    return gpu_.cu().cuLaunchCooperativeKernel(kernel_, blocks_, 1, 1, kThreads, 1, 1, shared_bytes,
                                               gpu_.stream(), parameters);
  }
  return gpu_.cu().cuLaunchKernel(kernel_, blocks_, 1, 1, kThreads, 1, 1, shared_bytes,
                                  gpu_.stream(), parameters, nullptr);
}

// The shortest of so many, in nanoseconds.
double Launches::TimeOf(uint32_t iterations, int times) {
  double shortest_ns = 1e18;
  for (int i = 0; i < times && !gpu_.failed(); ++i) {
    const uint64_t start_ns = NowNs();
    if (!gpu_.Ok(LaunchKernel(iterations), "cuLaunchKernel") || !gpu_.Synchronize()) break;
    shortest_ns = std::min(shortest_ns, static_cast<double>(NowNs() - start_ns));
  }
  return shortest_ns;
}

double Launches::KernelAmongOthersUs(int launches) {
  int ended = 0;
  const uint64_t start_ns = NowNs();
  uint64_t end_ns = start_ns;
  KeepQueued([&] {
    end_ns = NowNs();
    return ++ended < launches;
  });
  return static_cast<double>(end_ns - start_ns) / 1e3 / std::max(ended, 1);
}

bool Launches::Calibrate(const Plan& plan) {
  // The clock rises only under load.
  const uint64_t warm_until_ns = NowNs() + static_cast<uint64_t>(plan.Times(200, 0)) * 1'000'000;
  do {
    if (TimeOf(1000, 1) > 1e17) return false;
  } while (NowNs() < warm_until_ns);
  // Long enough that what a launch costs besides its iterations is little of it.
  const double long_ns = plan.Times(5'000'000, 1'000'000);
  uint32_t some = 16;
  while (some < (1u << 26) && TimeOf(some, 1) < long_ns && !gpu_.failed()) some *= 2;
  const int times = plan.Times(5, 3);
  const double some_ns = TimeOf(some, times);
  const double twice_ns = TimeOf(2 * some, times);
  if (gpu_.failed()) return false;
  // A launch costs little besides, so this is near some_ns: a machine that was busy during one of the two must not
  // make an iteration look as if it took nothing.
  const double one_ns = std::clamp(twice_ns - some_ns, some_ns / 2, some_ns) / some;
  const double first = std::max(1.0, work_.kernel_us * 1e3 / one_ns);
  iterations_ = static_cast<uint32_t>(std::min(first, 4e9));
  // Once more with what a kernel costs besides, which its neighbours wait for, too. A busy machine must not turn the
  // kernel into another.
  const int launches = plan.Times(std::max(3, static_cast<int>(200e3 / work_.kernel_us)), 5);
  const double measured_us = KernelAmongOthersUs(launches);
  if (gpu_.failed()) return false;
  const double corrected = first + (work_.kernel_us - measured_us) * 1e3 / one_ns;
  iterations_ = static_cast<uint32_t>(
      std::clamp(corrected, std::max(1.0, first / 2), std::min(first * 2, 4e9)));
  kernel_us_ = KernelAmongOthersUs(launches);
  return !gpu_.failed();
}

bool Launches::MakeGraph() {
  if (work_.graph_kernels == 0) return true;
  const Driver& cu = gpu_.cu();
  CUgraph graph = nullptr;
  CUgraphNode last = nullptr;
  if (!gpu_.Ok(cu.cuGraphCreate(&graph, 0), "cuGraphCreate")) return false;
  void* parameters[] = {&out_, &iterations_};
  CUDA_KERNEL_NODE_PARAMS node = {};
  node.func = kernel_;
  node.gridDimX = blocks_;
  node.blockDimX = kThreads;
  node.gridDimY = node.gridDimZ = node.blockDimY = node.blockDimZ = 1;
  node.sharedMemBytes = shared_bytes_;
  node.kernelParams = parameters;
  for (int i = 0; i < work_.graph_kernels; ++i) {
    const CUgraphNode before = last;
    if (!gpu_.Ok(cu.cuGraphAddKernelNode_v2(&last, graph, &before, i == 0 ? 0 : 1, &node),
                 "cuGraphAddKernelNode")) {
      return false;
    }
  }
  return gpu_.Ok(cu.cuGraphInstantiateWithFlags(&graph_, graph, 0), "cuGraphInstantiate");
}

bool Launches::LaunchOne() {
  const size_t at = (oldest_ + static_cast<size_t>(in_flight_)) % events_.size();
  const bool launched =
      graph_ != nullptr ? gpu_.Ok(gpu_.cu().cuGraphLaunch(graph_, gpu_.stream()), "cuGraphLaunch")
                        : gpu_.Ok(LaunchKernel(iterations_), "cuLaunchKernel");
  if (!launched || !gpu_.Ok(gpu_.cu().cuEventRecord(events_[at], gpu_.stream()), "cuEventRecord")) {
    return false;
  }
  ++in_flight_;
  return true;
}

bool Launches::WaitForOldest() {
  if (!gpu_.Ok(gpu_.cu().cuEventSynchronize(events_[oldest_]), "cuEventSynchronize")) return false;
  oldest_ = (oldest_ + 1) % events_.size();
  --in_flight_;
  return true;
}

double Launches::AloneUs() {
  const uint64_t start_ns = NowNs();
  return LaunchOne() && WaitForOldest() ? static_cast<double>(NowNs() - start_ns) / 1e3 : 0;
}

// Of so many requests, sorted.
std::vector<double> SamplesAloneUs(Launches& launches, int times) {
  std::vector<double> samples;
  for (int i = 0; i < times; ++i) samples.push_back(launches.AloneUs());
  std::sort(samples.begin(), samples.end());
  return samples;
}

std::string Field(const char* key, double value) {
  char text[64];
  std::snprintf(text, sizeof(text), ",\"%s\":%.6g", key, value);
  return text;
}

// Requests until all windows are over; their latencies, for the report.
std::string SendRequests(Gpu& gpu, Launches& launches, WindowCounts& counts, RandomPauses& pauses,
                         uint64_t start_ns) {
  std::vector<double> latencies_us;
  while (!gpu.failed()) {
    const uint64_t next_ns = NowNs() + pauses.NextNs();
    if (next_ns >= counts.end_ns()) break;
    SleepUntil(next_ns);
    const double latency_us = launches.AloneUs();
    counts.Add(NowNs(), launches.kernels_a_launch());
    if (next_ns >= start_ns) latencies_us.push_back(latency_us);
  }
  std::string text = ",\"requests\":" + std::to_string(latencies_us.size());
  if (latencies_us.empty()) return text;
  std::sort(latencies_us.begin(), latencies_us.end());
  return text + Field("p50_us", Percentile(latencies_us, 0.5)) +
         Field("p99_us", Percentile(latencies_us, 0.99)) + Field("longest_us", latencies_us.back());
}

}  // namespace

bool RunWork(Gpu& gpu, const Plan& plan, const Work& work) {
  Launches launches(gpu, work);
  double alone_us = 0, alone_longest_us = 0;
  if (launches.Start(plan) && work.busy_percent > 0) {
    const std::vector<double> alone = SamplesAloneUs(launches, plan.Times(1000, 3));
    alone_us = Percentile(alone, 0.5);
    alone_longest_us = alone.back();
  }
  if (gpu.failed()) {
    ReportError("ready", gpu.TakeError());
    return false;
  }
  ReportFact(
      "ready",
      "\"pid\":" + std::to_string(getpid()) +
          ",\"iterations\":" + std::to_string(launches.iterations()) +
          ",\"multiprocessors\":" + std::to_string(launches.multiprocessors()) +
          (launches.kernel_us() > 0 ? Field("kernel_us", launches.kernel_us()) : "") +
          (alone_us > 0 ? Field("alone_us", alone_us) + Field("alone_longest_us", alone_longest_us)
                        : ""));
  char line[128];
  uint64_t start_ns = 0;
  size_t windows = 0;
  if (std::fgets(line, sizeof(line), stdin) == nullptr) return true;
  if (std::sscanf(line, "run %" SCNu64 " %zu", &start_ns, &windows) != 2 || windows == 0 ||
      windows > 36'000) {
    ReportError("work", "'" + std::string(line) + "': say run START_NS WINDOWS, an hour at most");
    return false;
  }
  WindowCounts counts(start_ns, kWindowNs, windows);
  SleepUntil(start_ns - std::min(start_ns, kWarmNs));
  std::string requests;
  if (work.busy_percent > 0) {
    RandomPauses pauses(alone_us * 1e3 * (100 / work.busy_percent - 1), work.seed);
    requests = SendRequests(gpu, launches, counts, pauses, start_ns);
  } else {
    const bool worked = launches.KeepQueued([&] {
      const uint64_t now_ns = NowNs();
      counts.Add(now_ns, launches.kernels_a_launch());
      return now_ns < counts.end_ns();
    });
    static_cast<void>(worked);  // the Gpu keeps the error
  }
  if (gpu.failed()) {
    ReportError("work", gpu.TakeError());
    return false;
  }
  ReportFact("work", "\"windows\":" + counts.Text() + requests);
  return true;
}

}  // namespace gpuloom::bench
