// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "tests/bench/lines.h"
#include "tests/bench/report.h"
#include "tests/bench/spin_kernel.h"

namespace gpuloom::bench {
namespace {

// Bursts of one call: each sample is a burst's mean. `behind` ends a burst, outside the time.
bool BurstLine(Gpu& gpu, const Plan& plan, const char* name, const char* call,
               const std::function<CUresult()>& timed, const std::function<void()>& behind) {
  return RunLine(gpu, plan, name, "ns", [&](std::vector<double>& samples) {
    const int bursts = plan.Times(500, 2);
    const int length = plan.Times(64, 8);
    for (int burst = 0; burst < bursts && !gpu.failed(); ++burst) {
      CUresult worst = CUDA_SUCCESS;
      const uint64_t start_ns = NowNs();
      for (int i = 0; i < length; ++i) {
        const CUresult result = timed();
        if (result != CUDA_SUCCESS) worst = result;
      }
      samples.push_back(static_cast<double>(NowNs() - start_ns) / length);
      gpu.Ok(worst, call);
      behind();
    }
  });
}

bool LaunchEventLine(Gpu& gpu, const Plan& plan, const char* name, CUevent event) {
  const Driver& cu = gpu.cu();
  return RunLine(gpu, plan, name, "ns", [&](std::vector<double>& samples) {
    const int times = plan.Times(2000, 3);
    for (int i = 0; i < times && !gpu.failed(); ++i) {
      const uint64_t start_ns = NowNs();
      const CUresult launched = gpu.LaunchNothing();
      const CUresult recorded = cu.cuEventRecord(event, gpu.stream());
      const CUresult waited = cu.cuEventSynchronize(event);
      samples.push_back(static_cast<double>(NowNs() - start_ns));
      gpu.Ok(launched, "cuLaunchKernel");
      gpu.Ok(recorded, "cuEventRecord");
      gpu.Ok(waited, "cuEventSynchronize");
    }
  });
}

// Programs that keep some steps ahead of the device wait for the event of an older one. `kernel_us` 0: an empty kernel.
bool OlderEventLine(Gpu& gpu, const Plan& plan, size_t older, uint64_t kernel_us = 0) {
  std::string name = "launch_event_older_" + std::to_string(older);
  if (kernel_us != 0) name += "_" + std::to_string(kernel_us) + "us";
  if (!plan.Wants(name)) return true;
  const Driver& cu = gpu.cu();
  SpinKernel spin;
  if (kernel_us != 0) spin.Start(gpu);
  std::vector<CUevent> events(older + 1);
  for (CUevent& event : events) {
    gpu.Ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }
  const bool good = RunLine(gpu, plan, name.c_str(), "ns", [&](std::vector<double>& samples) {
    // A sample is the mean over a run, since waits of one depend on what the ones before left over.
    const int runs = plan.Times(20, 2);
    const size_t steps = static_cast<size_t>(plan.Times(200, 4));
    for (int run = 0; run < runs && !gpu.failed(); ++run) {
      const uint64_t start_ns = NowNs();
      for (size_t i = 0; i < steps; ++i) {
        gpu.Ok(kernel_us == 0 ? gpu.LaunchNothing() : spin.Launch(kernel_us * 1000),
               "cuLaunchKernel");
        gpu.Ok(cu.cuEventRecord(events[i % events.size()], gpu.stream()), "cuEventRecord");
        if (i < older) continue;
        gpu.Ok(cu.cuEventSynchronize(events[(i - older) % events.size()]), "cuEventSynchronize");
      }
      samples.push_back(static_cast<double>(NowNs() - start_ns) / static_cast<double>(steps));
      gpu.Synchronize();
    }
  });
  for (const CUevent event : events) gpu.Ok(cu.cuEventDestroy_v2(event), "cuEventDestroy");
  return good;
}

}  // namespace

bool MeasureEvents(Gpu& gpu, const Plan& plan) {
  const Driver& cu = gpu.cu();
  CUevent event = nullptr;
  gpu.Ok(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "cuEventCreate");

  bool good = BurstLine(
      gpu, plan, "event_record", "cuEventRecord",
      [&] { return cu.cuEventRecord(event, gpu.stream()); }, [&] { gpu.Synchronize(); });

  // Of an event that has happened: what a polling program calls most.
  gpu.Ok(cu.cuEventRecord(event, gpu.stream()), "cuEventRecord");
  gpu.Synchronize();
  good &= BurstLine(
      gpu, plan, "event_query", "cuEventQuery", [&] { return cu.cuEventQuery(event); }, [] {});
  good &= BurstLine(
      gpu, plan, "event_synchronize", "cuEventSynchronize",
      [&] { return cu.cuEventSynchronize(event); }, [] {});

  good &= LaunchEventLine(gpu, plan, "launch_event_sync", event);
  CUevent with_time = nullptr;
  gpu.Ok(cu.cuEventCreate(&with_time, CU_EVENT_DEFAULT), "cuEventCreate");
  good &= LaunchEventLine(gpu, plan, "launch_timed_event_sync", with_time);
  for (const size_t older : {2, 4, 16}) good &= OlderEventLine(gpu, plan, older);
  for (const uint64_t kernel_us : {10, 50}) good &= OlderEventLine(gpu, plan, 4, kernel_us);
  return good;
}

}  // namespace gpuloom::bench
