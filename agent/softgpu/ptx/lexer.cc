// SPDX-License-Identifier: Apache-2.0
// Words are cut so that most of PTX's grammar needs no further look: an opcode with its modifiers
// is one word, and so is a register with its element.
#include "agent/softgpu/ptx/lexer.h"

namespace gpuloom::softgpu::ptx {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
// PTX identifiers also begin with `_`, `$` or `%`.
bool IsWordStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}
bool IsWord(char c) { return IsWordStart(c) || IsDigit(c); }

}  // namespace

void Lexer::SkipSpace() {
  while (at_ < text_.size()) {
    const char c = text_[at_];
    const char next = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (c == '\n') {
      ++line_;
      ++at_;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      ++at_;
    } else if (c == '/' && next == '/') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '/' && next == '*') {
      at_ += 2;
      // A comment that is not closed ends with the text.
      while (at_ < text_.size() &&
             !(text_[at_] == '*' && at_ + 1 < text_.size() && text_[at_ + 1] == '/')) {
        if (text_[at_] == '\n') ++line_;
        ++at_;
      }
      at_ = at_ < text_.size() ? at_ + 2 : at_;
    } else {
      return;
    }
  }
}

Token Lexer::Next() {
  SkipSpace();
  Token token;
  token.line = line_;
  // A NUL ends the text: images pad it with them.
  if (at_ >= text_.size() || text_[at_] == '\0') {
    at_ = text_.size();
    return token;
  }
  const size_t begin = at_;
  const char c = text_[at_];
  const auto at = [this](size_t i) { return i < text_.size() ? text_[i] : '\0'; };
  if (IsWordStart(c) || (c == '.' && IsWordStart(at(at_ + 1)))) {
    token.kind = Token::kWord;
    ++at_;
    // A dot continues the word only when a word follows: "add.s32", but not "a. b"; and a directive
    // ends there: ".reg.b32" are two. "::" joins the parts of qualifiers such as .L1::no_allocate.
    while (IsWord(at(at_)) || (c != '.' && at(at_) == '.' && IsWord(at(at_ + 1))) ||
           (at(at_) == ':' && at(at_ + 1) == ':' && IsWord(at(at_ + 2)))) {
      at_ += at(at_) == ':' ? 2 : 1;
    }
  } else if (IsDigit(c)) {
    token.kind = Token::kNumber;
    // In hexadecimal digits, e and f are no exponent, and a sign after them is an operator.
    const bool coded =
        c == '0' && (at(at_ + 1) == 'x' || at(at_ + 1) == 'X' || at(at_ + 1) == 'f' ||
                     at(at_ + 1) == 'F' || at(at_ + 1) == 'd' || at(at_ + 1) == 'D');
    ++at_;
    while (IsDigit(at(at_)) || (at(at_) >= 'a' && at(at_) <= 'z') ||
           (at(at_) >= 'A' && at(at_) <= 'Z') || (at(at_) == '.' && !coded) ||
           (!coded && (at(at_) == '+' || at(at_) == '-') &&
            (at(at_ - 1) == 'e' || at(at_ - 1) == 'E'))) {
      ++at_;
    }
  } else if (c == '"') {
    token.kind = Token::kString;
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') ++at_;
    token.text = text_.substr(begin + 1, at_ - begin - 1);
    if (at(at_) != '"') token.kind = Token::kBad;
    if (at_ < text_.size() && text_[at_] == '"') ++at_;
    return token;
  } else {
    constexpr std::string_view kPuncts = ",;:()[]{}<>@!|+-*/%&^~=?.";
    token.kind = kPuncts.find(c) != std::string_view::npos ? Token::kPunct : Token::kBad;
    ++at_;
  }
  token.text = text_.substr(begin, at_ - begin);
  return token;
}

}  // namespace gpuloom::softgpu::ptx
