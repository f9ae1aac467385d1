// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/lines.h"
#include "tests/bench/report.h"
#include "tests/bench/spin_kernel.h"

namespace gpuloom::bench {
namespace {

struct Wait {
  const char* name;
  uint64_t kernel_ns;
  int times;
};
constexpr Wait kWaits[] = {
    {"wait_200us", 200'000, 1000}, {"wait_1ms", 1'000'000, 400}, {"wait_5ms", 5'000'000, 100}};
constexpr int kLearning = 20;  // waits from which the length of the next one can be known

// What a launch and the wait for its end take beyond the kernel itself.
bool WaitLine(Gpu& gpu, const Plan& plan, const Wait& wait) {
  return RunLine(gpu, plan, wait.name, "us", [&](std::vector<double>& samples) {
    SpinKernel spin;
    if (!spin.Start(gpu)) return;
    const int learning = plan.Times(kLearning, 1);
    const int times = plan.Times(wait.times, 2);
    for (int i = 0; i < learning + times && !gpu.failed(); ++i) {
      if (i == learning && !spin.Forget()) return;
      const uint64_t start_ns = NowNs();
      const CUresult launched = spin.Launch(wait.kernel_ns);
      gpu.Synchronize();
      const auto took_ns = static_cast<double>(NowNs() - start_ns);
      gpu.Ok(launched, "cuLaunchKernel");
      if (i >= learning) samples.push_back(took_ns / 1e3);
    }
    const double kernel_us = static_cast<double>(spin.TotalNs()) / 1e3 / times;
    for (double& sample : samples) sample -= kernel_us;
  });
}

}  // namespace

bool MeasureWaits(Gpu& gpu, const Plan& plan) {
  bool good = true;
  for (const Wait& wait : kWaits) good &= WaitLine(gpu, plan, wait);
  return good;
}

}  // namespace gpuloom::bench
