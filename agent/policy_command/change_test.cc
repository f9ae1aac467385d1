// SPDX-License-Identifier: Apache-2.0
// What `gpuloom policy diff` says of a file, of what an agent keeps, and of who runs.
#include "agent/policy_command/change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "agent/node/sealed_text.h"
#include "agent/policy/policy_file.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class PolicyDiff : public ::testing::Test {
 protected:
  static constexpr uint64_t kGiB = uint64_t{1} << 30;

  void SetUp() override {
    std::string name = ::testing::TempDir() + "diffXXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    command_.kind = PolicyCommand::Kind::kDiff;
    command_.state_dir = name;
    command_.file = name + "/new.yaml";
    kept_ = name + "/" + kKeptPolicyName;
    // 134 GiB for 10 slots.
    running_.gpus = {{{"GPU-1", 140 * kGiB, 6 * kGiB, 10, 3, "NVIDIA H200"}, 20 * kGiB}};
  }
  void TearDown() override { std::filesystem::remove_all(command_.state_dir); }

  void Runs(const std::string& pod_namespace, const std::string& pod, uint64_t used_bytes,
            uint64_t quota_bytes, uint32_t slots = 1) {
    running_.tenants.push_back({pod_namespace, pod, "main", 0, slots, used_bytes, quota_bytes});
  }
  Answer Ask(const std::string& now, const std::string& then) {
    std::ofstream(kept_) << SealText(now);
    std::ofstream(command_.file) << then;
    return AnswerAboutChange(command_, running_);
  }
  Json Document(const std::string& now, const std::string& then) {
    command_.format = Format::kJson;
    Json document = Json::parse(Ask(now, then).text);
    command_.format = Format::kTable;
    return document;
  }

  PolicyCommand command_;
  Running running_;
  std::string kept_;
};

TEST_F(PolicyDiff, NothingChangesWhereTheSameIsSaidInOtherWords) {
  Runs("a", "p", kGiB, 4 * kGiB);
  const std::string now = "defaults: {memory: 4GiB, maxKernelTime: {warn: 2m}}";
  const std::string then =
      "# as before\ndefaults:\n  maxKernelTime: {end: never, warn: 120s}\n  memory: 4096MiB\n";
  const Answer answer = Ask(now, then);
  EXPECT_EQ(answer.exit_status, 0);
  EXPECT_EQ(answer.text, "nothing changes\n");
  EXPECT_EQ(answer.trouble, "");
  EXPECT_EQ(Document(now, then), Json({{"changes", false},
                                       {"tenants", Json::array()},
                                       {"gpus", Json::array()},
                                       {"rules", Json::array()}}));
}

TEST_F(PolicyDiff, SaysForEachWhoRunsWhichKeysChangeAndWhen) {
  Runs("a", "p", kGiB, 8 * kGiB, 2);
  Runs("b", "q", kGiB, 4 * kGiB);
  const Answer answer =
      Ask("defaults: {memory: 4GiB}\nnamespaces: {a: {weight: 50}, gone: {deny: true}}",
          "defaults: {memory: 4GiB}\n"
          "namespaces:\n"
          "  a: {memory: 6GiB, trustDomain: pod, pods: {'p*': {priority: low, deny: true}}}\n"
          "  other: {smPercent: 25%, gpus: [0, 'NVIDIA*']}\n");
  EXPECT_EQ(answer.exit_status, 1);
  EXPECT_THAT(answer.text,
              AllOf(ContainsRegex("a +p +main +GPU-1 +namespaces.a.memory +4GiB +6GiB +at once"),
                    ContainsRegex("namespaces.a.weight +50 +100 +at once"),
                    ContainsRegex("namespaces.a.pods.p\\*.priority +normal +low +at once"),
                    ContainsRegex("namespaces.a.trustDomain +namespace +pod +at its next process"),
                    ContainsRegex("pods.p\\*.deny +false +true +at its next container start")));
  EXPECT_THAT(answer.text, Not(HasSubstr("\nb ")));
  EXPECT_THAT(answer.text,
              AllOf(HasSubstr("a/p/main on GPU-1 would be refused now, and runs until a container "
                              "of it starts again: "),
                    HasSubstr("new.yaml:3:74: namespaces.a.pods.p*.deny: pod p of")));
  EXPECT_THAT(answer.text, HasSubstr("changes that nobody who runs here notices:\n"
                                     "  namespaces.gone.deny: true -> not set\n"
                                     "  namespaces.other.gpus: not set -> 0, NVIDIA*\n"
                                     "  namespaces.other.smPercent: not set -> 25%\n"));
}

TEST_F(PolicyDiff, SaysWhoUsesMoreThanItMayThen) {
  Runs("a", "large", 6 * kGiB, 8 * kGiB);
  Runs("a", "small", 3 * kGiB, 8 * kGiB);
  const std::string now = "defaults: {memory: 8GiB}";
  const std::string then = "namespaces: {a: {memory: 4GiB}}";
  const std::string text = Ask(now, then).text;
  EXPECT_THAT(text, HasSubstr("a/large/main on GPU-1 uses 6GiB, more than the new quota, 4GiB: it "
                              "keeps that and gets no more\n"));
  EXPECT_THAT(text, Not(HasSubstr("a/small/main on GPU-1 uses")));
  const Json document = Document(now, then);
  EXPECT_EQ(document["changes"], true);
  ASSERT_EQ(document["tenants"].size(), 2u);
  EXPECT_EQ(document["tenants"][0]["uses_more_than_then"], true);
  EXPECT_EQ(document["tenants"][1]["uses_more_than_then"], false);
  EXPECT_EQ(document["tenants"][1]["memory_quota_then_bytes"], 4 * kGiB);
  EXPECT_EQ(document["tenants"][1]["keys"], Json::array({{{"key", "memory"},
                                                          {"now", "8GiB"},
                                                          {"now_rule", "defaults.memory"},
                                                          {"then", "4GiB"},
                                                          {"then_rule", "namespaces.a.memory"},
                                                          {"applies", "at once"}}}));
  ASSERT_EQ(document["rules"].size(), 2u);
  EXPECT_EQ(
      document["rules"][0],
      Json({{"rule", "defaults.memory"}, {"now", "8GiB"}, {"then", nullptr}, {"tenants", 2}}));
}

TEST_F(PolicyDiff, SaysWhatTheGpusCannotKeepTo) {
  Runs("a", "p", kGiB, 2 * kGiB);
  Runs("b", "q", kGiB, 2 * kGiB);
  running_.gpus[0].promised_bytes = 130 * kGiB;
  const std::string now = "defaults: {memory: 2GiB}\nnamespaces: {c: {memory: 90GiB}}";
  const std::string then =
      "defaults: {memory: 10GiB}\nnamespaces: {b: {memory: 50GiB}, c: {memory: 90GiB}}";
  const std::string text = Ask(now, then).text;
  EXPECT_THAT(text, HasSubstr("impossible on GPU-1, which would refuse its pods: " + command_.file +
                              ":2:26: namespaces.b.memory: 10 slots x 50GiB is more than GPU"));
  EXPECT_THAT(text, Not(HasSubstr("namespaces.c"))) << "it was before";
  EXPECT_THAT(text, HasSubstr("b/q/main on GPU-1 would be refused now"));
  EXPECT_THAT(text, HasSubstr("GPU-1 lacks 4GiB of what the new quotas are more: some"));
  const Json document = Document(now, then);
  EXPECT_EQ(document["gpus"][0]["memory_missing_bytes"], 4 * kGiB);
  EXPECT_EQ(document["tenants"][1]["memory_quota_then_bytes"], 2 * kGiB) << "it keeps what it has";
  EXPECT_THAT(document["tenants"][1]["refusal"].get<std::string>(),
              HasSubstr("namespaces.b.memory"));
}

TEST_F(PolicyDiff, FewerTenantsAndOtherGpusRefuseWhoIsThere) {
  Runs("a", "p", kGiB, 2 * kGiB);
  Runs("a", "q", kGiB, 2 * kGiB);
  Runs("b", "r", kGiB, 2 * kGiB);
  const std::string text =
      Ask("defaults: {memory: 2GiB}",
          "defaults: {memory: 2GiB}\nnamespaces: {a: {maxTenants: 1}, b: {gpus: [0]}}")
          .text;
  EXPECT_THAT(text, AllOf(HasSubstr("a/p/main on GPU-1 would be refused now"),
                          HasSubstr("a/q/main on GPU-1 would be refused now"),
                          HasSubstr("b/r/main on GPU-1 would be refused now"),
                          HasSubstr("(number 3, NVIDIA H200)")));
}

TEST_F(PolicyDiff, WhatCannotBeSaidIsAMistakeAndWhatCanIsSaid) {
  Answer answer = Ask("", "defaults: {memroy: 1GiB}");
  EXPECT_EQ(answer.exit_status, 2);
  EXPECT_THAT(answer.trouble, HasSubstr("new.yaml:1:12: defaults.memroy: unknown key"));
  running_.troubles = {"scheduler: does not answer"};
  answer = Ask("", "defaults: {weight: 3}");
  EXPECT_EQ(answer.exit_status, 2);
  EXPECT_EQ(answer.trouble, "gpuloom: scheduler: does not answer\n");
  EXPECT_THAT(answer.text, HasSubstr("defaults.weight: not set -> 3"));
  std::filesystem::remove(kept_);
  answer = AnswerAboutChange(command_, running_);
  EXPECT_EQ(answer.exit_status, 2);
  EXPECT_THAT(answer.trouble, AllOf(HasSubstr(kept_), HasSubstr("--state-dir")));
  command_.file += ".not";
  EXPECT_THAT(AnswerAboutChange(command_, running_).trouble, HasSubstr("No such file"));
}

}  // namespace
}  // namespace gpuloom
