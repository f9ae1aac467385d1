// SPDX-License-Identifier: Apache-2.0
// By which names the agent may be asked for its page and the JSON (--metrics-hosts). A site that an operator's
// browser shows can let its own name lead to the agent's address, and then read what is there (DNS rebinding): the
// browser sends that name as Host. It cannot send an IP address, `localhost`, or a name of the cluster's own
// Services, of which nobody else can be master: those are always answered. A value; safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpuloom {

class AllowedHosts {
 public:
  // Names beyond those that are always allowed, without ports; "*.NAME": every name that ends so.
  explicit AllowedHosts(std::vector<std::string> names = {});

  // The value of the header Host. None at all is allowed: a browser always sends one.
  bool Allow(std::string_view host_untrusted) const;

 private:
  const std::vector<std::string> names_;  // in lower case
};

// Whether it can be one of them; else *error says what is expected.
bool IsAllowedHostName(std::string_view text, std::string* error);

}  // namespace gpuloom
