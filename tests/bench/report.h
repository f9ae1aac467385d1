// SPDX-License-Identifier: Apache-2.0
// The benchmark's output: one JSON object per line on standard output, flushed at once, so that a
// reader sees what was measured before something hung. From one thread.
//   {"name":"launch_sync","unit":"ns","median":8123.0,"p10":…,"p90":…,"samples":2000}
//   {"name":"launch_sync","error":"cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED"}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gpuloom::bench {

// CLOCK_MONOTONIC in nanoseconds: the same clock in every process of the machine.
uint64_t NowNs();

// Nearest rank; `sorted` is not empty.
double Percentile(const std::vector<double>& sorted, double fraction);

// A measured line. `samples` is not empty.
void ReportSamples(const std::string& name, const std::string& unit, std::vector<double> samples);

// A line that could not be measured, or whose results were wrong.
void ReportError(const std::string& name, const std::string& error);

// A line without a figure: {"name":NAME,…fields}, with fields as JSON text, empty or
// `"key":value,…`.
void ReportFact(const std::string& name, const std::string& fields);

// `text` as a JSON string, quotes included.
std::string Quoted(const std::string& text);

}  // namespace gpuloom::bench
