// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

// Far below any queue's length (the driver blocks at about 1,000 launches in flight): the call is
// timed, not the GPU.
constexpr int kBurst = 64;

void SleepMs(int ms) {
  const timespec duration{0, ms * 1'000'000L};
  nanosleep(&duration, nullptr);
}

// `count` launches and the synchronisation behind them; nanoseconds for all, 0 on failure.
double TimedLaunches(Gpu& gpu, int count, bool changing = false) {
  CUresult worst = CUDA_SUCCESS;
  const uint64_t start_ns = NowNs();
  for (int i = 0; i < count; ++i) {
    const CUresult result = changing ? gpu.LaunchChanging() : gpu.LaunchNothing();
    if (result != CUDA_SUCCESS) worst = result;
  }
  if (!gpu.Ok(worst, "cuLaunchKernel") || !gpu.Synchronize()) return 0;
  return static_cast<double>(NowNs() - start_ns);
}

}  // namespace

bool MeasureLaunches(Gpu& gpu, const Plan& plan) {
  // The first launches load code lazily and fill caches.
  TimedLaunches(gpu, plan.Times(1000, 2));

  bool good = RunLine(gpu, plan, "launch_call", "ns", [&](std::vector<double>& samples) {
    const int bursts = plan.Times(500, 3);
    const int length = plan.Times(kBurst, 8);
    for (int burst = 0; burst < bursts && !gpu.failed(); ++burst) {
      CUresult worst = CUDA_SUCCESS;
      const uint64_t start_ns = NowNs();
      for (int i = 0; i < length; ++i) {
        const CUresult result = gpu.LaunchNothing();
        if (result != CUDA_SUCCESS) worst = result;
      }
      samples.push_back(static_cast<double>(NowNs() - start_ns) / length);
      gpu.Ok(worst, "cuLaunchKernel");
      gpu.Synchronize();
    }
  });

  good &= RunLine(gpu, plan, "launch_call_after_idle", "ns", [&](std::vector<double>& samples) {
    const int times = plan.Times(50, 2);
    for (int i = 0; i < times && !gpu.failed(); ++i) {
      SleepMs(10);  // Long enough that whoever waits for work has gone to sleep.
      const uint64_t start_ns = NowNs();
      const CUresult result = gpu.LaunchNothing();
      samples.push_back(static_cast<double>(NowNs() - start_ns));
      gpu.Ok(result, "cuLaunchKernel");
      gpu.Synchronize();
    }
  });

  good &= RunLine(gpu, plan, "launch_sync", "ns", [&](std::vector<double>& samples) {
    const int times = plan.Times(2000, 3);
    for (int i = 0; i < times && !gpu.failed(); ++i) samples.push_back(TimedLaunches(gpu, 1));
  });

  for (const bool changing : {false, true}) {
    const char* name = changing ? "launch_sustained_changing" : "launch_sustained";
    good &= RunLine(gpu, plan, name, "launches/s", [&](std::vector<double>& samples) {
      const int times = plan.Times(10, 1);
      const int length = plan.Times(10'000, 50);
      TimedLaunches(gpu, length, changing);  // What learns from repetition has had its chance.
      for (int i = 0; i < times && !gpu.failed(); ++i) {
        const double duration_ns = TimedLaunches(gpu, length, changing);
        if (duration_ns > 0) samples.push_back(length * 1e9 / duration_ns);
      }
    });
  }
  return good;
}

bool MeasureLaunchRate(Gpu& gpu, const Plan& plan, double seconds, bool changing) {
  return RunLine(gpu, plan, "launch_rate", "launches/s", [&](std::vector<double>& samples) {
    const int length = plan.Times(10'000, 50);
    const uint64_t start_ns = NowNs();
    const auto limit_ns = static_cast<uint64_t>(seconds * 1e9);
    double launches = 0;
    uint64_t passed_ns = 0;
    while (passed_ns < limit_ns && !gpu.failed()) {
      TimedLaunches(gpu, length, changing);
      launches += length;
      passed_ns = NowNs() - start_ns;
    }
    samples.push_back(launches * 1e9 / static_cast<double>(passed_ns));
  });
}

}  // namespace gpuloom::bench
