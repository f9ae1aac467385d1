// SPDX-License-Identifier: Apache-2.0
// Where the agent serves its metrics: "ADDRESS:PORT", an IPv4 address or an IPv6 one in brackets. ":PORT" is every
// address of both; where a machine has no IPv6, of IPv4. Port 0 is any that is free, which the log then says. No names:
// what they lead to may change. Pure; safe from any thread.
#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

namespace gpuloom {

struct ListenAddress {
  std::string text;  // as it was written
  sockaddr_storage address{};
  socklen_t length = 0;
  bool is_any = false;  // ":PORT"; `address` is IPv6's
};

// nullopt, with what is expected instead.
std::optional<ListenAddress> ParseListenAddress(const std::string& text, std::string* error);

// "http://127.0.0.1:9464", of a bound socket.
std::string UrlOf(const sockaddr_storage& address);

}  // namespace gpuloom
