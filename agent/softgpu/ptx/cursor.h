// SPDX-License-Identifier: Apache-2.0
// The parser's place in the text: tokens with one token of look-ahead, and the first error. Plain
// value, one thread. Holds views into the text, which must outlive it and what is parsed. Functions
// that return false have set the error.
#pragma once

#include <string>
#include <string_view>

#include "agent/softgpu/ptx/lexer.h"
#include "agent/softgpu/ptx/syntax.h"

namespace gpuloom::softgpu::ptx {

class Cursor {
 public:
  explicit Cursor(std::string_view text)
      : lexer_(text), token_(lexer_.Next()), next_(lexer_.Next()) {}

  [[nodiscard]] const Token& token() const { return token_; }
  [[nodiscard]] const Token& next() const { return next_; }
  Token Take() {
    Token taken = token_;
    token_ = next_;
    next_ = lexer_.Next();
    return taken;
  }
  bool TakeIf(char punct) { return token_.Is(punct) ? (Take(), true) : false; }
  bool TakeIf(std::string_view word) { return token_.Is(word) ? (Take(), true) : false; }
  // Takes `punct` or fails.
  bool Expect(char punct);
  // Takes a word or fails; returns an empty view on failure.
  std::string_view ExpectWord(std::string_view what);
  // Keeps the first error; always returns false.
  bool Fail(std::string_view message) { return FailAt(token_.line, message); }
  bool FailAt(uint32_t line, std::string_view message);
  [[nodiscard]] bool failed() const { return !error_.empty(); }
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  Lexer lexer_;
  Token token_;
  Token next_;
  std::string error_;
};

// 12, 0x1F, 0b11, 017, 12U. False when `text` is something else.
[[nodiscard]] bool ReadInteger(std::string_view text, uint64_t* value);
// 0f3F800000, 0d3FF0000000000000, 1.5, 1e10.
[[nodiscard]] bool ReadFloat(std::string_view text, uint64_t* bits, bool* single);

// One operand of an instruction.
bool ParseOperand(Cursor& cursor, Operand* operand, uint32_t depth = 0);
// An integer constant expression: ( ) unary + - ~ ! and the binary operators of C.
bool ParseConstant(Cursor& cursor, int64_t* value, uint32_t depth = 0);
// What follows the "=" of a variable.
bool ParseInitializer(Cursor& cursor, Variable* variable);
// A declaration from its space (".global .align 4 .u32 x[3] = …") up to, not including, what ends
// it: one variable or more, separated by commas.
bool ParseVariables(Cursor& cursor, bool is_extern, std::vector<Variable>* variables);
// "(.param .b32 a, .param .align 8 .b8 b[16])", with or without names.
bool ParseParams(Cursor& cursor, std::vector<Variable>* params);

}  // namespace gpuloom::softgpu::ptx
