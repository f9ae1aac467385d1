// SPDX-License-Identifier: Apache-2.0
#include "agent/metrics/http_request.h"

#include <algorithm>

namespace gpuloom {
namespace {

HttpRequest Refuse(int status) {
  HttpRequest request;
  request.status = status;
  return request;
}

// Header names have no case. For these four letters only their other case has the same value with
// bit 0x20 set.
bool IsHost(std::string_view name) {
  constexpr std::string_view kHost = "host";
  return std::ranges::equal(name, kHost, [](char a, char b) { return (a | 0x20) == b; });
}

// Finds Host among all headers. Returns false if there are two.
bool FindHost(std::string_view headers, std::string_view* host) {
  bool is_there = false;
  // Until the empty line, which ends the headers.
  for (size_t end; (end = headers.find("\r\n")) != 0 && end != headers.npos;
       headers.remove_prefix(end + 2)) {
    const std::string_view line = headers.substr(0, end);
    const size_t colon = line.find(':');
    if (colon == line.npos || !IsHost(line.substr(0, colon))) continue;
    // Two are an attempt to have one judged and another one used.
    if (is_there) return false;
    is_there = true;
    const std::string_view value = line.substr(colon + 1);
    // A value of spaces only is empty.
    const size_t first = std::min(value.find_first_not_of(" \t"), value.size());
    const size_t last = value.find_last_not_of(" \t");
    *host = value.substr(first, last == value.npos ? 0 : last + 1 - first);
  }
  return true;
}

}  // namespace

HttpRequest ReadRequest(std::string_view text_untrusted) {
  // Whatever came behind the limit is not looked at, so a whole request within it is answered.
  const std::string_view text = text_untrusted.substr(0, kMaxRequestBytes);
  const bool is_whole = text.find("\r\n\r\n") != text.npos;
  if (!is_whole && text_untrusted.size() >= kMaxRequestBytes) return Refuse(431);
  // No line begins otherwise, whatever follows: garbage is not waited for.
  if (!text.empty() && (text[0] < 'A' || text[0] > 'Z')) return Refuse(400);
  const size_t line_end = text.find("\r\n");
  if (line_end == text.npos) return {};
  const std::string_view line = text.substr(0, line_end);
  // The first space and the last one: a target with spaces has others in between, and is refused
  // below.
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == line.npos || first == last) return Refuse(400);
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  const auto is_plain = [](char c) { return c > 0x20 && c < 0x7f; };
  // The line is judged before the headers are whole: who is refused is not waited for.
  if (version != "HTTP/1.1" && version != "HTTP/1.0") return Refuse(400);
  if (target.empty() || target[0] != '/' || !std::all_of(target.begin(), target.end(), is_plain)) {
    return Refuse(400);
  }
  // So no request has a body that would have to be read.
  if (method != "GET" && method != "HEAD") return Refuse(405);
  if (!is_whole) return {};
  HttpRequest request;
  request.status = 200;
  // Not decoded: all paths that are served are plain, and any other is not found.
  request.path = target.substr(0, target.find('?'));
  request.is_head = method == "HEAD";
  if (!FindHost(text.substr(line_end + 2), &request.host_untrusted)) return Refuse(400);
  return request;
}

}  // namespace gpuloom
