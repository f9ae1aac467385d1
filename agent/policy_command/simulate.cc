// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "agent/policy/settings.h"
#include "agent/policy_command/answers.h"
#include "agent/policy_command/simulation.h"
#include "agent/simulator/cluster.h"
#include "agent/simulator/trace_rows.h"

namespace gpuloom {
namespace {

// Returns an error if a tenant sets what the policy sets, or names no namespace.
std::string WrongTenant(const std::string& tenant) {
  bool has_namespace = false;
  for (size_t begin = 0; begin <= tenant.size();) {
    const size_t end = std::min(tenant.find(',', begin), tenant.size());
    const std::string word = tenant.substr(begin, end - begin);
    for (const char* key : {"weight=", "namespace-weight=", "priority=", "max=", "domain="}) {
      if (word.starts_with(key)) return word + ": that is the policy's to say";
    }
    has_namespace |= word.starts_with("namespace=");
    begin = end + 1;
  }
  return has_namespace ? "" : tenant + ": namespace=NAME is missing";
}

// 0: it may starve.
uint64_t StarvationNs(uint32_t rescue_after_ms) {
  return rescue_after_ms == kNeverRescued ? 0 : uint64_t{rescue_after_ms} * 1'000'000;
}

uint32_t PermilleOf(const Chosen<uint32_t>& percent) { return percent.value * 10; }

// A trace of an hour is some hundred bytes a second and tenant.
constexpr size_t kMostBytes = size_t{256} << 20;

// The whole file; "-" is standard input.
std::optional<std::string> ReadInput(const std::string& file, std::string* error) {
  std::FILE* const input = file == "-" ? stdin : std::fopen(file.c_str(), "re");
  std::string text;
  char buffer[16384];
  size_t got = 0;
  while (input != nullptr && (got = std::fread(buffer, 1, sizeof(buffer), input)) != 0) {
    text.append(buffer, got);
    if (text.size() > kMostBytes) break;
  }
  const bool failed = input == nullptr || std::ferror(input) != 0;
  if (failed) *error = file + ": " + std::strerror(errno);
  if (text.size() > kMostBytes) *error = file + ": larger than 256MiB";
  if (input != nullptr && input != stdin) (void)std::fclose(input);
  if (!error->empty()) return std::nullopt;
  return text;
}

// False with an error that begins with `where`.
bool AddTenant(const std::string& where, const std::string& tenant, simulator::Arguments* arguments,
               std::string* error) {
  *error = WrongTenant(tenant);
  if (error->empty() && simulator::AddTenant(tenant, arguments, error)) return true;
  error->insert(0, where + ": ");
  return false;
}

// A tenant on each line; empty lines and those that begin with # are ignored.
bool AddTenants(const std::string& file, const std::string& text, simulator::Arguments* arguments,
                std::string* error) {
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.pop_back();
    begin = end + 1;
    ++number;
    if (line.empty() || line.front() == '#') continue;
    if (!AddTenant(file + ":" + std::to_string(number), line, arguments, error)) return false;
  }
  return true;
}

// The tenants of the command line and of the files; the policy's part is not in them yet.
bool ReadArguments(const PolicyCommand& command, simulator::Arguments* arguments,
                   std::string* error) {
  for (const std::string& tenant : command.tenants) {
    if (!AddTenant("--tenant", tenant, arguments, error)) return false;
  }
  if (!command.tenants_file.empty()) {
    const auto text = ReadInput(command.tenants_file, error);
    if (!text || !AddTenants(command.tenants_file, *text, arguments, error)) return false;
    if (arguments->gpu.tenants.empty()) {
      *error = command.tenants_file + ": no tenants";
      return false;
    }
  }
  if (!command.trace_file.empty()) {
    const auto text = ReadInput(command.trace_file, error);
    if (!text || !simulator::AddTrace(command.trace_file, *text, arguments, error)) return false;
  }
  return simulator::Parse(command.simulator, arguments, error);
}

}  // namespace

Answer Simulate(const PolicyCommand& command, const Policy& policy) {
  simulator::Arguments arguments;
  std::string error;
  if (!ReadArguments(command, &arguments, &error)) {
    return {"", "gpuloom: " + error + "\n", kMistake};
  }

  for (size_t i = 0; i < arguments.spaces.size(); ++i) {
    const NamespaceSettings settings = SettingsOfNamespace(policy, arguments.spaces[i]);
    // These values come from the policy instead of the simulator's own arguments.
    arguments.gpu.spaces[i] = {settings.weight.value, PermilleOf(settings.time_share_max_percent)};
  }
  std::map<std::string, uint32_t> domains;
  std::set<std::string> ignored;
  for (simulator::TenantSpec& tenant : arguments.gpu.tenants) {
    const std::string& space = arguments.spaces[tenant.space];
    const size_t slash = std::min(tenant.name.find('/'), tenant.name.size());
    const std::string pod = tenant.name.substr(0, slash);
    const std::string container = slash < tenant.name.size() ? tenant.name.substr(slash + 1) : "";
    const PodSettings settings = SettingsOfPod(policy, space, pod, container);
    const NamespaceSettings of_space = SettingsOfNamespace(policy, space);
    tenant.policy = {settings.weight.value, tenant.policy.slots, settings.priority.value,
                     PermilleOf(settings.time_share_max_percent),
                     StarvationNs(of_space.rescue_after_ms.value)};
    // The simulator has no partitions; each rule that it leaves out is reported once.
    for (const auto& percent : {of_space.sm_percent, settings.sm_percent}) {
      if (percent.value != 100) ignored.insert(percent.key);
    }
    for (const auto& percent : {of_space.sm_reserved_percent, settings.sm_reserved_percent}) {
      if (percent.value != 0) ignored.insert(percent.key);
    }
    // Only the domain of the grant is used, because memory is not simulated. Domains are numbered in order of their
    // first appearance.
    const std::string domain = Decide(policy, Capacity(), space, pod).trust_domain;
    tenant.domain = domains.emplace(domain, static_cast<uint32_t>(domains.size())).first->second;
  }
  std::string warning;
  for (const std::string& key : ignored) {
    warning += "gpuloom: " + key + " is not simulated: every tenant has all multiprocessors\n";
  }
  // One GPU has a line for each tenant.
  if (command.format == Format::kTable && command.simulated_gpus == 1) {
    return {simulator::Report(arguments), warning, kGood};
  }
  const Simulation simulation = SimulateGpus(arguments, command.simulated_gpus);
  if (command.format == Format::kTable) return {SimulationTable(simulation), warning, kGood};
  return {FormatDocument(SimulationDocument(simulation), command.format), warning, kGood};
}

}  // namespace gpuloom
