// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/lines.h"
#include "tests/bench/report.h"

namespace gpuloom::bench {
namespace {

bool BeginsLikeOne(const std::string& name, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (name.compare(0, word.size(), word) == 0) return true;
  }
  return false;
}

}  // namespace

bool Plan::Wants(const std::string& name) const {
  return (only.empty() || BeginsLikeOne(name, only)) && !BeginsLikeOne(name, skip);
}

bool RunLine(Gpu& gpu, const Plan& plan, const std::string& name, const std::string& unit,
             const std::function<void(std::vector<double>&)>& collect) {
  if (!plan.Wants(name)) return true;
  std::vector<double> samples;
  collect(samples);
  if (gpu.failed() || samples.empty()) {
    const std::string error = gpu.TakeError();
    ReportError(name, error.empty() ? "nothing was measured" : error);
    return false;
  }
  ReportSamples(name, unit, std::move(samples));
  return true;
}

}  // namespace gpuloom::bench
