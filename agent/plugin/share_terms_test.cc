// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/share_terms.h"

#include <gtest/gtest.h>

#include "agent/policy/testing/policies.h"

namespace gpuloom {
namespace {

TEST(ShareTermsOf, NamespaceAndPodEachSayTheirPart) {
  const Policy policy = MustParse(R"(
namespaces:
  team-a:
    weight: 300
    priority: normal
    timeShareMax: 60%
    pods:
      "train-*": {weight: 20, priority: low, timeShareMax: 30%}
      "train-*/monitor": {weight: 1}
)");
  EXPECT_EQ(ShareTermsOf(policy, {"team-a", "train-1", "main"}),
            (control::ShareTerms{300, 20, 3, 600, 300}));
  EXPECT_EQ(ShareTermsOf(policy, {"team-a", "train-1", "monitor"}),
            (control::ShareTerms{300, 1, 3, 600, 300}));
  EXPECT_EQ(ShareTermsOf(policy, {"team-a", "train-1", ""}),
            (control::ShareTerms{300, 20, 3, 600, 300}))
      << "an init container";
  EXPECT_EQ(ShareTermsOf(policy, {"team-a", "serve", "main"}),
            (control::ShareTerms{300, 100, 2, 600, 0}));
}

TEST(PartitionTermsOf, NamespaceAndPodEachSayTheirPart) {
  const Policy policy = MustParse(R"(
namespaces:
  team-a:
    smPercent: 50%
    smReserved: 25%
    pods:
      "train-*": {smPercent: 20%, smReserved: 10%}
      "all-*": {smPercent: 100%}
)");
  EXPECT_EQ(PartitionTermsOf(policy, {"team-a", "train-1", "main"}),
            (control::PartitionTerms{50, 25, 20, 10}));
  EXPECT_EQ(PartitionTermsOf(policy, {"team-a", "all-1", "main"}),
            (control::PartitionTerms{50, 25, 0, 0}));
  EXPECT_EQ(PartitionTermsOf(policy, {"team-b", "p", "main"}), control::PartitionTerms{});
}

TEST(TraceTermsOf, CuptiOnlyWhereAPodHasItsDomainToItself) {
  const Policy policy = MustParse(R"(
namespaces:
  alone: {trace: own, trustDomain: pod, pods: {quiet: {trace: none}}}
  shared: {trace: own}
  named: {trace: own, trustDomain: inference}
)");
  const auto of = [&](const char* space, const char* pod) {
    return TraceTermsOf(policy, {space, pod, "main"});
  };
  EXPECT_EQ(of("alone", "p"), control::TraceTerms::kOwnByCupti);
  EXPECT_EQ(of("alone", "quiet"), control::TraceTerms::kNone);
  EXPECT_EQ(of("shared", "p"), control::TraceTerms::kOwn);
  EXPECT_EQ(of("named", "p"), control::TraceTerms::kOwn);
  EXPECT_EQ(of("other", "p"), control::TraceTerms::kNone);
}

TEST(ShareTermsOf, WithoutRulesTheDefaultsWithoutCeilings) {
  EXPECT_EQ(ShareTermsOf(Policy{}, {"team-a", "p", "main"}),
            (control::ShareTerms{100, 100, 2, 0, 0}));
  EXPECT_EQ(ShareTermsOf(MustParse("defaults: {timeShareMax: 100%}"), {"team-a", "p", "main"}),
            (control::ShareTerms{100, 100, 2, 0, 0}));
}

TEST(ShareTermsOf, APodIsNeverAboveItsNamespace) {
  const Policy policy = MustParse(
      "namespaces: {'*': {priority: high, pods: {p: {priority: high}}}, a: {priority: low}}");
  EXPECT_EQ(ShareTermsOf(policy, {"a", "p", "main"}).priority, 3u);
  EXPECT_EQ(ShareTermsOf(policy, {"b", "p", "main"}).priority, 1u);
}

}  // namespace
}  // namespace gpuloom
