// SPDX-License-Identifier: Apache-2.0
// Bytes as an operator's policy file. It is refused with the line where it is wrong, or it says the same each time it is
// read, gives no more than it may promise, and keeps the trust domains of different kinds apart.
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "agent/policy/policy.h"
#include "agent/policy/policy_parser.h"

namespace gpuloom {
namespace {

constexpr char kFile[] = "policy.yaml";

void Check(bool ok, int line = __builtin_LINE()) {
  if (ok) return;
  fprintf(stderr, "policy_fuzz.cc:%d: does not hold\n", line);
  abort();
}

// Begins with file and line.
bool NamesItsPlace(std::string_view message) {
  const std::string start = std::string(kFile) + ":";
  if (!message.starts_with(start)) return false;
  message.remove_prefix(start.size());
  size_t digits = 0;
  while (digits < message.size() && isdigit(static_cast<unsigned char>(message[digits]))) ++digits;
  return digits > 0 && message.substr(digits).starts_with(": ");
}

void Run(const std::string& text) {
  const absl::StatusOr<Policy> policy = ParsePolicy(kFile, text);
  if (!policy.ok()) return Check(NamesItsPlace(std::string(policy.status().message())));
  const absl::StatusOr<Policy> again = ParsePolicy(kFile, text);
  Check(again.ok() && again->namespaces.size() == policy->namespaces.size());

  Capacity capacity{"gpu", uint64_t{80} << 30, 0, 16};
  capacity.reserve_bytes = AutoReserveBytes(capacity.total_bytes, capacity.slots);
  const bool is_kept = CheckPromise(*policy, capacity).ok();
  std::vector<std::string> namespaces = {"default", "team-a", "x"};
  for (const PolicyRule& rule : policy->namespaces) {
    Check(GlobMatches(rule.pattern, rule.pattern));
    if (rule.pattern.find_first_of("*?") == std::string::npos) namespaces.push_back(rule.pattern);
  }
  for (const std::string& name : namespaces) {
    const Grant grant = Decide(*policy, capacity, name, "pod");
    Check(Decide(*again, capacity, name, "pod") == grant);
    if (is_kept && !policy->overcommit) {
      Check(grant.slot_bytes <= (capacity.total_bytes - capacity.reserve_bytes) /
                                    static_cast<uint64_t>(capacity.slots));
    }
    // Pods share a domain, unless each has its own.
    const std::string& domain = grant.trust_domain;
    Check(domain.find('\n') == std::string::npos);
    const Grant other = Decide(*policy, capacity, name, "other-pod");
    Check(other.slot_bytes == grant.slot_bytes);
    Check((other.trust_domain != domain) == domain.starts_with("pod/"));
  }
}

}  // namespace
}  // namespace gpuloom

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gpuloom::Run(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
