// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "agent/policy/policy_parser.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(Glob, Table) {
  EXPECT_TRUE(GlobMatches("team-*", "team-a"));
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("*a*b*", "xxaxxbxx"));
  EXPECT_TRUE(GlobMatches("team-?", "team-a"));
  EXPECT_FALSE(GlobMatches("team-?", "team-"));
  EXPECT_FALSE(GlobMatches("team", "team-a"));
  EXPECT_FALSE(GlobMatches("*a", "ab"));
}

Capacity H200() { return {"GPU-1", 140 * kGiB, 6 * kGiB, 10}; }

Policy MustParse(const std::string& text) {
  absl::StatusOr<Policy> policy = ParsePolicy("p.yaml", text);
  EXPECT_TRUE(policy.ok()) << policy.status();
  return policy.ok() ? *policy : Policy{};
}

TEST(AutoReserve, TenContextsOrAnEighth) {
  EXPECT_EQ(AutoReserveBytes(140 * kGiB, 10), 6000 * kMiB);
  EXPECT_EQ(AutoReserveBytes(16 * kGiB, 10), 2 * kGiB);
  EXPECT_EQ(AutoReserveBytes(140 * kGiB, 1), 600 * kMiB);
}

TEST(Decide, EmptyPolicySharesEvenlyAndSeparatesNamespaces) {
  const Grant grant = Decide(Policy{}, H200(), "team-a", "p");
  EXPECT_EQ(grant.slot_bytes, (134 * kGiB / 10) / (2 * kMiB) * (2 * kMiB));
  EXPECT_EQ(grant.trust_domain, "namespace/team-a");
}

TEST(Decide, MostSpecificFirstKeyByKey) {
  const Policy policy = MustParse(R"(
defaults: {memory: 1GiB, trustDomain: pod}
namespaces:
  "*": {memory: 2GiB}
  "team-*": {memory: 3GiB, trustDomain: teams}
  "team-a*": {memory: 4GiB}
  team-a: {trustDomain: node}
  "*-batch": {trustDomain: namespace}
)");
  struct Case {
    const char* pod_namespace;
    uint64_t slot_bytes;
    const char* trust_domain;
  };
  for (const Case& c :
       {Case{"team-a", 4 * kGiB, "node"}, Case{"team-ab", 4 * kGiB, "name/teams"},
        Case{"team-b", 3 * kGiB, "name/teams"}, Case{"other", 2 * kGiB, "pod/other/p"},
        Case{"x-batch", 2 * kGiB, "namespace/x-batch"},
        Case{"team-batch", 3 * kGiB, "name/teams"}}) {
    const Grant grant = Decide(policy, H200(), c.pod_namespace, "p");
    EXPECT_EQ(grant.slot_bytes, c.slot_bytes) << c.pod_namespace;
    EXPECT_EQ(grant.trust_domain, c.trust_domain) << c.pod_namespace;
  }
}

TEST(Decide, ANamedDomainIsNeverANamespacesOwn) {
  const Policy policy = MustParse("namespaces: {mallory: {trustDomain: team-a}}");
  EXPECT_NE(Decide(policy, H200(), "mallory", "p").trust_domain,
            Decide(policy, H200(), "team-a", "p").trust_domain);
}

TEST(Decide, MemoryIsRoundedDownToGranules) {
  const Policy policy = MustParse("defaults: {memory: 3MiB}");
  EXPECT_EQ(Decide(policy, H200(), "a", "p").slot_bytes, 2 * kMiB);
}

TEST(CheckPromise, RefusesMoreThanThereIsUnlessOvercommit) {
  const std::string text = "defaults:\n  memory: 13GiB\nnamespaces:\n  big:\n    memory: 14GiB\n";
  EXPECT_THAT(
      CheckPromise(MustParse(text), H200()).message(),
      HasSubstr("p.yaml:5: namespaces.big.memory: 10 slots x 14GiB is more than GPU GPU-1 has"));
  EXPECT_TRUE(CheckPromise(MustParse(text + "overcommit: true\n"), H200()).ok());
  EXPECT_TRUE(CheckPromise(MustParse("defaults: {memory: 13GiB}"), H200()).ok());
  // The reserve counts: 14 x 10 would fit without it.
  EXPECT_FALSE(CheckPromise(MustParse("defaults: {memory: 14GiB}"), H200()).ok());
}

TEST(ParsePolicy, MessagesCarryFileLineAndKey) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& c : {
           Case{"defaults:\n  memroy: 8GiB\n",
                "p.yaml:2: defaults.memroy: unknown key; did you mean memory?"},
           Case{"default: {}\n", "p.yaml:1: default: unknown key; did you mean defaults?"},
           Case{"weights: {}\n", "known here: defaults, namespaces, overcommit"},
           Case{"namespaces:\n  a: {memory: 8GB}\n", "p.yaml:2: namespaces.a.memory: size '8GB'"},
           Case{"namespaces:\n  a: {trustdomain: pod}\n", "did you mean trustDomain?"},
           Case{"namespaces:\n  a: {trustDomain: Team_A}\n",
                "p.yaml:2: namespaces.a.trustDomain: write pod"},
           Case{"namespaces:\n  Team_A: {}\n", "p.yaml:2: namespaces.Team_A: not a namespace"},
           Case{"namespaces:\n  a: {}\n  a: {}\n",
                "p.yaml:3: namespaces.a: written twice, first in line 2"},
           Case{"namespaces: [a]\n", "p.yaml:1: namespaces: must be a map"},
           Case{"defaults: 3\n", "p.yaml:1: defaults: must be a map"},
           Case{"overcommit: maybe\n", "p.yaml:1: overcommit: write true or false"},
           Case{"overcommit: \"true\"\n", "without quotes"},
           Case{"defaults: {memory: 4294967296}\n",
                "p.yaml:1: defaults.memory: size '4294967296' has no unit"},
           Case{"defaults: {trustDomain: on}\n",
                "defaults.trustDomain: write it in quotes, \"on\""},
           Case{"defaults: {trustDomain: 2001-01-01}\n", "write it in quotes"},
           Case{"defaults: {trustDomain: 0x1f}\n", "write it in quotes"},
           Case{"defaults: {memory: 1KiB}\n", "less than 2MiB"},
           Case{"defaults: {memory: [1]}\n", "write a size"},
           Case{"a: [\n", "p.yaml:2: not YAML"},
           Case{"- a\n", "a policy is a map"},
           Case{"---\n{}\n---\n{}\n", "p.yaml:3: a second YAML document"},
           Case{"\n, a: 1\n", "p.yaml:2: not YAML: nothing can begin"},
       }) {
    const absl::StatusOr<Policy> policy = ParsePolicy("p.yaml", c.text);
    ASSERT_FALSE(policy.ok()) << c.text;
    EXPECT_THAT(policy.status().message(), HasSubstr(c.message));
  }
  EXPECT_TRUE(ParsePolicy("p.yaml", "").ok());
  EXPECT_TRUE(ParsePolicy("p.yaml", "defaults:\nnamespaces:\n  a:\n").ok());
}

TEST(ParsePolicy, TheExamplesAndTheChartsDefaultAreGood) {
  const std::filesystem::path root = GPULOOM_SOURCE_DIR;
  for (const char* name :
       {"deploy/examples/policy.yaml", "deploy/examples/policy-overcommit.yaml"}) {
    std::ostringstream text;
    text << std::ifstream(root / name).rdbuf();
    ASSERT_FALSE(text.str().empty()) << name;
    const absl::StatusOr<Policy> policy = ParsePolicy(name, text.str());
    ASSERT_TRUE(policy.ok()) << policy.status();
    EXPECT_TRUE(CheckPromise(*policy, H200()).ok()) << CheckPromise(*policy, H200());
  }
  YAML::Emitter chart;
  chart << YAML::LoadFile(root / "charts/gpuloom/values.yaml")["policy"];
  const absl::StatusOr<Policy> policy = ParsePolicy("values.yaml", chart.c_str());
  EXPECT_TRUE(policy.ok()) << policy.status();
}

}  // namespace
}  // namespace gpuloom
