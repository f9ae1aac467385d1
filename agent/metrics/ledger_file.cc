// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/ledger_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "agent/cat.h"
#include "agent/identity/kept_text.h"
#include "agent/node/set_aside.h"

namespace gpuloom {
namespace {

using Json = nlohmann::json;

// Raised when a struct below changes.
constexpr int kFormat = 1;

// Figures by their place in the struct, without names, which would be most of the file.
template <typename T>
Json FormatWords(const T& figures) {
  return std::bit_cast<std::array<uint64_t, sizeof(T) / sizeof(uint64_t)>>(figures);
}

template <typename T>
T ParseWords(const Json& json) {
  std::array<uint64_t, sizeof(T) / sizeof(uint64_t)> words;
  // As the library throws for JSON of another form; ParseLedger catches both.
  if (json.size() != words.size()) throw std::invalid_argument("another number of figures");
  for (size_t i = 0; i < words.size(); ++i) words[i] = json.at(i).get<uint64_t>();
  return std::bit_cast<T>(words);
}

Json FormatTime(Clock::Time time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}
Clock::Time ParseTime(const Json& json) {
  return Clock::Time(std::chrono::milliseconds(json.get<int64_t>()));
}

// What would never become right again: an infinite sum stays one whatever is added.
double ParseSum(const Json& json) {
  const double sum = json.get<double>();
  if (!std::isfinite(sum) || sum < 0) throw std::invalid_argument("a sum that cannot be");
  return sum;
}

Json FormatName(const TenantName& name) {
  return {name.pod_namespace, name.pod, name.container, name.gpu_uuid};
}
TenantName ParseName(const Json& json) {
  return {json.at(0).get<std::string>(), json.at(1).get<std::string>(),
          json.at(2).get<std::string>(), json.at(3).get<std::string>()};
}

// Of a tenant's present values, writes only those that are charged until the next report: slots, quota and memory.
Json FormatTenant(const TenantName& name, const Tenant& tenant) {
  return {{"name", FormatName(name)},
          {"counts", FormatWords(tenant.counts)},
          {"slots", tenant.now.slots},
          {"quota", tenant.now.memory_quota_bytes},
          {"used", tenant.now.memory_used_bytes},
          {"peak", tenant.memory_peak_bytes},
          {"domain", tenant.trust_domain},
          {"unsupported", tenant.unsupported},
          {"other_unsupported", tenant.other_unsupported},
          {"seen", FormatTime(tenant.last_seen)}};
}

void ParseTenant(const Json& json, Ledger* ledger) {
  Tenant& tenant = ledger->tenants[ParseName(json.at("name"))];
  tenant.counts = ParseWords<TenantCounts>(json.at("counts"));
  tenant.now.slots = json.at("slots").get<uint64_t>();
  tenant.now.memory_quota_bytes = json.at("quota").get<uint64_t>();
  tenant.now.memory_used_bytes = json.at("used").get<uint64_t>();
  tenant.memory_peak_bytes = json.at("peak").get<uint64_t>();
  tenant.trust_domain = json.at("domain").get<std::string>();
  tenant.unsupported = json.at("unsupported").get<std::set<std::string>>();
  tenant.other_unsupported = json.at("other_unsupported").get<bool>();
  tenant.last_seen = ParseTime(json.at("seen"));
}

Json FormatNamespace(const std::string& name, const NamespaceUse& use) {
  return {{"name", name},
          {"counts", FormatWords(use.counts)},
          {"memory_byte_seconds", use.memory_byte_seconds},
          {"quota_byte_seconds", use.quota_byte_seconds},
          {"slot_seconds", use.slot_seconds},
          {"seen", FormatTime(use.last_seen)}};
}

void ParseNamespace(const Json& json, Ledger* ledger) {
  NamespaceUse& use = ledger->namespaces[json.at("name").get<std::string>()];
  use.counts = ParseWords<TenantCounts>(json.at("counts"));
  use.memory_byte_seconds = ParseSum(json.at("memory_byte_seconds"));
  use.quota_byte_seconds = ParseSum(json.at("quota_byte_seconds"));
  use.slot_seconds = ParseSum(json.at("slot_seconds"));
  use.last_seen = ParseTime(json.at("seen"));
}

// Leaves out what the next report contains anyway.
Json FormatGpu(const std::string& uuid, const GpuUse& gpu) {
  Json json = {{"uuid", uuid},
               {"tells", gpu.tells_gpu},
               {"running_ns", gpu.state.running_ns},
               // What the scheduler had counted when it answered last: the next report is compared
               // with that.
               {"reported",
                FormatWords(ExecutorCounts{gpu.state.executors_started, gpu.state.executors_failed,
                                           gpu.state.executors_lost, gpu.state.busy})},
               {"counts", FormatWords(gpu.counts)},
               {"restarts", gpu.scheduler_restarts},
               {"at", FormatTime(gpu.reported_at)},
               {"domains", Json::array()},
               {"allocations", Json::array()}};
  for (const auto& [name, domain] : gpu.domains) {
    json["domains"].push_back({{"name", name},
                               {"counts", FormatWords(domain.counts)},
                               {"reported", FormatWords(domain.reported)},
                               {"seen", FormatTime(domain.last_seen)}});
  }
  for (const auto& [name, allocation] : gpu.allocations) {
    json["allocations"].push_back({{"name", name},
                                   {"tenant", FormatName(allocation.tenant)},
                                   {"counts", FormatWords(allocation.counts)}});
  }
  return json;
}

void ParseGpu(const Json& json, Ledger* ledger) {
  GpuUse& gpu = ledger->gpus[json.at("uuid").get<std::string>()];
  gpu.tells_gpu = json.at("tells").get<bool>();
  gpu.state.running_ns = json.at("running_ns").get<uint64_t>();
  const auto reported = ParseWords<ExecutorCounts>(json.at("reported"));
  gpu.state.executors_started = reported.started;
  gpu.state.executors_failed = reported.failed;
  gpu.state.executors_lost = reported.lost;
  gpu.state.busy = reported.busy;
  gpu.counts = ParseWords<ExecutorCounts>(json.at("counts"));
  gpu.scheduler_restarts = json.at("restarts").get<uint64_t>();
  gpu.reported_at = ParseTime(json.at("at"));
  for (const Json& one : json.at("domains")) {
    DomainUse& domain = gpu.domains[one.at("name").get<std::string>()];
    domain.counts = ParseWords<ExecutorCounts>(one.at("counts"));
    domain.reported = ParseWords<ExecutorCounts>(one.at("reported"));
    domain.last_seen = ParseTime(one.at("seen"));
  }
  for (const Json& one : json.at("allocations")) {
    gpu.allocations[one.at("name").get<std::string>()] = {
        ParseName(one.at("tenant")), ParseWords<TenantCounts>(one.at("counts"))};
  }
}

void EndAt(Clock::Time now, Ledger* ledger) {
  const auto end = [now](Clock::Time* time) { *time = std::min(*time, now); };
  for (auto& [name, tenant] : ledger->tenants) end(&tenant.last_seen);
  for (auto& [name, use] : ledger->namespaces) end(&use.last_seen);
  for (auto& [uuid, gpu] : ledger->gpus) {
    end(&gpu.reported_at);
    for (auto& [name, domain] : gpu.domains) end(&domain.last_seen);
  }
}

}  // namespace

std::string FormatLedger(const Ledger& ledger) {
  Json json = {{"format", kFormat},
               {"tenants", Json::array()},
               {"namespaces", Json::array()},
               {"gpus", Json::array()}};
  for (const auto& [name, tenant] : ledger.tenants) {
    json["tenants"].push_back(FormatTenant(name, tenant));
  }
  for (const auto& [name, use] : ledger.namespaces) {
    json["namespaces"].push_back(FormatNamespace(name, use));
  }
  for (const auto& [uuid, gpu] : ledger.gpus) json["gpus"].push_back(FormatGpu(uuid, gpu));
  return json.dump();
}

absl::StatusOr<Ledger> ParseLedger(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    const int format = json.at("format").get<int>();
    // Not converted: places in a struct mean something else in each format.
    if (format != kFormat) {
      return absl::DataLossError(Cat("was written by another release, in format ", format));
    }
    Ledger ledger;
    for (const Json& one : json.at("tenants")) ParseTenant(one, &ledger);
    for (const Json& one : json.at("namespaces")) ParseNamespace(one, &ledger);
    for (const Json& one : json.at("gpus")) ParseGpu(one, &ledger);
    return ledger;
  } catch (const std::exception& wrong) {
    return absl::DataLossError(Cat("is no ledger: ", wrong.what()));
  }
}

std::optional<Ledger> LoadLedger(const std::string& path, Clock::Time now, std::string* complaint) {
  complaint->clear();
  const absl::StatusOr<std::string> text = KeptText(path);
  if (absl::IsNotFound(text.status())) return Ledger();
  if (MayBeWhole(text.status())) {
    *complaint = Cat("metrics: ", std::string(text.status().message()),
                     "; what was counted before is read again every second, and no counter is "
                     "shown until then; to count from 0 again, move that file away");
    return std::nullopt;
  }
  absl::StatusOr<Ledger> ledger = text.ok() ? ParseLedger(*text) : text.status();
  if (ledger.ok()) {
    EndAt(now, &*ledger);
    return *std::move(ledger);
  }
  // Not left in place, where the next Keep would write over what an operator may want to mend.
  *complaint =
      Cat("metrics: ", text.ok() ? Cat(path, " ") : "", std::string(ledger.status().message()),
          "; counting from 0 again; ", SetAside(path, path));
  return Ledger();
}

}  // namespace gpuloom
