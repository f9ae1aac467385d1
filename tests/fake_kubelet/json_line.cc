// SPDX-License-Identifier: Apache-2.0
#include "tests/fake_kubelet/json_line.h"

#include <cstdio>

namespace gpuloom {
namespace {

// Length of the UTF-8 sequence at the front of text, 0 when there is none.
size_t SequenceLength(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0x80         ? 1
                        : (lead >> 5) == 6  ? 2
                        : (lead >> 4) == 14 ? 3
                        : (lead >> 3) == 30 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) >> 6) != 2) return 0;
  }
  return length;
}

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const size_t length = SequenceLength(text);
    const char c = text[0];
    if (length == 0) {
      quoted += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[7];
      std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned>(c));
      quoted += escape;
    } else {
      quoted += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return quoted + "\"";
}

}  // namespace

void JsonLine::Key(std::string_view key) {
  if (!body_.empty()) body_ += ", ";
  body_ += Quote(key) + ": ";
}

JsonLine& JsonLine::Text(std::string_view key, std::string_view value) {
  Key(key);
  body_ += Quote(value);
  return *this;
}

JsonLine& JsonLine::Number(std::string_view key, uint64_t value) {
  Key(key);
  body_ += std::to_string(value);
  return *this;
}

}  // namespace gpuloom
