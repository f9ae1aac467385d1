// SPDX-License-Identifier: Apache-2.0
// The host names under which the agent serves its page and the JSON (--metrics-hosts), against DNS rebinding: a site
// that an operator's browser shows can make its own name resolve to the agent's address and then read what is there;
// the browser sends that name as Host. A site cannot own an IP address, `localhost`, or a name of the cluster's own
// Services: those are always allowed. A value that never changes; safe from any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpuloom {

class AllowedHosts {
 public:
  // Names besides those that are always allowed, without ports; "*.NAME": every name that ends with ".NAME".
  explicit AllowedHosts(std::vector<std::string> names = {});

  // Judges the value of the header Host. A missing header (empty) is allowed, because a browser always sends one.
  bool Allow(std::string_view host_untrusted) const;

 private:
  const std::vector<std::string> names_;  // in lower case
};

// Whether the text can be such a name; otherwise *error says what is expected.
bool IsAllowedHostName(std::string_view text, std::string* error);

}  // namespace gpuloom
