// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/state_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "agent/metrics/testing/reports.h"

namespace gpuloom {
namespace {

using Json = nlohmann::json;
using std::chrono::seconds;

class StateJson : public ::testing::Test {
 protected:
  void SetUp() override {
    control::AllocationState a = AllocationOf("a1", "red", "p");
    Use(&a, 1);
    a.memory_used_bytes = 1500;
    control::SetText(a.unsupported, "cuGraphicsMapResources\ncuFly?Away\n");
    Look(a, 100);
    Use(&a, 3);
    now_ += ShareHistory::kStep;
    Look(a, 105);
    NodeFigures::OneGpu gpu;
    gpu.gpu = {kGpu, "Software GPU", 3, 1 << 20, -1};
    gpu.standing.slots = 10;
    gpu.standing.held = 2;
    gpu.standing.state = GpuState::kHealthy;
    gpu.standing.impossible_rules = 1;
    gpu.standing.impossible = {"policy.yaml:1:2: too much"};
    node_.gpus = {gpu};
    node_.latest_refusals = {{"PreStartContainer", "policy: no", 2}};
    node_.refusals = {{"PreStartContainer", 2}};
    node_.kubelet_errors = {{"List", 1}};
    node_.has_policy = true;
    node_.policy_generation = 1;
    policy_.Follow(node_, now_);
    refusals_.Follow(node_, now_);
  }
  void Look(const control::AllocationState& state, double running_s) {
    ledger_.Add(kGpu, ReportOf({state}, running_s), false, now_);
    shares_.Follow(ledger_, now_);
  }
  Json State() const {
    return Json::parse(FormatState(ledger_, node_, policy_, shares_, refusals_, now_, wall_ahead_));
  }

  Clock::Time now_{seconds(1'700'000'000)};
  Clock::Duration wall_ahead_{};
  Ledger ledger_;
  NodeFigures node_;
  PolicyHistory policy_;
  ShareHistory shares_;
  RefusalTimes refusals_;
};

TEST_F(StateJson, TimesAreWallTime) {
  node_.gpus[0].standing.since_unix_s = 1'700'000'001;
  const Json before = State();
  wall_ahead_ = seconds(-3600);
  const Json state = State();
  const auto expect_earlier = [&](const char* place) {
    const Json::json_pointer pointer(place);
    EXPECT_EQ(state.at(pointer).get<double>(), before.at(pointer).get<double>() - 3600) << place;
  };
  for (const char* place : {"/time", "/gpus/0/state_since", "/gpus/0/reported", "/policy/changed",
                            "/tenants/0/last_seen", "/refusals/0/last"}) {
    expect_earlier(place);
  }
  EXPECT_EQ(state["policy"]["last_error_time"], nullptr) << "never stays never";
}

TEST_F(StateJson, SaysWhoUsesWhatAndWhatWasRefused) {
  node_.node_trouble = "inventory: GPU 1: handle: GPU is lost";
  node_.has_unusable_gpu = true;
  const Json state = State();
  EXPECT_EQ(state["time"], 1'700'000'005.0);
  EXPECT_EQ(state["node"]["trouble"], "inventory: GPU 1: handle: GPU is lost");
  EXPECT_EQ(state["node"]["unusable_gpu"], true);
  ASSERT_EQ(state["tenants"].size(), 1u);
  const Json& tenant = state["tenants"][0];
  EXPECT_EQ(tenant["namespace"], "red");
  EXPECT_EQ(tenant["state"], "runs");
  EXPECT_EQ(tenant["memory_used_bytes"], 1500);
  EXPECT_EQ(tenant["gpu_seconds"]["compute"], 3.0);
  EXPECT_EQ(tenant["unsupported"], Json({"cuGraphicsMapResources", "other"}));
  EXPECT_EQ(tenant["shares"], Json({0.4})) << "two of five seconds";
  ASSERT_EQ(state["gpus"].size(), 1u);
  EXPECT_EQ(state["gpus"][0]["index"], 3);
  EXPECT_EQ(state["gpus"][0]["slots_allocated"], 2);
  EXPECT_EQ(state["gpus"][0]["policy_rules_impossible"], 1);
  EXPECT_EQ(state["gpus"][0]["policy_impossible"], Json({"policy.yaml:1:2: too much"}));
  EXPECT_EQ(state["gpus"][0]["shares"], Json({0.4}));
  EXPECT_EQ(state["namespaces"][0]["kernels"], 30);
  EXPECT_EQ(state["refusals"], Json::array({{{"call", "PreStartContainer"},
                                             {"reason", "policy: no"},
                                             {"times", 2},
                                             {"last", 1'700'000'005.0}}}));
  EXPECT_EQ(state["policy"]["error"], "");
  EXPECT_EQ(state["policy"]["last_error_time"], nullptr);
}

TEST_F(StateJson, WhatIsNotKnownIsMissing) {
  ledger_.SetSilent(kGpu);
  EXPECT_EQ(State()["tenants"][0]["state"], "unknown");
  EXPECT_FALSE(State()["gpus"][0].contains("memory_used_bytes"));
  EXPECT_EQ(State()["gpus"][0]["scheduler_up"], false);
  ledger_ = {};
  EXPECT_EQ(State()["gpus"][0]["scheduler_up"], false);
  EXPECT_EQ(State()["gpus"][0]["reported"], nullptr);
}

TEST_F(StateJson, ARefusalHasTheTimeOfItsLast) {
  const Clock::Time first = now_;
  now_ += seconds(10);
  refusals_.Follow(node_, now_);
  EXPECT_EQ(refusals_.Of(node_.latest_refusals[0]), first);
  ++node_.latest_refusals[0].times;
  refusals_.Follow(node_, now_);
  EXPECT_EQ(refusals_.Of(node_.latest_refusals[0]), now_);
}

TEST_F(StateJson, Malicious_TextThatIsNoUtf8IsStillJson) {
  node_.policy_trouble = "policy.yaml: \xff";
  policy_.Follow(node_, now_);
  EXPECT_THAT(State()["policy"]["error"].get<std::string>(),
              ::testing::StartsWith("policy.yaml: "));
}

// "tenants[].gpu_seconds.compute" of {"tenants": [{"gpu_seconds": {"compute": 1}}]}
void AddFields(const Json& json, const std::string& path, std::set<std::string>* fields) {
  if (json.is_object()) {
    for (const auto& [name, value] : json.items()) {
      fields->insert(path + name);
      AddFields(value, path + name + ".", fields);
    }
  } else if (json.is_array()) {
    for (const Json& one : json) {
      AddFields(one, path.substr(0, path.size() - 1) + "[].", fields);
    }
  }
}

TEST_F(StateJson, TheTableInTheDocumentsIsWhatIsTold) {
  std::set<std::string> told;
  AddFields(State(), "", &told);
  std::set<std::string> documented;
  std::ifstream page(GPULOOM_SOURCE_DIR "/docs/node-page.md");
  const std::regex field("`([\\w.\\[\\]]+)`");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `")) continue;
    const std::string cell = line.substr(0, line.find(" | "));
    for (std::sregex_iterator it(cell.begin(), cell.end(), field), end; it != end; ++it) {
      documented.insert((*it)[1]);
    }
  }
  // Their keys are calls.
  std::erase_if(told, [](const std::string& name) {
    return name.starts_with("kubelet.errors.") || name.starts_with("kubelet.refusals.");
  });
  EXPECT_EQ(documented, told);
}

}  // namespace
}  // namespace gpuloom
