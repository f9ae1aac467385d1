// SPDX-License-Identifier: Apache-2.0
// Where the agent serves its metrics: "ADDRESS:PORT", with an IPv4 address or an IPv6 address in brackets. ":PORT"
// means all addresses of both, or of IPv4 on a machine without IPv6. Port 0 means any free port, which is then
// logged. Host names are not accepted, because what they resolve to may change. Pure; safe from any thread.
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

// nullopt with a message that says what is expected.
std::optional<ListenAddress> ParseListenAddress(const std::string& text, std::string* error);

// "http://127.0.0.1:9464" for a bound socket's address.
std::string UrlOf(const sockaddr_storage& address);

}  // namespace gpuloom
