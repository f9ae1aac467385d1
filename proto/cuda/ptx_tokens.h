// SPDX-License-Identifier: Apache-2.0
// Splits PTX text into tokens as the driver's compiler does (compared with CUDA 13.0's ptxas). Node side only. Pure,
// over bytes that a tenant made: nothing outside of the text is read. Linear in its length; views point into the text.
//
//   PtxTokens tokens(text);
//   for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) …
//   if (!tokens.certain()) …  // the driver may have read it otherwise
//
// A token is a directive or an opcode's modifier (".global", ".shared::cta"), a word ("ld", "%r1", "90"), a string
// with its quotes, or one character of punctuation. Comments and white space are not tokens.
#pragma once

#include <cstddef>
#include <string_view>

namespace gpuloom {

class PtxTokens {
 public:
  // Up to the first NUL, where the driver stops as well.
  explicit PtxTokens(std::string_view text) : text_(text.substr(0, text.find('\0'))) {}

  // Empty at the end of the text.
  [[nodiscard]] std::string_view Next();
  // Where the last token begins.
  size_t begin() const { return begin_; }

  // False once something was found that the driver may tokenize differently: what no compiler writes (preprocessor
  // directives, control characters, an unterminated comment).
  bool certain() const { return certain_; }

 private:
  bool SkipBlanks();
  void SkipWord();

  std::string_view text_;
  size_t at_ = 0;
  size_t begin_ = 0;
  bool certain_ = true;
};

// Given every token of a text in turn, tells which ones begin a declaration in .global or .const. These also occur in
// the opcodes of instructions, after the opcode's first word, and for what a pointer parameter points to.
class PtxStateSpaces {
 public:
  [[nodiscard]] bool Declares(std::string_view token);
  // The token before the last one given.
  std::string_view before() const { return before_; }

 private:
  std::string_view before_;
  std::string_view previous_;
  std::string_view word_;  // the last token that is not a modifier
};

// Returns true if the text declares, or may declare, what outlives a launch: variables in .global or .const, its own
// or another module's, texture, sampler and surface references. Errs only towards true.
[[nodiscard]] bool PtxDeclaresState(std::string_view ptx);

// Returns true if the text declares, or may declare, functions (.extern .func) that it may not define.
[[nodiscard]] bool PtxDeclaresFunctions(std::string_view ptx);

}  // namespace gpuloom
