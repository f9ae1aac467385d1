// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/policy/testing/policies.h"

namespace gpuloom {
namespace {

using arbiter::Priority;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;

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

TEST(Settings, MemoryWaitIsATimeInSeconds) {
  const Policy policy = MustParse(R"(
defaults: {memoryWait: 5m}
namespaces:
  team-a:
    memoryWait: 30s
    pods:
      batch: {memoryWait: 10s}
      "serve-*": {memoryWait: 0s}
)");
  EXPECT_EQ(SettingsOfNamespace(policy, "other").memory_wait_s.value, 300u);
  EXPECT_EQ(SettingsOfNamespace(policy, "team-a").memory_wait_s.value, 30u);
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "p", "c").memory_wait_s.value, 30u);
  EXPECT_EQ(SettingsOfPod(policy, "other", "p", "c").memory_wait_s.value, 300u);
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "batch", "c").memory_wait_s.value, 10u);
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "serve-1", "c").memory_wait_s.value, 0u);
  EXPECT_EQ(SettingsOfNamespace(Policy{}, "other").memory_wait_s.value, 0u);
}

TEST(Settings, Malicious_APodsNameWaitsForMemoryNoLongerThanItsNamespace) {
  const Policy policy = MustParse(R"(
namespaces:
  "team-*": {memoryWait: 1h, pods: {"batch-*": {memoryWait: 30m}}}
  team-a: {memoryWait: 30s, pods: {patient: {memoryWait: 1h}, quick: {memoryWait: 5s}}}
  none: {pods: {patient: {memoryWait: 1h}}}
)");
  const auto of_pod = [&](const char* space, const char* pod) {
    return SettingsOfPod(policy, space, pod, "c").memory_wait_s;
  };
  EXPECT_EQ(of_pod("team-b", "batch-1").value, 1800u);
  EXPECT_EQ(of_pod("team-a", "batch-1").value, 30u) << "a wider namespace's rule lifts nobody";
  EXPECT_EQ(of_pod("team-a", "patient").value, 30u);
  EXPECT_EQ(of_pod("team-a", "patient").key, "namespaces.team-a.memoryWait");
  EXPECT_EQ(of_pod("team-a", "quick").value, 5u);
  EXPECT_EQ(of_pod("none", "patient").value, 0u);
}

TEST(Settings, RescueAfterIsTheNamespaces) {
  const Policy policy = MustParse(R"(
defaults: {rescueAfter: 2s}
namespaces:
  batch: {rescueAfter: never}
  quick: {rescueAfter: 10ms}
  slow: {rescueAfter: 1h}
  minutes: {rescueAfter: 3m}
)");
  const auto of = [&](const char* space) {
    return SettingsOfNamespace(policy, space).rescue_after_ms.value;
  };
  EXPECT_EQ(of("other"), 2000u);
  EXPECT_EQ(of("batch"), kNeverRescued);
  EXPECT_EQ(of("quick"), 10u);
  EXPECT_EQ(of("slow"), 3'600'000u);
  EXPECT_EQ(of("minutes"), 180'000u);
  EXPECT_EQ(SettingsOfNamespace(Policy{}, "other").rescue_after_ms.value, kDefaultRescueAfterMs);
}

TEST(Settings, APodTracesWhereItsNamespaceDoes) {
  const Policy policy = MustParse(R"(
namespaces:
  "team-*":
    trace: own
    pods:
      quiet: {trace: none}
      loud: {trace: own}
  team-b: {trace: none}
)");
  const auto of_pod = [&](const char* space, const char* pod) {
    return SettingsOfPod(policy, space, pod, "c").trace;
  };
  EXPECT_EQ(of_pod("other", "p").value, TraceRule::kNone);
  EXPECT_EQ(of_pod("team-a", "p").value, TraceRule::kOwn);
  EXPECT_EQ(of_pod("team-a", "p").key, "namespaces.team-*.trace");
  EXPECT_EQ(of_pod("team-a", "quiet").value, TraceRule::kNone);
  // A wider rule's pods do not lift a namespace that another rule keeps down.
  EXPECT_EQ(of_pod("team-b", "loud").value, TraceRule::kNone);
  EXPECT_EQ(of_pod("team-b", "loud").key, "namespaces.team-b.trace");
}

TEST(Settings, APodsKernelsRunNoLongerThanItsNamespaceSays) {
  const Policy policy = MustParse(R"(
defaults: {maxKernelTime: {warn: 10s, end: 1m}}
namespaces:
  team-a:
    maxKernelTime: {warn: 30s}
    pods:
      short: {maxKernelTime: {warn: 5s, end: 2m}}
      long: {maxKernelTime: {warn: 1h, end: never}}
      ends: {maxKernelTime: {end: 20s}}
  free: {maxKernelTime: {end: never}}
)");
  const auto of_pod = [&](const char* space, const char* pod) {
    return SettingsOfPod(policy, space, pod, "c").max_kernel_time.value;
  };
  EXPECT_EQ(of_pod("other", "p"), (KernelTimeRule{10, 60}));
  EXPECT_EQ(of_pod("team-a", "p"), (KernelTimeRule{30, 0}));
  EXPECT_EQ(of_pod("team-a", "short"), (KernelTimeRule{5, 120}));
  EXPECT_EQ(of_pod("team-a", "long"), (KernelTimeRule{30, 0}));
  EXPECT_EQ(of_pod("team-a", "ends"), (KernelTimeRule{30, 20}));
  EXPECT_EQ(of_pod("free", "p"), KernelTimeRule{});
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "long", "c").max_kernel_time.key,
            "namespaces.team-a.maxKernelTime");
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "ends", "c").max_kernel_time.key,
            "namespaces.team-a.pods.ends.maxKernelTime");
  EXPECT_EQ(SettingsOfNamespace(Policy{}, "other").max_kernel_time.value, KernelTimeRule{});
}

TEST(Settings, EachKeyFromTheMostSpecificRuleThatSetsIt) {
  const Policy policy = MustParse(R"(
defaults: {weight: 50, priority: low, maxTenants: 4}
namespaces:
  "team-*": {weight: 200, priority: high, timeShareMax: 60%, deny: true}
  team-a: {weight: 300, deny: false, gpus: [0, "NVIDIA H200*"]}
)");
  const NamespaceSettings team = SettingsOfNamespace(policy, "team-a");
  EXPECT_EQ(team.weight.value, 300u);
  EXPECT_EQ(team.weight.key, "namespaces.team-a.weight");
  EXPECT_EQ(team.weight.place.line, 5);
  EXPECT_EQ(team.priority.value, Priority::kHigh);
  EXPECT_EQ(team.priority.key, "namespaces.team-*.priority");
  EXPECT_EQ(team.time_share_max_percent.value, 60u);
  EXPECT_EQ(team.max_tenants.value, 4u);
  EXPECT_EQ(team.max_tenants.key, "defaults.maxTenants");
  EXPECT_FALSE(team.deny.value);
  EXPECT_THAT(team.gpus.value,
              ElementsAre(GpuPattern{0, ""}, GpuPattern{std::nullopt, "NVIDIA H200*"}));
  EXPECT_TRUE(SettingsOfNamespace(policy, "team-b").deny.value);
  const NamespaceSettings other = SettingsOfNamespace(Policy(), "other");
  EXPECT_EQ(other.weight.value, kDefaultWeight);
  EXPECT_EQ(other.weight.key, "");
  EXPECT_EQ(other.priority.value, Priority::kNormal);
  EXPECT_EQ(other.time_share_max_percent.value, 100u);
  EXPECT_EQ(other.max_tenants.value, 0u);
}

TEST(Settings, APodsKeysByItsNameThenItsContainersThenTheWiderNamespaces) {
  const Policy policy = MustParse(R"(
namespaces:
  "team-*":
    pods:
      "*": {weight: 1, timeShareMax: 7%}
      exact-1: {weight: 2}
  team-a:
    weight: 900
    pods:
      "*/sidecar": {weight: 10}
      "serve-*": {weight: 20}
      "serve-*/*": {weight: 25}
      "serve-*/main": {weight: 30}
      "serve-1?": {priority: low}
)");
  const auto weight = [&](const char* pod, const char* container) {
    return SettingsOfPod(policy, "team-a", pod, container).weight.value;
  };
  EXPECT_EQ(weight("serve-1", "main"), 30u);
  EXPECT_EQ(weight("serve-1", "sidecar"), 25u);
  EXPECT_EQ(weight("serve-1", ""), 20u) << "an init container, whose name nobody tells";
  EXPECT_EQ(weight("train", "sidecar"), 10u);
  EXPECT_EQ(weight("train", "main"), 1u);
  EXPECT_EQ(weight("exact-1", "main"), 2u);
  EXPECT_EQ(SettingsOfPod(policy, "other", "p", "c").weight.value, kDefaultWeight)
      << "the namespace's weight is not its pods'";
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "serve-12", "main").priority.value, Priority::kLow);
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "serve-1", "main").priority.value, Priority::kNormal);
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "p", "c").time_share_max_percent.value, 7u);
}

TEST(Settings, Malicious_APodsNameLiftsItNeverAboveItsNamespace) {
  // The wider namespace's pods may be high; the exact one's may not, whatever they are called.
  const Policy policy = MustParse(R"(
namespaces:
  "team-*":
    priority: high
    pods: {"serve-*": {priority: high}, batch: {priority: low}}
  team-a: {priority: normal}
)");
  EXPECT_EQ(SettingsOfPod(policy, "team-b", "serve-1", "c").priority.value, Priority::kHigh);
  const PodSettings lifted = SettingsOfPod(policy, "team-a", "serve-1", "c");
  EXPECT_EQ(lifted.priority.value, Priority::kNormal);
  EXPECT_EQ(lifted.priority.key, "namespaces.team-a.priority");
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "batch", "c").priority.value, Priority::kLow);
  EXPECT_EQ(SettingsOfPod(policy, "team-a", "p", "c").priority.value, Priority::kNormal);
}

TEST(Refusal, DenyGpusAndMaxTenantsNameNamespaceKeyAndPlace) {
  const Policy policy = MustParse(R"(
namespaces:
  denied:
    deny: true
    pods: {"let-me-in": {deny: false}}
  some:
    gpus: ["NVIDIA A100*", 7]
    pods: {"*": {gpus: ["*"]}}
  most:
    maxTenants: 2
    pods:
      batch: {deny: true}
      other: {gpus: [4]}
)");
  const auto refusal = [&](const char* space, const char* pod, uint32_t tenants) {
    return Refusal(policy, H200(), {space, pod, "c", tenants});
  };
  EXPECT_EQ(refusal("free", "p", 9), "");
  EXPECT_EQ(refusal("denied", "let-me-in", 0),
            "p.yaml:4:11: namespaces.denied.deny: namespace denied may not use GPUs");
  EXPECT_THAT(refusal("some", "p", 0),
              HasSubstr("p.yaml:7:11: namespaces.some.gpus: namespace some may not use GPU GPU-1 "
                        "(number 3, NVIDIA H200)"));
  EXPECT_EQ(refusal("most", "p", 1), "");
  EXPECT_EQ(
      refusal("most", "p", 2),
      "p.yaml:10:17: namespaces.most.maxTenants: namespace most has 2 containers on GPU GPU-1, "
      "of at most 2");
  EXPECT_THAT(refusal("most", "batch", 0), HasSubstr("pod batch of namespace most may not use"));
  EXPECT_THAT(refusal("most", "other", 0), HasSubstr("pods.other.gpus: pod other of namespace"));
}

TEST(Refusal, GpusByNumberUuidAndProduct) {
  for (const char* gpus : {"3", "0, 3", "GPU-1", "GPU-*", "NVIDIA H200", "NVIDIA*", "'*'"}) {
    const Policy policy = MustParse(std::string("defaults: {gpus: [") + gpus + "]}");
    EXPECT_EQ(Refusal(policy, H200(), {"a", "p", "c", 0}), "") << gpus;
  }
  for (const char* gpus : {"1", "GPU-2", "NVIDIA H20", "nvidia*", "'GPU-?0'"}) {
    const Policy policy = MustParse(std::string("defaults: {gpus: [") + gpus + "]}");
    EXPECT_THAT(Refusal(policy, H200(), {"a", "p", "c", 0}), HasSubstr("defaults.gpus")) << gpus;
  }
}

std::vector<std::string> KeysOf(const std::vector<ImpossibleRule>& promises) {
  std::vector<std::string> keys;
  for (const ImpossibleRule& one : promises) keys.push_back(one.key);
  return keys;
}

TEST(ImpossibleRules, NameWhatIsMoreThanThereIsUnlessOvercommit) {
  const std::string text = "defaults:\n  memory: 13GiB\nnamespaces:\n  big:\n    memory: 14GiB\n";
  const Policy policy = MustParse(text);
  const std::vector<ImpossibleRule> broken = ImpossibleRules(policy, H200());
  ASSERT_THAT(KeysOf(broken), ElementsAre("namespaces.big.memory"));
  EXPECT_THAT(
      broken[0].message,
      HasSubstr("p.yaml:5:13: namespaces.big.memory: 10 slots x 14GiB is more than GPU GPU-1 has"));
  EXPECT_EQ(WhyImpossibleFor(policy, H200(), "big"), broken[0].message);
  EXPECT_EQ(WhyImpossibleFor(policy, H200(), "other"), "");
  EXPECT_THAT(ImpossibleRules(MustParse(text + "overcommit: true\n"), H200()), IsEmpty());
  // The reserve counts: 14 x 10 would fit without it.
  EXPECT_THAT(KeysOf(ImpossibleRules(MustParse("defaults: {memory: 14GiB}"), H200())),
              ElementsAre("defaults.memory"));
}

TEST(ImpossibleRules, AreNoneToWhomMayNotUseTheGpuAnyway) {
  const Capacity h100 = {"GPU-2", 80 * kGiB, 6 * kGiB, 10, 0, "NVIDIA H100 80GB HBM3"};
  for (const char* text : {
           "namespaces: {team-h200: {gpus: ['NVIDIA H200'], memory: 13GiB}}",
           "namespaces: {team-h200: {gpus: [3], memory: 13GiB}}",
           "namespaces: {'team-*': {gpus: ['NVIDIA H200']}, team-a: {memory: 13GiB}}",
           "defaults: {gpus: ['NVIDIA H200']}\nnamespaces: {a: {memory: 13GiB}}",
           "namespaces: {a: {deny: true, memory: 13GiB}}",
           "defaults: {memory: 13GiB}\nnamespaces: {'*': {memory: 1GiB}}",
       }) {
    const Policy policy = MustParse(text);
    EXPECT_THAT(KeysOf(ImpossibleRules(policy, h100)), IsEmpty()) << text;
    EXPECT_THAT(KeysOf(ImpossibleRules(policy, H200())), IsEmpty()) << text;
  }
  // A rule of its own lets it on the GPU, with a wider rule's memory.
  const Policy mixed = MustParse(
      "defaults: {gpus: ['NVIDIA H200'], memory: 13GiB}\n"
      "namespaces: {a: {gpus: ['*']}, b: {memory: 1GiB, gpus: ['*']}}");
  EXPECT_THAT(KeysOf(ImpossibleRules(mixed, h100)), ElementsAre("defaults.memory"));
  EXPECT_THAT(KeysOf(ImpossibleRules(mixed, H200())), IsEmpty());
  EXPECT_NE(Refusal(mixed, h100, {"a", "p", "main", 0}), "");
  EXPECT_EQ(Refusal(mixed, h100, {"b", "p", "main", 0}), "");
}

TEST(Refusal, WhomARuleIsImpossibleForOnThisGpu) {
  const Policy policy = MustParse("namespaces:\n  big: {memory: 14GiB}\n  small: {memory: 1GiB}\n");
  EXPECT_THAT(Refusal(policy, H200(), {"big", "p", "main", 0}),
              AllOf(StartsWith("p.yaml:2:17: namespaces.big.memory: "), HasSubstr("GPU GPU-1 has"),
                    HasSubstr("write at most"), HasSubstr("let gpus name those")));
  EXPECT_EQ(Refusal(policy, H200(), {"small", "p", "main", 0}), "");
  Capacity larger = H200();
  larger.total_bytes = 180 * kGiB;
  EXPECT_EQ(Refusal(policy, larger, {"big", "p", "main", 0}), "");
}

}  // namespace
}  // namespace gpuloom
