// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/report.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gpuloom::bench {

double Percentile(const std::vector<double>& sorted, double fraction) {
  return sorted[static_cast<size_t>(
      std::lround(fraction * static_cast<double>(sorted.size() - 1)))];
}

uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return quoted + '"';
}

void ReportSamples(const std::string& name, const std::string& unit, std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  std::printf(
      "{\"name\":%s,\"unit\":%s,\"median\":%.6g,\"p10\":%.6g,\"p90\":%.6g,\"samples\":%zu}\n",
      Quoted(name).c_str(), Quoted(unit).c_str(), Percentile(samples, 0.5),
      Percentile(samples, 0.1), Percentile(samples, 0.9), samples.size());
  std::fflush(stdout);
}

void ReportError(const std::string& name, const std::string& error) {
  ReportFact(name, "\"error\":" + Quoted(error));
}

void ReportFact(const std::string& name, const std::string& fields) {
  std::printf("{\"name\":%s%s%s}\n", Quoted(name).c_str(), fields.empty() ? "" : ",",
              fields.c_str());
  std::fflush(stdout);
}

}  // namespace gpuloom::bench
