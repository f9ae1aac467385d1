// SPDX-License-Identifier: Apache-2.0
#include "agent/policy_command/change.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "agent/answer/table.h"
#include "agent/node/size.h"
#include "agent/policy/policy_file.h"
#include "agent/policy/policy_parser.h"
#include "agent/policy/settings.h"
#include "agent/policy_command/kept_policy.h"
#include "agent/policy_command/spelling.h"

namespace gpuloom {
namespace {

// In place of a rule's value; not a value that any key has.
constexpr char kNotSet[] = "not set";

struct KeyChange {
  KeyInEffect now;
  KeyInEffect then;

  // The rule that says so then or, if that is built in, the one that says so now.
  const std::string& rule() const { return then.rule.empty() ? now.rule : then.rule; }
};

// What happens to one tenant.
struct TenantChange {
  const RunningTenant* tenant = nullptr;
  std::vector<KeyChange> keys;
  uint64_t quota_then_bytes = 0;
  std::string refusal;  // why it would not be let in; empty: it would, or would not now either

  // The new quota is smaller, and in use already.
  bool uses_more() const {
    return quota_then_bytes < tenant->memory_quota_bytes &&
           tenant->memory_used_bytes > quota_then_bytes;
  }
  bool is_any() const {
    return !keys.empty() || !refusal.empty() || quota_then_bytes != tenant->memory_quota_bytes;
  }
};

// A rule's value for a key before and after, and how many tenants are affected.
struct RuleChange {
  std::string now;
  std::string then;
  size_t tenants = 0;
};

struct GpuChange {
  const Capacity* gpu = nullptr;
  std::vector<std::string> impossible;  // rules that were not, now
  uint64_t missing_bytes = 0;           // of what the new quotas are more than the old ones
};

// All differences; empty when the two policies come to the same for this node.
struct Change {
  std::vector<TenantChange> tenants;
  std::map<std::string, RuleChange> rules;
  std::vector<GpuChange> gpus;

  bool is_any() const { return !tenants.empty() || !rules.empty() || !gpus.empty(); }
};

// Compares two policies by what they give the tenants that run here, not by their texts. Rules that
// make no difference to any of these are listed separately.
class Comparison {
 public:
  Comparison(const Policy& now, const Policy& then, const Running& running)
      : now_(now), then_(then), running_(running) {}

  Change Make() {
    CompareRules();
    std::vector<uint64_t> more_bytes(running_.gpus.size());
    for (const RunningTenant& tenant : running_.tenants) {
      TenantChange change = Compare(tenant);
      if (!change.is_any()) continue;
      if (change.quota_then_bytes > tenant.memory_quota_bytes) {
        more_bytes[tenant.gpu] += change.quota_then_bytes - tenant.memory_quota_bytes;
      }
      change_.tenants.push_back(std::move(change));
    }
    for (size_t i = 0; i < running_.gpus.size(); ++i) CompareGpu(running_.gpus[i], more_bytes[i]);
    return std::move(change_);
  }

 private:
  void CompareRules() {
    // First lists all rules whose value changes; Compare counts afterwards how many tenants each affects.
    const std::map<std::string, std::string> now = KeysOf(now_);
    const std::map<std::string, std::string> then = KeysOf(then_);
    for (const auto& [key, value] : now) change_.rules[key] = {value, kNotSet, 0};
    for (const auto& [key, value] : then) {
      change_.rules.try_emplace(key, RuleChange{kNotSet, "", 0}).first->second.then = value;
    }
    std::erase_if(change_.rules,
                  [](const auto& rule) { return rule.second.now == rule.second.then; });
  }

  // What changes for a tenant: keys with another value, another quota, and whether it would still be admitted if it
  // started then.
  TenantChange Compare(const RunningTenant& tenant) {
    TenantChange change;
    change.tenant = &tenant;
    const std::vector<KeyInEffect> now =
        KeysInEffect(now_, tenant.pod_namespace, tenant.pod, tenant.container);
    const std::vector<KeyInEffect> then =
        KeysInEffect(then_, tenant.pod_namespace, tenant.pod, tenant.container);
    // A set: one rule that changes several keys of a tenant counts once for it.
    std::set<std::string> noticed;
    // KeysInEffect has the same keys in the same order for both.
    for (size_t i = 0; i < now.size(); ++i) {
      if (now[i].value == then[i].value) continue;
      change.keys.push_back({now[i], then[i]});
      // Both rules affect this tenant: the one that ceases to set the key and the one that then sets it.
      noticed.insert({now[i].rule, then[i].rule});
    }
    for (const std::string& rule : noticed) {
      // A rule may take effect without a change of its own, because the one that was more specific
      // has gone.
      if (const auto known = change_.rules.find(rule); known != change_.rules.end()) {
        ++known->second.tenants;
      }
    }
    const Capacity& gpu = running_.gpus[tenant.gpu].capacity;
    change.quota_then_bytes = QuotaThen(tenant, gpu);
    const Candidate candidate = {tenant.pod_namespace, tenant.pod, tenant.container,
                                 OthersOfNamespace(tenant)};
    // A refusal that the policy in force makes, too, is not a change.
    if (Refusal(now_, gpu, candidate).empty()) change.refusal = Refusal(then_, gpu, candidate);
    return change;
  }

  // The tenant's quota was granted by the policy in force, or kept from an earlier one: only another rule changes it.
  uint64_t QuotaThen(const RunningTenant& tenant, const Capacity& gpu) const {
    const MemoryRule now = SettingsOfNamespace(now_, tenant.pod_namespace).memory.value;
    const MemoryRule then = SettingsOfNamespace(then_, tenant.pod_namespace).memory.value;
    if (now == then || !WhyImpossibleFor(then_, gpu, tenant.pod_namespace).empty()) {
      return tenant.memory_quota_bytes;
    }
    return Decide(then_, gpu, tenant.pod_namespace, tenant.pod).slot_bytes * tenant.slots;
  }

  // As the agent counts for maxTenants: those of the namespace on the same GPU.
  uint32_t OthersOfNamespace(const RunningTenant& tenant) const {
    return static_cast<uint32_t>(
        std::ranges::count_if(running_.tenants, [&](const RunningTenant& other) {
          return &other != &tenant && other.gpu == tenant.gpu &&
                 other.pod_namespace == tenant.pod_namespace;
        }));
  }

  // Noted only if the new policy makes it worse: rules that become impossible, or quotas for which
  // there is no room.
  void CompareGpu(const RunningGpu& gpu, uint64_t more_bytes) {
    GpuChange change;
    change.gpu = &gpu.capacity;
    std::set<std::string> now;
    for (const ImpossibleRule& one : ImpossibleRules(now_, gpu.capacity)) now.insert(one.key);
    for (const ImpossibleRule& one : ImpossibleRules(then_, gpu.capacity)) {
      if (!now.contains(one.key)) change.impossible.push_back(one.message);
    }
    const uint64_t room_bytes =
        gpu.capacity.total_bytes - std::min(gpu.capacity.total_bytes, gpu.capacity.reserve_bytes);
    // Promises may exceed the room already, under overcommit or from an earlier policy.
    const uint64_t left_bytes = room_bytes - std::min(room_bytes, gpu.promised_bytes);
    if (!then_.overcommit && more_bytes > left_bytes)
      change.missing_bytes = more_bytes - left_bytes;
    if (!change.impossible.empty() || change.missing_bytes != 0) change_.gpus.push_back(change);
  }

  const Policy& now_;
  const Policy& then_;
  const Running& running_;
  Change change_;
};

// As the other commands name tenants: NAMESPACE/POD, and the container where there is one.
std::string NameOf(const RunningTenant& tenant) {
  return tenant.pod_namespace + "/" + tenant.pod +
         (tenant.container.empty() ? "" : "/" + tenant.container);
}

// For people: a table of keys by tenant, then what is worth a sentence, then the rules that change
// nothing for running tenants.
std::string FormatChange(const Change& change, const Running& running) {
  const auto gpu_of = [&](const RunningTenant& tenant) -> const std::string& {
    return running.gpus[tenant.gpu].capacity.gpu;
  };
  std::vector<std::vector<std::string>> rows = {
      {"NAMESPACE", "POD", "CONTAINER", "GPU", "RULE", "NOW", "THEN", "APPLIES"}};
  std::string notes;
  for (const TenantChange& one : change.tenants) {
    const RunningTenant& tenant = *one.tenant;
    for (const KeyChange& key : one.keys) {
      rows.push_back({tenant.pod_namespace, tenant.pod, tenant.container, gpu_of(tenant),
                      key.rule(), key.now.value, key.then.value,
                      kAppliesNames[static_cast<size_t>(key.then.applies)]});
    }
    const std::string who = NameOf(tenant) + " on " + gpu_of(tenant);
    if (one.uses_more()) {
      notes += who + " uses " + FormatSize(tenant.memory_used_bytes) +
               ", more than the new quota, " + FormatSize(one.quota_then_bytes) +
               ": it keeps that and gets no more\n";
    }
    if (!one.refusal.empty()) {
      notes += who + " would be refused now, and runs until a container of it starts again: " +
               one.refusal + "\n";
    }
  }
  for (const GpuChange& one : change.gpus) {
    for (const std::string& reason : one.impossible) {
      notes += "impossible on " + one.gpu->gpu + ", which would refuse its pods: " + reason + "\n";
    }
    if (one.missing_bytes != 0) {
      notes += one.gpu->gpu + " lacks " + FormatSize(one.missing_bytes) +
               " of what the new quotas are more: some of these tenants keep what they have\n";
    }
  }
  std::string rules;
  for (const auto& [key, rule] : change.rules) {
    // The others are in the table, tenant by tenant.
    if (rule.tenants == 0) rules += "  " + key + ": " + rule.now + " -> " + rule.then + "\n";
  }
  if (!rules.empty()) rules = "changes that nobody who runs here notices:\n" + rules;
  std::string text;
  for (const std::string& part :
       {rows.size() == 1 ? std::string() : FormatTable(rows), notes, rules}) {
    if (!part.empty()) text += (text.empty() ? "" : "\n") + part;
  }
  return text.empty() ? "nothing changes\n" : text;
}

Json JsonOf(const TenantChange& change, const Running& running) {
  const RunningTenant& tenant = *change.tenant;
  Json json = {{"namespace", tenant.pod_namespace},
               {"pod", tenant.pod},
               {"container", tenant.container},
               {"gpu", running.gpus[tenant.gpu].capacity.gpu},
               {"slots", tenant.slots},
               {"memory_used_bytes", tenant.memory_used_bytes},
               {"memory_quota_bytes", tenant.memory_quota_bytes},
               {"memory_quota_then_bytes", change.quota_then_bytes},
               {"uses_more_than_then", change.uses_more()},
               {"refusal", change.refusal.empty() ? Json() : Json(change.refusal)},
               {"keys", Json::array()}};
  for (const KeyChange& key : change.keys) {
    json["keys"].push_back({{"key", key.now.key},
                            {"now", key.now.value},
                            {"now_rule", key.now.rule.empty() ? Json() : Json(key.now.rule)},
                            {"then", key.then.value},
                            {"then_rule", key.then.rule.empty() ? Json() : Json(key.then.rule)},
                            {"applies", kAppliesNames[static_cast<size_t>(key.then.applies)]}});
  }
  return json;
}

Json JsonOf(const Change& change, const Running& running) {
  Json json = {{"changes", change.is_any()},
               {"tenants", Json::array()},
               {"gpus", Json::array()},
               {"rules", Json::array()}};
  for (const TenantChange& tenant : change.tenants) {
    json["tenants"].push_back(JsonOf(tenant, running));
  }
  for (const GpuChange& gpu : change.gpus) {
    json["gpus"].push_back({{"gpu", gpu.gpu->gpu},
                            {"impossible", gpu.impossible},
                            {"memory_missing_bytes", gpu.missing_bytes}});
  }
  const auto spelled = [](const std::string& value) {
    return value == kNotSet ? Json() : Json(value);
  };
  for (const auto& [key, rule] : change.rules) {
    json["rules"].push_back({{"rule", key},
                             {"now", spelled(rule.now)},
                             {"then", spelled(rule.then)},
                             {"tenants", rule.tenants}});
  }
  return json;
}

Answer Mistake(const std::string& error) { return {"", "gpuloom: " + error + "\n", kMistake}; }

}  // namespace

Answer AnswerAboutChange(const PolicyCommand& command, const Running& running) {
  std::string error;
  const std::optional<std::string> text =
      ReadPolicyFile(PathOf(command), PolicySource::kAnything, &error);
  const std::optional<Policy> then =
      text.has_value() ? ParsePolicy(command.file, *text, &error) : std::nullopt;
  if (!then) return Mistake(error);
  const KeptPolicy kept = ReadKeptPolicy(command.state_dir);
  if (!kept.text) return Mistake(kept.trouble);
  const std::optional<Policy> now = ParsePolicy(kept.path, *kept.text, &error, EmptyText::kNoRules);
  // An older release may have accepted what this one does not know.
  if (!now) return Mistake(error);

  const Change change = Comparison(*now, *then, running).Make();
  Answer answer;
  answer.exit_status = change.is_any() ? kNotGood : kGood;
  if (const std::string lack = LackOfAgent(command.state_dir); !lack.empty()) {
    answer.exit_status = kNotGood;
    answer.trouble += "gpuloom: " + lack + "\n";
  }
  for (const std::string& trouble : running.troubles) {
    // The answer is printed all the same: what could be asked is in it.
    answer.exit_status = kMistake;
    answer.trouble += "gpuloom: " + trouble + "\n";
  }
  answer.text = command.format == Format::kTable
                    ? FormatChange(change, running)
                    : FormatDocument(JsonOf(change, running), command.format);
  return answer;
}

}  // namespace gpuloom
