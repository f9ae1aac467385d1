// SPDX-License-Identifier: Apache-2.0
#include "agent/policy_command/reservations.h"

#include <bit>
#include <map>
#include <set>

#include "agent/policy/glob.h"
#include "agent/policy_command/spelling.h"

namespace gpuloom {
namespace {

using arbiter::SmClaim;
using arbiter::SmGroups;
using arbiter::SmLayout;

SmClaim ClaimOf(const PodSettings& settings) {
  return {{settings.sm_percent.value, settings.sm_reserved_percent.value}, {}};
}

// Whether the last one's reservation fits beside those of the others, which came earlier.
bool LastFits(const SmLayout& gpu, SmGroups of, const std::vector<SmClaim>& claims) {
  return arbiter::DivideSms(gpu, of, claims).back().groups != 0;
}

// What to write instead of the last one's reservation.
std::string LargestThatFits(const SmLayout& gpu, SmGroups of, std::vector<SmClaim> claims) {
  uint32_t& reserved = claims.back().terms.reserved;
  while (--reserved != 0) {
    if (LastFits(gpu, of, claims)) return "write at most " + SpelledPercent(reserved);
  }
  return "nothing is left to reserve";
}

std::string Groups(const SmLayout& gpu, uint32_t count) {
  return std::to_string(count) + (count == 1 ? " group of " : " groups of ") +
         std::to_string(gpu.group_size) + " multiprocessors";
}

class Finder {
 public:
  Finder(const Policy& policy, const SmLayout& gpu) : policy_(policy), gpu_(gpu) {}

  UnkeptReservations Find() {
    // The empty name stands for namespaces that only have the defaults.
    std::vector<std::string_view> names = {""};
    for (const PolicyRule& rule : policy_.namespaces) names.push_back(rule.pattern);
    for (const std::string_view name : names) {
      const NamespaceSettings settings = SettingsOfNamespace(policy_, name);
      // Its pods are refused in any case.
      if (settings.deny.value || !FitsAlone(settings)) continue;
      JudgePods(name, settings);
      JudgeBesideOthers(name, settings);
    }
    return std::move(found_);
  }

 private:
  bool IsNew(const std::string& key) { return keys_.insert(key).second; }
  std::string Begin(const Chosen<uint32_t>& reserved) const {
    return Where(policy_, reserved.place, reserved.key) + SpelledPercent(reserved.value);
  }

  bool FitsAlone(const NamespaceSettings& settings) {
    const std::vector<SmClaim> claims = {ClaimOf(settings)};
    if (LastFits(gpu_, gpu_.whole(), claims)) return true;
    const Chosen<uint32_t>& reserved = settings.sm_reserved_percent;
    if (!IsNew(reserved.key)) return false;
    found_.errors.push_back(
        {reserved.key,
         Begin(reserved) + " leave none of " + Groups(gpu_, gpu_.groups) +
             " to others, who keep one at least: " + LargestThatFits(gpu_, gpu_.whole(), claims) +
             ", or name another GPU's --multiprocessors"});
    return false;
  }

  // Pods of a wider rule are the narrower one's namespaces', too.
  void JudgePods(std::string_view name, const NamespaceSettings& space) {
    const SmGroups of =
        arbiter::DivideSms(gpu_, gpu_.whole(), std::vector<SmClaim>{ClaimOf(space)})[0].groups;
    for (const PolicyRule& rule : policy_.namespaces) {
      if (!GlobMatches(rule.pattern, name)) continue;
      for (const PodRule& pod : rule.pods) {
        const PodSettings settings =
            SettingsOfPod(policy_, name, pod.pod, pod.container.value_or(""));
        const std::vector<SmClaim> claims = {ClaimOf(settings)};
        const Chosen<uint32_t>& reserved = settings.sm_reserved_percent;
        if (settings.deny.value || LastFits(gpu_, of, claims) || !IsNew(reserved.key)) continue;
        const auto count = static_cast<uint32_t>(std::popcount(of & gpu_.regular()));
        found_.errors.push_back(
            {reserved.key,
             Begin(reserved) + " leave none of " + Groups(gpu_, count) + ", which namespace " +
                 std::string(name) + " has, to its other containers, who keep one at least: " +
                 LargestThatFits(gpu_, of, claims) +
                 (space.sm_percent.key.empty() ? "" : ", or raise " + space.sm_percent.key)});
      }
    }
  }

  void JudgeBesideOthers(std::string_view name, const NamespaceSettings& settings) {
    using Kind = TrustDomainRule::Kind;
    const TrustDomainRule& domain = settings.trust_domain.value;
    const Chosen<uint32_t>& reserved = settings.sm_reserved_percent;
    const bool is_shared = domain.kind == Kind::kNode || domain.kind == Kind::kNamed;
    // How many namespaces there are that only have the defaults is not known.
    if (!is_shared || reserved.value == 0 || name.empty()) return;
    std::vector<SmClaim>& claims = domains_[{domain.kind, domain.name}];
    claims.push_back(ClaimOf(settings));
    if (LastFits(gpu_, gpu_.whole(), claims)) return;
    if (IsNew(reserved.key)) {
      found_.warnings.push_back(
          Begin(reserved) + " of namespace " + std::string(name) +
          " do not fit on one GPU beside what other namespaces of its trust domain reserve, and "
          "whose containers come last are refused there: " +
          LargestThatFits(gpu_, gpu_.whole(), claims));
    }
    claims.pop_back();
  }

  const Policy& policy_;
  const SmLayout gpu_;
  std::set<std::string> keys_;
  std::map<std::pair<TrustDomainRule::Kind, std::string>, std::vector<SmClaim>> domains_;
  UnkeptReservations found_;
};

}  // namespace

UnkeptReservations FindUnkeptReservations(const Policy& policy, const arbiter::SmLayout& gpu) {
  if (gpu.groups == 0) return {};
  return Finder(policy, gpu).Find();
}

}  // namespace gpuloom
