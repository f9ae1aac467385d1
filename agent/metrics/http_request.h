// SPDX-License-Identifier: Apache-2.0
// Parses the beginning of an HTTP/1 request, as far as a server that only shows pages needs it: the page, and whether
// it may be answered. Any client of the port may have written it. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace gpuloom {

// The most for request line and headers; a browser's have one or two KiB.
inline constexpr size_t kMaxRequestBytes = 8192;

struct HttpRequest {
  // 0: incomplete. 200: `path` may be answered. Otherwise the HTTP error to answer with.
  int status = 0;
  std::string_view path;            // without the query; points into the given text
  std::string_view host_untrusted;  // the header Host, with its port; empty if there is none
  bool is_head = false;             // the answer has no body
  bool is_again = false;            // it was to be answered later (http_server.h)
};

// `text_untrusted`: all that was received so far; must outlive the result.
HttpRequest ReadRequest(std::string_view text_untrusted);

}  // namespace gpuloom
