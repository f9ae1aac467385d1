// SPDX-License-Identifier: Apache-2.0
// Splits PTX text into tokens. Tokens are views into the text, which must outlive them. Plain
// value, one thread. Never fails: a character that PTX does not have becomes a kBad token, which
// the parser refuses.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpuloom::softgpu::ptx {

struct Token {
  enum Kind : uint8_t {
    kEnd,
    kWord,    // add.s32  .param  %r1  $L__BB0_2  %tid.x
    kNumber,  // 12  0x1F  0f3F800000  9.0
    kString,  // without its quotes
    kPunct,   // one character
    kBad,
  };
  Kind kind = kEnd;
  std::string_view text;
  uint32_t line = 1;

  [[nodiscard]] bool Is(char punct) const { return kind == kPunct && text[0] == punct; }
  [[nodiscard]] bool Is(std::string_view word) const { return kind == kWord && text == word; }
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}
  // The next token; at the end always kEnd.
  Token Next();

 private:
  void SkipSpace();

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
};

}  // namespace gpuloom::softgpu::ptx
