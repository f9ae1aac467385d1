// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/policy/settings.h"
#include "agent/policy/testing/policies.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(ParsePolicy, MessagesCarryFileLineAndKey) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : {
           Case{"defaults:\n  memroy: 8GiB\n",
                "p.yaml:2:3: defaults.memroy: unknown key; did you mean memory?"},
           Case{"default: {}\n", "p.yaml:1:1: default: unknown key; did you mean defaults?"},
           Case{"weights: {}\n", "known here: defaults, namespaces, overcommit"},
           Case{"namespaces:\n  a: {memory: 8GB}\n",
                "p.yaml:2:15: namespaces.a.memory: size '8GB'"},
           Case{"namespaces:\n  a: {trustdomain: pod}\n", "did you mean trustDomain?"},
           Case{"namespaces:\n  a: {trustDomain: Team_A}\n",
                "p.yaml:2:20: namespaces.a.trustDomain: write pod"},
           Case{"namespaces:\n  Team_A: {}\n", "p.yaml:2:3: namespaces.Team_A: not a namespace"},
           Case{"namespaces:\n  a: {}\n  a: {}\n",
                "p.yaml:3:3: namespaces.a: written twice, first in line 2"},
           Case{"namespaces:\n  a: {smPercent: 25%, smReserved: 50%}\n",
                "p.yaml:2:35: namespaces.a.smReserved: more than smPercent, 25%"},
           Case{"namespaces: [a]\n", "p.yaml:1:13: namespaces: must be a map"},
           Case{"defaults: 3\n", "p.yaml:1:11: defaults: must be a map"},
           Case{"overcommit: maybe\n", "p.yaml:1:13: overcommit: write true or false"},
           Case{"overcommit: \"true\"\n", "without quotes"},
           Case{"defaults: {memory: 4294967296}\n",
                "p.yaml:1:20: defaults.memory: size '4294967296' has no unit"},
           Case{"defaults: {trustDomain: on}\n",
                "defaults.trustDomain: write it in quotes, \"on\""},
           Case{"defaults: {trustDomain: 2001-01-01}\n", "write it in quotes"},
           Case{"defaults: {trustDomain: 0x1f}\n", "write it in quotes"},
           Case{"defaults: {memory: 1KiB}\n", "less than 2MiB"},
           Case{"defaults: {memory: [1]}\n", "write a size"},
           Case{"a: [\n", "p.yaml:2:1: not YAML"},
           Case{"- a\n", "a policy is a map"},
           Case{"---\n{}\n---\n{}\n", "p.yaml:3:1: a second YAML document"},
           Case{"\n, a: 1\n", "p.yaml:2:1: not YAML: nothing can begin"},
       }) {
    std::string error;
    EXPECT_FALSE(ParsePolicy("p.yaml", c.text, &error)) << c.text;
    EXPECT_THAT(error, HasSubstr(c.message)) << c.text;
  }
  MustParse("defaults:\nnamespaces:\n  a:\n");
}

std::vector<std::string> MistakesIn(const std::string& text) {
  PolicyMistakes mistakes("p.yaml");
  EXPECT_FALSE(ParsePolicy(text, &mistakes)) << text;
  return mistakes.Messages();
}

TEST(ParsePolicy, EveryMistakeIsNamedInTheTextsOrder) {
  const std::string text =
      "overcomit: true\n"
      "defaults:\n"
      "  trace: owm\n"
      "  weight: 0\n"
      "namespaces:\n"
      "  Team_A:\n"
      "    memory: 8GB\n"
      "    trustDomain: on\n"
      "    rescueAfter: 100\n"
      "    maxTenants: 0\n"
      "    maxKernelTime: {wern: 10s, end: 5, warn: 2h}\n"
      "  b: 3\n"
      "  c:\n"
      "    gpus: ['0', 1, true]\n"
      "    smReserved: 50%\n"
      "    smPercent: 25%\n"
      "    pods:\n"
      "      P: {priorty: low, memoryWait: 5}\n"
      "      q: [low]\n"
      "  c: {}\n";
  EXPECT_THAT(
      MistakesIn(text),
      ElementsAre(
          HasSubstr("p.yaml:1:1: overcomit: unknown key; did you mean overcommit?"),
          HasSubstr("p.yaml:3:10: defaults.trace: did you mean own?"),
          HasSubstr("p.yaml:4:11: defaults.weight: write a whole number"),
          HasSubstr("p.yaml:6:3: namespaces.Team_A: not a namespace name or glob"),
          HasSubstr("p.yaml:7:13: namespaces.Team_A.memory: size '8GB'"),
          HasSubstr("p.yaml:8:18: namespaces.Team_A.trustDomain: write it in quotes"),
          HasSubstr("p.yaml:9:18: namespaces.Team_A.rescueAfter: '100' has no unit"),
          HasSubstr("p.yaml:10:17: namespaces.Team_A.maxTenants: write a whole number"),
          HasSubstr("p.yaml:11:21: namespaces.Team_A.maxKernelTime.wern: unknown key; did you"),
          HasSubstr("p.yaml:11:37: namespaces.Team_A.maxKernelTime.end: '5' has no unit"),
          HasSubstr("p.yaml:11:46: namespaces.Team_A.maxKernelTime.warn: write a time"),
          HasSubstr("p.yaml:12:6: namespaces.b: must be a map"),
          HasSubstr("p.yaml:14:12: namespaces.c.gpus: write a list of GPUs"),
          HasSubstr("p.yaml:14:20: namespaces.c.gpus: write a list of GPUs"),
          HasSubstr("p.yaml:15:17: namespaces.c.smReserved: more than smPercent, 25%"),
          HasSubstr("p.yaml:18:7: namespaces.c.pods.P: not a pod's name or glob"),
          HasSubstr(
              "p.yaml:18:11: namespaces.c.pods.P.priorty: unknown key; did you mean priority?"),
          HasSubstr("p.yaml:18:37: namespaces.c.pods.P.memoryWait: '5' has no unit"),
          HasSubstr("p.yaml:19:10: namespaces.c.pods.q: must be a map"),
          HasSubstr("p.yaml:20:3: namespaces.c: written twice, first in line 13")));
  EXPECT_THAT(MistakesIn("namespaces: {[d]: {weight: 0}, e: {pods: 7}, f: {deny: yes}}"),
              ElementsAre(HasSubstr("p.yaml:1:14: namespaces: a key must be a word"),
                          HasSubstr("p.yaml:1:42: namespaces.e.pods: must be a map"),
                          HasSubstr("p.yaml:1:56: namespaces.f.deny: write true or false")));
}

TEST(ParsePolicy, OfManyMistakesTheFirstAreNamedAndTheOthersCounted) {
  std::string text = "namespaces:\n";
  for (int i = 0; i != 1000; ++i) text += "  a" + std::to_string(i) + ": {wait: 1}\n";
  PolicyMistakes mistakes("p.yaml");
  EXPECT_FALSE(ParsePolicy(text, &mistakes));
  EXPECT_EQ(mistakes.count(), 1000u);
  const std::vector<std::string> messages = mistakes.Messages();
  ASSERT_EQ(messages.size(), PolicyMistakes::kMostKept);
  EXPECT_THAT(messages.front(), StartsWith("p.yaml:2:8: namespaces.a0.wait: "));
  EXPECT_THAT(messages.back(), StartsWith("p.yaml:21:9: namespaces.a19.wait: "));
  std::string error;
  EXPECT_FALSE(ParsePolicy("p.yaml", text, &error));
  EXPECT_EQ(error, messages.front());
}

TEST(ParsePolicy, NoMistakeIsNamedThatOnlyFollowsFromAnother) {
  // Both pods may have what they ask for, once the key is spelt.
  EXPECT_THAT(MistakesIn("namespaces: {a: {priorty: high, pods: {p: {priority: high}}}}"),
              ElementsAre(HasSubstr("namespaces.a.priorty: unknown key")));
  EXPECT_THAT(MistakesIn("namespaces: {a: {trace: owm, pods: {p: {trace: own}}}}"),
              ElementsAre(HasSubstr("namespaces.a.trace: did you mean own?")));
  EXPECT_THAT(MistakesIn("namespaces: {a: {smPercent: 25, smReserved: 50%}}"),
              ElementsAre(HasSubstr("namespaces.a.smPercent: '25' has no unit")));
  EXPECT_THAT(MistakesIn("defaults: {memroy: 1}\nnamespaces: [\n"),
              ElementsAre(HasSubstr("p.yaml:3:1: not YAML")));
  EXPECT_THAT(MistakesIn("namespaces: {a: {pods: {p: {priority: high, trace: own}, q: {trace: "
                         "own}}}}"),
              ElementsAre(HasSubstr("pods.p.priority: high is above"), HasSubstr("pods.p.trace: "),
                          HasSubstr("pods.q.trace: ")));
}

TEST(ParsePolicy, ATextThatSaysNothingIsAMistakeAndOneWithoutRulesIsNot) {
  struct Case {
    std::string text;
    const char* place;
  };
  for (const Case& c : {Case{"", "p.yaml:1:1: "}, Case{"\n\n", "p.yaml:1:1: "},
                        Case{"# defaults:\n", "p.yaml:1:1: "},
                        Case{std::string(3, '\0'), "p.yaml:1:1: "}, Case{"null", "p.yaml:1:1: "},
                        Case{"# a\n ~\n", "p.yaml:2:2: "}, Case{"---\n# a\n", "p.yaml:"}}) {
    std::string error;
    EXPECT_FALSE(ParsePolicy("p.yaml", c.text, &error)) << c.text;
    EXPECT_THAT(error, AllOf(StartsWith(c.place), HasSubstr("is empty; write {} for a policy")))
        << c.text;
    EXPECT_TRUE(ParsePolicy("p.yaml", c.text, &error, EmptyText::kNoRules)) << error;
  }
  EXPECT_TRUE(MustParse("{}").namespaces.empty());
  MustParse("# nothing is limited\n---\n{}\n");
}

TEST(ParsePolicy, WrongValuesOfEachKeySayWhatToWrite) {
  struct Case {
    const char* rule;
    const char* message;
  };
  for (const Case& c : {
           Case{"weight: 0", ".weight: write a whole number from 1 to 1000"},
           Case{"weight: 1001", ".weight: write"},
           Case{"weight: 1.5", ".weight: write"},
           Case{"weight: 010", ".weight: write"},
           Case{"weight: '5'", "without quotes"},
           Case{"weight: [5]", ".weight: write"},
           Case{"weight:", ".weight: write"},
           Case{"wieght: 5", "did you mean weight?"},
           Case{"priority: hgh", ".priority: did you mean high?"},
           Case{"priority: High", ".priority: did you mean high?"},
           Case{"priority: urgent", ".priority: write high, normal or low"},
           Case{"priority: 1", ".priority: write high, normal or low"},
           Case{"priority: [low]", ".priority: write high, normal or low"},
           Case{"timeShareMax: 25", "'25' has no unit: write 25%"},
           Case{"timeShareMax: 0%", ".timeShareMax: write a share from 1% to 100%"},
           Case{"timeShareMax: 101%", ".timeShareMax: write a share"},
           Case{"timeShareMax: 2.5%", "in whole numbers"},
           Case{"timeShareMax: '%'", ".timeShareMax: write a share"},
           Case{"timeShareMax: '[%'", ".timeShareMax: write a share"},
           Case{"smPercent: 25", "'25' has no unit: write 25%"},
           Case{"smReserved: 0%", ".smReserved: write a share from 1% to 100%"},
           Case{"timesharemax: 5%", "did you mean timeShareMax?"},
           Case{"memoryWait: 30", ".memoryWait: '30' has no unit: write 30s"},
           Case{"memoryWait: 0", "write 0s"},
           Case{"memoryWait: 61m", ".memoryWait: write a time like 0s, 30s or 5m"},
           Case{"memoryWait: 3601s", "at most 1h"},
           Case{"memoryWait: 2h", "at most 1h"},
           Case{"memoryWait: 1.5m", ".memoryWait: write"},
           Case{"memoryWait: 5 m", ".memoryWait: write"},
           Case{"memoryWait: 100ms", ".memoryWait: write"},
           Case{"memoryWait: 05s", ".memoryWait: write"},
           Case{"memoryWait: -1s", ".memoryWait: write"},
           Case{"memoryWait: s", ".memoryWait: write"},
           Case{"memoryWait: 1d", ".memoryWait: write"},
           Case{"memoryWait: [5s]", ".memoryWait: write"},
           Case{"memoryWait:", ".memoryWait: write"},
           Case{"memorywait: 5s", "did you mean memoryWait?"},
           Case{"maxKernelTime: 30s", ".maxKernelTime: write what happens after which time"},
           Case{"maxKernelTime:", ".maxKernelTime: write what happens"},
           Case{"maxKernelTime: {}", "like {warn: 10s}, {end: 1m} or {warn: 10s, end: 1m}"},
           Case{"maxKernelTime: [30s]", ".maxKernelTime: write what happens"},
           Case{"maxKernelTime: {wern: 30s}",
                ".maxKernelTime.wern: unknown key; did you mean warn?"},
           Case{"maxKernelTime: {limit: 30s}", "unknown key; known here: warn, end"},
           Case{"maxKernelTime: {warn: 1s, warn: 2s}", ".maxKernelTime.warn: written twice"},
           Case{"maxKernelTime: {warn: 30}", ".maxKernelTime.warn: '30' has no unit: write 30s"},
           Case{"maxKernelTime: {end: 0s}", ".maxKernelTime.end: write a time like 1s, 30s or 5m"},
           Case{"maxKernelTime: {end: 0m}", ".maxKernelTime.end: write a time"},
           Case{"maxKernelTime: {end: 61m}", "at most 1h, or never"},
           Case{"maxKernelTime: {end: 500ms}", ".maxKernelTime.end: write a time"},
           Case{"maxKernelTime: {end:}", ".maxKernelTime.end: write a time"},
           Case{"maxKernelTime: {end: [5s]}", ".maxKernelTime.end: write a time"},
           Case{"maxkerneltime: {end: 5s}", "did you mean maxKernelTime?"},
           Case{"trace: owm", ".trace: did you mean own?"},
           Case{"trace: everything", ".trace: write none or own"},
           Case{"trace: true", ".trace: write none or own"},
           Case{"trace: [own]", ".trace: write none or own"},
           Case{"trace:", ".trace: write none or own"},
           Case{"trac: own", "did you mean trace?"},
           Case{"deny: yes", ".deny: write true or false"},
           Case{"deny: 'true'", ".deny: write true or false"},
           Case{"gpus: 0", ".gpus: write a list of GPUs"},
           Case{"gpus: []", ".gpus: write a list"},
           Case{"gpus: ['0']", "their numbers without quotes"},
           Case{"gpus: [-1]", ".gpus: write a list"},
           Case{"gpus: [1024]", ".gpus: write a list"},
           Case{"gpus: [true]", ".gpus: write a list"},
           Case{"gpus: [[0]]", ".gpus: write a list"},
           Case{"gpus: [\"a\\nb\"]", ".gpus: write a list"},
       }) {
    for (const std::string& text :
         {"defaults:\n  " + std::string(c.rule) + "\n",
          "namespaces:\n  a:\n    " + std::string(c.rule) + "\n",
          "namespaces:\n  a:\n    pods:\n      p:\n        " + std::string(c.rule) + "\n"}) {
      std::string error;
      EXPECT_FALSE(ParsePolicy("p.yaml", text, &error)) << text;
      EXPECT_THAT(error, AllOf(StartsWith("p.yaml:"), HasSubstr(c.message))) << text;
    }
  }
}

TEST(ParsePolicy, WhatBelongsElsewhereIsRefusedWithWhatBelongsThere) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : {
           Case{"defaults: {maxTenants: 0}", "defaults.maxTenants: write a whole number from 1"},
           Case{"defaults: {maxTenants: lots}", "none at all is deny: true"},
           Case{"defaults: {rescueAfter: 100}", "rescueAfter: '100' has no unit: write 100ms"},
           Case{"defaults: {rescueAfter: 9ms}", "from 10ms to 1h, or never"},
           Case{"defaults: {rescueAfter: 2h}", "defaults.rescueAfter: write a time like 100ms"},
           Case{"defaults: {rescueAfter: Never}", "defaults.rescueAfter: write a time"},
           Case{"namespaces: {a: {rescueAfter: [1s]}}", "a.rescueAfter: write a time"},
           Case{"namespaces: {a: {pods: {p: {rescueAfter: 10ms}}}}",
                "namespaces.a.pods.p.rescueAfter: unknown key"},
           Case{"defaults: {pods: {}}", "defaults.pods: unknown key; known here: weight,"},
           Case{"namespaces: {a: {pods: {p: {memory: 1GiB}}}}",
                "p.yaml:1:29: namespaces.a.pods.p.memory: unknown key; known here: weight, "
                "priority, timeShareMax, smPercent, smReserved, memoryWait, maxKernelTime, trace, "
                "deny, gpus"},
           Case{"namespaces: {a: {pods: [p]}}", "namespaces.a.pods: must be a map"},
           Case{"namespaces: {a: {pods: {p: 3}}}", "namespaces.a.pods.p: must be a map"},
           Case{"namespaces: {a: {pods: {p: , p: }}}", "namespaces.a.pods.p: written twice"},
           Case{"namespaces: {a: {pods: {P: }}}", "namespaces.a.pods.P: not a pod's name or glob"},
           Case{"namespaces: {a: {pods: {'p/': }}}", "not a pod's name"},
           Case{"namespaces: {a: {pods: {/c: }}}", "not a pod's name"},
           Case{"namespaces: {a: {pods: {p/c/d: }}}", "not a pod's name"},
           Case{"namespaces: {a: {pods: {p/c.d: }}}", "not a pod's name"},
       }) {
    std::string error;
    EXPECT_FALSE(ParsePolicy("p.yaml", c.text, &error)) << c.text;
    EXPECT_THAT(error, HasSubstr(c.message)) << c.text;
  }
  MustParse("namespaces: {a: {pods: {'p.q-1': , 'p*/c?': {weight: 1}, p: {}}}, b: {pods: }}");
}

TEST(ParsePolicy, APodsRuleAboveItsNamespacesPriorityIsRefused) {
  for (const char* text :
       {"namespaces: {a: {pods: {p: {priority: high}}}}",
        "namespaces: {a: {priority: low, pods: {p: {priority: normal}}}}",
        "defaults: {priority: low}\nnamespaces: {a: {pods: {p: {priority: normal}}}}",
        "namespaces: {'*': {priority: low}, 'a*': {pods: {p: {priority: normal}}}}"}) {
    std::string error;
    EXPECT_FALSE(ParsePolicy("p.yaml", text, &error)) << text;
    EXPECT_THAT(error, HasSubstr(", the namespace's, and tenants choose their pods' names"))
        << text;
  }
  MustParse("namespaces: {a: {priority: high, pods: {p: {priority: high}, q: {priority: low}}}}");
  MustParse("defaults: {priority: high}\nnamespaces: {'a*': {pods: {p: {priority: high}}}}");
}

TEST(ParsePolicy, APodsTraceBeyondItsNamespacesIsRefused) {
  for (const char* text :
       {"namespaces: {a: {pods: {p: {trace: own}}}}",
        "defaults: {trace: own}\nnamespaces: {a: {trace: none, pods: {p: {trace: own}}}}",
        "namespaces: {'*': {trace: none}, 'a*': {pods: {p: {trace: own}}}}"}) {
    std::string error;
    EXPECT_FALSE(ParsePolicy("p.yaml", text, &error)) << text;
    EXPECT_THAT(error, HasSubstr(".pods.p.trace: own is more than none, the namespace's")) << text;
  }
  MustParse("namespaces: {a: {trace: own, pods: {p: {trace: own}, q: {trace: none}}}}");
  MustParse("defaults: {trace: own}\nnamespaces: {'a*': {pods: {p: {trace: own}}}}");
}

TEST(ParsePolicy, TheExamplesAndTheChartsDefaultAreGood) {
  const std::filesystem::path root = GPULOOM_SOURCE_DIR;
  for (const char* name : {"deploy/examples/policy.yaml", "deploy/examples/policy-overcommit.yaml",
                           "deploy/examples/policy-shares.yaml"}) {
    std::ostringstream text;
    text << std::ifstream(root / name).rdbuf();
    ASSERT_FALSE(text.str().empty()) << name;
    EXPECT_TRUE(
        ImpossibleRules(MustParse(text.str()), {"GPU-1", 140 * kGiB, 6 * kGiB, 10, 0, ""}).empty());
  }
  YAML::Emitter chart;
  chart << YAML::LoadFile(root / "charts/gpuloom/values.yaml")["policy"];
  MustParse(chart.c_str());
}

}  // namespace
}  // namespace gpuloom
