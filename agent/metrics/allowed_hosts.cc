// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/allowed_hosts.h"

#include <arpa/inet.h>

#include <algorithm>

namespace gpuloom {
namespace {

constexpr size_t kMaxNameBytes = 253;  // of a name in DNS

// The underscore is in no host's name, but in names of some private networks.
bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

// Not tolower, which follows the locale: names in DNS are ASCII.
std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  }
  return lower;
}

// As a browser writes one: it turns every other form of an IPv4 address (hexadecimal, one number)
// into four decimal ones before it sends Host.
bool IsAddress(const std::string& text) {
  in6_addr address;
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') {
    return inet_pton(AF_INET6, text.substr(1, text.size() - 2).c_str(), &address) == 1;
  }
  return inet_pton(AF_INET, text.c_str(), &address) == 1;
}

// "name.namespace.svc", as pods of the cluster call a Service. No such top-level domain exists, so no other site has
// it.
bool IsOfCluster(std::string_view name) {
  constexpr std::string_view kService = ".svc", kCluster = ".svc.cluster.local";
  return name.ends_with(kService) || name.ends_with(kCluster);
}

// "*.example.com" is not example.com itself, as in certificates.
bool Matches(std::string_view pattern, std::string_view name) {
  if (!pattern.starts_with("*.")) return pattern == name;
  const std::string_view end = pattern.substr(1);
  return name.size() > end.size() && name.ends_with(end);
}

}  // namespace

AllowedHosts::AllowedHosts(std::vector<std::string> names)
    : names_([&names] {
        for (std::string& name : names) name = Lower(name);
        return std::move(names);
      }()) {}

bool AllowedHosts::Allow(std::string_view host_untrusted) const {
  if (host_untrusted.empty()) return true;
  std::string_view text = host_untrusted;
  // The port is whichever leads here.
  if (const size_t colon = text.rfind(':');
      colon != text.npos && text.find(']', colon) == text.npos) {
    const std::string_view port = text.substr(colon + 1);
    if (port.find_first_not_of("0123456789") != port.npos) return false;
    text = text.substr(0, colon);
  }
  // The same name to DNS.
  if (text.ends_with('.')) text.remove_suffix(1);
  if (text.empty() || text.size() > kMaxNameBytes) return false;
  const std::string name = Lower(text);
  if (IsAddress(name)) return true;
  // Behind the addresses, whose brackets and colons are in no name.
  if (!std::ranges::all_of(name, IsPlain)) return false;
  // One label is a Service of the own namespace, or a machine of the own network: no site's name.
  return name.find('.') == name.npos || name.ends_with(".localhost") || IsOfCluster(name) ||
         std::ranges::any_of(names_, [&](const auto& allowed) { return Matches(allowed, name); });
}

bool IsAllowedHostName(std::string_view text, std::string* error) {
  // Any other asterisk is refused as no character of a name.
  const std::string_view name = text.starts_with("*.") ? text.substr(2) : text;
  if (!name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' && name.back() != '.' &&
      std::ranges::all_of(name, IsPlain)) {
    return true;
  }
  *error = "'" + std::string(text) +
           "': write names without ports, like gpus.example.com or *.example.com";
  return false;
}

}  // namespace gpuloom
