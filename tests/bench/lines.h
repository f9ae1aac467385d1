// SPDX-License-Identifier: Apache-2.0
// The benchmark's lines: what is measured inside one process. docs/benchmarks.md says what each
// means. Each line reports itself (report.h); a failed one reports its error and the next goes on.
// From one thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/bench/gpu.h"

namespace gpuloom::bench {

// How much of everything.
struct Plan {
  // Seconds, for figures; otherwise as little as still exercises every line, for software drivers.
  bool full = true;
  // Only lines whose name begins like one of these, if any; not those that begin like one of skip.
  std::vector<std::string> only;
  std::vector<std::string> skip;
  // How this program starts itself again, for start-up.
  std::string self;
  std::string library;

  bool Wants(const std::string& name) const;
  int Times(int full_count, int tiny_count) const { return full ? full_count : tiny_count; }
};

// Runs one line when `plan` wants it by `name`. `collect` adds samples, and returns early once
// gpu.failed(). False when the line failed.
[[nodiscard]] bool RunLine(Gpu& gpu, const Plan& plan, const std::string& name,
                           const std::string& unit,
                           const std::function<void(std::vector<double>&)>& collect);

// Each false when one of its lines failed.
[[nodiscard]] bool MeasureLaunches(Gpu& gpu, const Plan& plan);
[[nodiscard]] bool MeasureEvents(Gpu& gpu, const Plan& plan);
[[nodiscard]] bool MeasureWaits(Gpu& gpu, const Plan& plan);
[[nodiscard]] bool MeasureGraphs(Gpu& gpu, const Plan& plan);
[[nodiscard]] bool MeasureMemory(Gpu& gpu, const Plan& plan);
[[nodiscard]] bool MeasureCopies(Gpu& gpu, const Plan& plan);
[[nodiscard]] bool MeasureManaged(Gpu& gpu, const Plan& plan);
[[nodiscard]] bool MeasureRegistered(Gpu& gpu, const Plan& plan);
[[nodiscard]] bool MeasureStartUp(Gpu& gpu, const Plan& plan);

// Launches, 10,000 to a synchronisation, until `seconds` have passed; reports the rate over that
// time as `launch_rate`. With other processes doing the same at the same time, rates add up.
// `changing`: no sequence of functions, sizes and arguments comes twice.
[[nodiscard]] bool MeasureLaunchRate(Gpu& gpu, const Plan& plan, double seconds, bool changing);

// What the driver takes into one context in so many seconds each: plain launches and rewritten graphs by several threads, also
// while a further thread queries events. For comparison with what executors reach.
[[nodiscard]] bool MeasureDriverRates(Gpu& gpu, const Plan& plan, double seconds);

// What a tenant that shares the device with others does, and what of it is counted.
struct Work {
  // A kernel's length on the device: how long it takes, in the middle of others of its kind, while
  // nobody else works. It has a block for each multiprocessor, with all its shared memory, so that no
  // two such kernels run at once.
  double kernel_us = 50;
  // Instead of calibrating: what an earlier process reported for this length. 0: calibrate.
  uint32_t iterations = 0;
  int queued = 16;  // launches in flight
  int blocks = 0;   // of a kernel; 0: one for each multiprocessor
  // A launch is a graph of so many kernels, one behind the other; 0: a kernel.
  int graph_kernels = 0;
  bool cooperative = false;  // kernels whose blocks must all run at once; not those of a graph
  // No launch has the shape of one of the thousand before it: they differ in a little shared memory; not those of a graph.
  bool changing = false;
  // Above 0: requests, one after the other: a launch, its end, a pause of random length, so that on
  // average this share of the time, in per cent, is work if nobody else works. `queued` says nothing then.
  double busy_percent = 0;
  uint64_t seed = 1;  // of the pauses
};

// Gets ready to work and says so:
//   {"name":"ready","pid":…,"iterations":…,"kernel_us":…,"alone_us":…,"alone_longest_us":…}     the last three only where
// they were measured: a kernel among others, and a launch with the wait for its end, the median and the longest. Then, for a line `run START_NS WINDOWS` on standard
// input, works from before START_NS (CLOCK_MONOTONIC) through so many windows of 100 ms, and reports what was done in
// each; requests also how long they took, from before the launch until the end was seen:
//   {"name":"work","windows":[…],"requests":…,"p50_us":…,"p99_us":…,"longest_us":…}
// False when something failed, which is reported.
[[nodiscard]] bool RunWork(Gpu& gpu, const Plan& plan, const Work& work);

// Loads the image in file `path` (cubin, fatbin or PTX; "-" for the benchmark's own kernels) as a
// library and takes one kernel of it into the context; reports the time as `library_load`.
[[nodiscard]] bool MeasureLibraryLoad(Gpu& gpu, const std::string& path);

// Kernels, memsets and copies give the right results, odd sizes and offsets included.
[[nodiscard]] bool CheckResults(Gpu& gpu);

}  // namespace gpuloom::bench
