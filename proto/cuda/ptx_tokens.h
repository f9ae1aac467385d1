// SPDX-License-Identifier: Apache-2.0
// PTX text cut into tokens, as the driver's compiler cuts it (compared with CUDA 13.0's ptxas). Node
// side only. Pure, over bytes that a tenant made: nothing outside of the text is read. Linear in its
// length; views point into the text.
//
//   PtxTokens tokens(text);
//   for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) …
//   if (!tokens.certain()) …  // the driver may have read it otherwise
//
// A token is a directive or an opcode's modifier (".global", ".shared::cta"), a word ("ld", "%r1",
// "90"), a string with its quotes, or one character of punctuation. Comments and white space are none.
#pragma once

#include <cstddef>
#include <string_view>

namespace gpuloom {

class PtxTokens {
 public:
  // Up to the first NUL, where the driver stops as well.
  explicit PtxTokens(std::string_view text) : text_(text.substr(0, text.find('\0'))) {}

  // Empty: the text has ended.
  [[nodiscard]] std::string_view Next();
  // Where the last token begins.
  size_t begin() const { return begin_; }

  // False as soon as something was met of which it is not known that the driver cuts it so: what no
  // compiler writes (directives of a preprocessor, control characters, an open comment).
  bool certain() const { return certain_; }

 private:
  bool SkipBlanks();
  void SkipWord();

  std::string_view text_;
  size_t at_ = 0;
  size_t begin_ = 0;
  bool certain_ = true;
};

// Told every token of a text in turn, says of which it is that they begin a declaration in .global or
// .const. They also stand in the opcodes of instructions, behind the opcode's first word, and for what a
// pointer parameter points to.
class PtxStateSpaces {
 public:
  [[nodiscard]] bool Declares(std::string_view token);
  // The token before the last one told.
  std::string_view before() const { return before_; }

 private:
  std::string_view before_;
  std::string_view previous_;
  std::string_view word_;  // the last token that is not a modifier
};

// True when the text declares what outlives a launch, or may do so: variables in .global or .const, of
// its own or of another module, texture, sampler and surface references. Wrong on that side only.
[[nodiscard]] bool PtxDeclaresState(std::string_view ptx);

// True when the text declares functions (.extern .func) that it may not define, or may do so.
[[nodiscard]] bool PtxDeclaresFunctions(std::string_view ptx);

}  // namespace gpuloom
