// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/exposition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "agent/metrics/testing/reports.h"

namespace gpuloom {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const Clock::Time kNow{seconds(1'700'000'000)};

// A node on which everything has happened.
class ExpositionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    control::AllocationState a = AllocationOf("a1", "red", "p");
    Use(&a, 2);
    a.memory_used_bytes = 1500;
    a.memory_peak_bytes = 1800;
    a.unsupported_count = 2;
    control::SetText(a.pending_partition, "no room");
    control::SetText(a.unsupported, "cuGraphicsMapResources\ncuFly?Away\n");
    ledger_.Add(kGpu, ReportOf({a}, 100), true, kNow);
    ledger_.Add(kGpu, ReportOf({a}, 102), false, kNow + seconds(2));
    NodeFigures::OneGpu gpu;
    gpu.gpu.uuid = kGpu;
    gpu.standing.slots = 10;
    gpu.standing.held = 2;
    gpu.standing.beyond = 1;
    gpu.standing.withheld = 3;
    gpu.standing.promised_bytes = 4096;
    gpu.standing.available_bytes = 8192;
    gpu.standing.state = GpuState::kHealthy;
    gpu.standing.impossible_rules = 2;
    node_.gpus = {gpu};
    node_.node_trouble = "inventory: GPU 1: handle: GPU is lost";
    node_.has_unusable_gpu = true;
    node_.kubelet_errors = {{"List", 3}};
    node_.requests = {{"Allocate", 40}};
    node_.refusals = {{"Allocate", 4}};
    node_.has_policy = true;
    node_.policy_generation = 2;
    node_.policy_trouble = "policy.yaml:1:2: no";
    node_.failed_grants = {"policy: pod a/p keeps its old grant: scheduler: no"};
    policy_.Follow(node_, kNow);
  }
  std::string Text() const { return FormatMetrics(ledger_, node_, policy_, wall_ahead_); }

  Ledger ledger_;
  NodeFigures node_;
  PolicyHistory policy_;
  Clock::Duration wall_ahead_{};
};

TEST_F(ExpositionTest, TimesAreWallTime) {
  wall_ahead_ = seconds(-3600);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("\ngpuloom_policy_error_timestamp_seconds 1699996400\n"));
  EXPECT_THAT(text, ContainsRegex("\ngpuloom_policy_change_timestamp_seconds 169999640[0-9]\n"));
  EXPECT_THAT(text, ContainsRegex("\ngpuloom_gpu_report_timestamp_seconds.* 1699996402\n"));
}

TEST_F(ExpositionTest, Figures) {
  const std::string text = Text();
  const std::string tenant =
      R"({namespace="red",pod="p",container="main",gpu=")" + std::string(kGpu) + "\"";
  const std::string domain = R"({gpu=")" + std::string(kGpu) + R"(",trust_domain="namespace/red")";
  for (const std::string& line : {
           std::string("gpuloom_node_gpus 1"),
           std::string("gpuloom_node_gpu_unusable 1"),
           "gpuloom_gpu_slots_beyond{gpu=\"" + std::string(kGpu) + "\"} 1",
           "gpuloom_gpu_slots_withheld{gpu=\"" + std::string(kGpu) + "\"} 3",
           "gpuloom_gpu_slot_memory_promised_bytes{gpu=\"" + std::string(kGpu) + "\"} 4096",
           "gpuloom_gpu_slot_memory_bytes{gpu=\"" + std::string(kGpu) + "\"} 8192",
           "gpuloom_policy_rules_impossible{gpu=\"" + std::string(kGpu) + "\"} 2",
           "gpuloom_tenant_memory_used_bytes" + tenant + "} 1500",
           "gpuloom_tenant_memory_quota_bytes" + tenant + "} 2048",
           "gpuloom_tenant_memory_peak_bytes" + tenant + "} 1800",
           "gpuloom_tenant_partition_pending" + tenant + "} 1",
           "gpuloom_tenant_gpu_seconds_total" + tenant + ",engine=\"compute\"} 2",
           "gpuloom_tenant_gpu_seconds_total" + tenant + ",engine=\"copy_to_device\"} 0.4",
           "gpuloom_tenant_copied_bytes_total" + tenant + ",direction=\"to_device\"} 1200",
           "gpuloom_tenant_refusals_total" + tenant + ",kind=\"session\"} 6",
           "gpuloom_tenant_faults_total" + tenant + ",kind=\"lost_device\"} 2",
           "gpuloom_tenant_unsupported_call" + tenant + ",call=\"cuGraphicsMapResources\"} 1",
           "gpuloom_tenant_unsupported_call" + tenant + ",call=\"other\"} 1",
           "gpuloom_tenant_queue_wait_seconds_bucket" + tenant + ",le=\"1e-05\"} 6",
           "gpuloom_tenant_queue_wait_seconds_bucket" + tenant + ",le=\"10\"} 6",
           "gpuloom_tenant_queue_wait_seconds_bucket" + tenant + ",le=\"+Inf\"} 8",
           "gpuloom_tenant_queue_wait_seconds_count" + tenant + "} 8",
           "gpuloom_tenant_queue_wait_seconds_sum" + tenant + "} 40",
           std::string("gpuloom_namespace_memory_byte_seconds_total{namespace=\"red\"} 3000"),
           std::string("gpuloom_namespace_slot_seconds_total{namespace=\"red\"} 4"),
           std::string("gpuloom_policy_generation 2"),
           std::string("gpuloom_policy_error 1"),
           std::string("gpuloom_policy_grants_failed 1"),
           std::string("gpuloom_policy_error_timestamp_seconds 1700000000"),
           std::string("gpuloom_kubelet_errors_total{call=\"List\"} 3"),
           std::string("gpuloom_kubelet_requests_total{call=\"Allocate\"} 40"),
           std::string("gpuloom_kubelet_refusals_total{call=\"Allocate\"} 4"),
           "gpuloom_gpu_slots{gpu=\"" + std::string(kGpu) + "\"} 10",
           "gpuloom_domain_slots" + domain + "} 2",
           "gpuloom_domain_overrun_wait_seconds" + domain + "} 2.5",
           "gpuloom_domain_executor_info" + domain + ",version=\"0.1.9\"} 1",
           "gpuloom_domain_memory_promised_bytes" + domain + "} 2048",
           "gpuloom_domain_memory_used_bytes" + domain + "} 1500",
           "gpuloom_gpu_memory_free_bytes{gpu=\"" + std::string(kGpu) + "\"} 1047076",
       }) {
    EXPECT_THAT(text, HasSubstr("\n" + line + "\n"));
  }
}

// {name, type, labels} of each.
using Row = std::tuple<std::string, std::string, std::set<std::string>>;

std::set<Row> Exported(const std::string& text) {
  std::map<std::string, std::string> types;
  std::map<std::string, std::set<std::string>> labels;
  std::istringstream lines(text);
  const std::regex type("# TYPE (\\w+) (\\w+)"),
      sample("(\\w+?)(_bucket|_sum|_count)?(\\{.*\\})? .*"), label("(\\w+)=\"");
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, type)) {
      types[match[1]] = match[2];
      labels[match[1]];
    } else if (std::regex_match(line, match, sample)) {
      const std::string name =
          types.contains(match[1]) ? match[1] : match[1].str() + match[2].str();
      EXPECT_TRUE(types.contains(name)) << line;
      const std::string all = match[3];
      for (std::sregex_iterator it(all.begin(), all.end(), label), end; it != end; ++it) {
        if ((*it)[1] != "le") labels[name].insert((*it)[1]);
      }
    }
  }
  std::set<Row> rows;
  for (const auto& [name, kind] : types) rows.insert({name, kind, labels[name]});
  return rows;
}

std::set<Row> Documented() {
  std::ifstream page(GPULOOM_SOURCE_DIR "/docs/metrics.md");
  std::set<Row> rows;
  const std::regex row("\\| `(gpuloom_\\w+)` \\| (\\w+) \\|([^|]*)\\| [^|]+ \\|"),
      label("`(\\w+)`");
  for (std::string line; std::getline(page, line);) {
    std::smatch match;
    if (!std::regex_match(line, match, row)) continue;
    const std::string all = match[3];
    std::set<std::string> labels;
    for (std::sregex_iterator it(all.begin(), all.end(), label), end; it != end; ++it) {
      labels.insert((*it)[1]);
    }
    rows.insert({match[1], match[2], labels});
  }
  return rows;
}

TEST_F(ExpositionTest, TheTableInTheDocumentsIsWhatIsExported) {
  EXPECT_EQ(Documented(), Exported(Text()));
  EXPECT_GT(Documented().size(), 50u);
}

TEST_F(ExpositionTest, EveryMetricSaysWhatItIs) {
  EXPECT_THAT(Text(), Not(ContainsRegex("# HELP [a-z_]+ *\n")));
  std::istringstream lines(Text());
  size_t help = 0;
  for (std::string line; std::getline(lines, line);) help += line.starts_with("# HELP ");
  EXPECT_EQ(help, Exported(Text()).size());
}

TEST_F(ExpositionTest, OfASilentSchedulerOnlyCountsAreShown) {
  ledger_.SetSilent(kGpu);
  EXPECT_THAT(Text(),
              AllOf(HasSubstr("gpuloom_gpu_scheduler_up{gpu=\"" + std::string(kGpu) + "\"} 0"),
                    HasSubstr("gpuloom_tenant_kernels_total{"),
                    HasSubstr("gpuloom_gpu_busy_seconds_total{"),
                    HasSubstr("gpuloom_domain_busy_seconds_total{"),
                    Not(HasSubstr("gpuloom_tenant_memory_used_bytes")),
                    Not(HasSubstr("gpuloom_domain_memory_used_bytes")),
                    Not(HasSubstr("gpuloom_gpu_sessions"))));
}

TEST_F(ExpositionTest, Malicious_ANameEndsNoLabel) {
  ledger_.Add(kGpu, ReportOf({AllocationOf("b", "red", "q\"} 1\nup 7\\")}, 103), false, kNow);
  EXPECT_THAT(Text(), HasSubstr(R"(pod="q\"} 1\\nup 7\\")"));
}

TEST(PolicyHistory, AnErrorKeepsItsTimeUntilAnotherComes) {
  NodeFigures node;
  PolicyHistory history;
  history.Follow(node, kNow);
  EXPECT_EQ(history.last_error, "");
  node.policy_generation = 1;
  history.Follow(node, kNow + seconds(1));
  EXPECT_EQ(history.changed_at, kNow + seconds(1));
  node.policy_trouble = "one";
  history.Follow(node, kNow + seconds(2));
  history.Follow(node, kNow + seconds(3));
  EXPECT_EQ(history.error_at, kNow + seconds(2));
  node.policy_trouble = "";
  history.Follow(node, kNow + seconds(4));
  EXPECT_EQ(history.last_error, "one");
  EXPECT_EQ(history.trouble, "");
  // The same again is another one.
  node.policy_trouble = "one";
  history.Follow(node, kNow + seconds(5));
  EXPECT_EQ(history.error_at, kNow + seconds(5));
  EXPECT_EQ(history.changed_at, kNow + seconds(1));
}

}  // namespace
}  // namespace gpuloom
