// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/unsupported_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <sstream>

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

class UnsupportedLogTest : public ::testing::Test {
 protected:
  UnsupportedLogTest() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "", std::make_shared<spdlog::sinks::ostream_sink_mt>(said_)));
  }
  ~UnsupportedLogTest() override { spdlog::set_default_logger(before_); }

  static UnsupportedCalls Of(const std::string& pod_namespace, std::vector<std::string> names) {
    return {pod_namespace + "-allocation", pod_namespace, "p", "main", std::move(names)};
  }
  ptrdiff_t Lines() const {
    const std::string said = said_.str();
    return std::ranges::count(said, '\n');
  }

  UnsupportedLog log_;
  std::ostringstream said_;
  std::shared_ptr<spdlog::logger> before_;
};

TEST_F(UnsupportedLogTest, SaysEachNameOnceForAnAllocation) {
  log_.Look("GPU-1", {Of("a", {"cuA"})});
  log_.Look("GPU-1", {Of("a", {"cuA", "cuB"}), Of("b", {"cuA"})});
  EXPECT_EQ(Lines(), 3);
  EXPECT_THAT(said_.str(), HasSubstr("tenant: b/p (main) asked CUDA for cuA, which is not"));
  log_.Look("GPU-1", {});
  log_.Look("GPU-1", {Of("a", {"cuA"})});
  EXPECT_EQ(Lines(), 4) << "another of the same name";
}

TEST_F(UnsupportedLogTest, Malicious_NamespacesWithoutEndAreNotKept) {
  const auto most = static_cast<int>(LineBudgets::kMost);
  log_.Look("GPU-1", {Of("honest", {"cuA"})});
  for (int i = 1; i < 2 * most; ++i) log_.Look("GPU-1", {Of("evil-" + std::to_string(i), {"cuA"})});
  // Those beyond share one budget, which has a line every two seconds.
  EXPECT_GE(Lines(), most + static_cast<int>(LineBudget::kAtOnce));
  EXPECT_LT(Lines(), 2 * most - 100);
  log_.Look("GPU-1", {Of("honest", {"cuHeard"})});
  EXPECT_THAT(said_.str(), HasSubstr("cuHeard"));
}

}  // namespace
}  // namespace gpuloom
