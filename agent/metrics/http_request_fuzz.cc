// SPDX-License-Identifier: Apache-2.0
// Any bytes as an HTTP request: one judgement, a path and a host within the text, and the same whether the bytes come
// at once or piece by piece.
#include <cstdint>
#include <cstdlib>

#include "agent/metrics/allowed_hosts.h"
#include "agent/metrics/http_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using gpuloom::HttpRequest;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const HttpRequest whole = gpuloom::ReadRequest(text);
  if (whole.status == 200) {
    if (whole.path.empty() || whole.path[0] != '/') abort();
    if (whole.path.data() < text.data() ||
        whole.path.data() + whole.path.size() > text.data() + text.size()) {
      abort();
    }
    const std::string_view host = whole.host_untrusted;
    if (!host.empty() &&
        (host.data() < text.data() || host.data() + host.size() > text.data() + text.size())) {
      abort();
    }
    (void)gpuloom::AllowedHosts({"a.example", "*.b.example"}).Allow(host);
  }
  // What was refused or answered early would not be waited for.
  for (size_t bytes = 0; bytes < size && bytes <= gpuloom::kMaxRequestBytes; ++bytes) {
    const HttpRequest part = gpuloom::ReadRequest(text.substr(0, bytes));
    if (part.status == 0) continue;
    if (part.status != whole.status || part.path != whole.path) abort();
    break;
  }
  return 0;
}
