// SPDX-License-Identifier: Apache-2.0
// The beginning of an HTTP/1 request, as far as a server needs it that only has pages to show: what is asked for, and
// whether it may be. Whoever reaches the port wrote it. Pure; safe from any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace gpuloom {

// Request line and headers; a browser's have one or two KiB.
inline constexpr size_t kMaxRequestBytes = 8192;

struct HttpRequest {
  // 0: more is to come. 200: `path` may be answered. Else the answer is this error.
  int status = 0;
  std::string_view path;            // without the query; within the text that was given
  std::string_view host_untrusted;  // of the header Host, with its port; empty without one
  bool is_head = false;             // the answer has no body
};

// `text_untrusted`: all that has come so far.
HttpRequest ReadRequest(std::string_view text_untrusted);

}  // namespace gpuloom
