// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>

namespace gpuloom {
namespace {

std::optional<uint16_t> ParsePort(std::string_view text) {
  unsigned port = 0;
  // No sign and no spaces: from_chars takes neither for an unsigned number.
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || port > 65535) {
    return std::nullopt;
  }
  return static_cast<uint16_t>(port);
}

}  // namespace

std::optional<ListenAddress> ParseListenAddress(const std::string& text, std::string* error) {
  const auto refuse = [&](const std::string& why) {
    *error = "'" + text + "': " + why +
             "; write ADDRESS:PORT, like 127.0.0.1:9464 or [::1]:9464, or :9464 for all addresses";
    return std::nullopt;
  };
  // The last one: an IPv6 address has others.
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return refuse("there is no port");
  const std::optional<uint16_t> port = ParsePort(std::string_view(text).substr(colon + 1));
  if (!port) return refuse("the port is a number from 0 to 65535");
  std::string host = text.substr(0, colon);

  ListenAddress listen;
  listen.text = text;
  listen.is_any = host.empty();
  sockaddr_in v4 = {};
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(*port);
    listen.length = sizeof(v4);
    memcpy(&listen.address, &v4, sizeof(v4));
    return listen;
  }
  // An IPv6 address, whose socket accepts IPv4 connections, too (http_server.cc).
  if (listen.is_any) {
    host = "::";
  } else if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else {
    return refuse(host.find(':') == host.npos ? "'" + host + "' is no IP address"
                                              : "an IPv6 address stands in brackets");
  }
  sockaddr_in6 v6 = {};
  if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) {
    return refuse("'" + host + "' is no IPv6 address");
  }
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(*port);
  listen.length = sizeof(v6);
  memcpy(&listen.address, &v6, sizeof(v6));
  return listen;
}

std::string UrlOf(const sockaddr_storage& address) {
  char host[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    sockaddr_in v4;
    memcpy(&v4, &address, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
    return "http://" + std::string(host) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  sockaddr_in6 v6;
  memcpy(&v6, &address, sizeof(v6));
  inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
  return "http://[" + std::string(host) + "]:" + std::to_string(ntohs(v6.sin6_port));
}

}  // namespace gpuloom
