// SPDX-License-Identifier: Apache-2.0
// One JSON object on one line, built key by key. Plain value, not thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpuloom {

class JsonLine {
 public:
  // Bytes that are not UTF-8 are written as U+FFFD, so that every JSON reader takes the line.
  JsonLine& Text(std::string_view key, std::string_view value);
  JsonLine& Number(std::string_view key, uint64_t value);
  std::string Finish() const { return "{" + body_ + "}"; }

 private:
  void Key(std::string_view key);
  std::string body_;
};

}  // namespace gpuloom
