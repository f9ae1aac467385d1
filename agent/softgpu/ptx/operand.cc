// SPDX-License-Identifier: Apache-2.0
// Numbers and operands.
#include <bit>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "agent/softgpu/ptx/cursor.h"
#include "agent/softgpu/ptx/parser.h"

namespace gpuloom::softgpu::ptx {

// Cursor's errors stand here, as they are all about tokens.
bool Cursor::Expect(char punct) {
  if (TakeIf(punct)) return true;
  return Fail(std::string("expected '") + punct + "'");
}

std::string_view Cursor::ExpectWord(std::string_view what) {
  if (token_.kind == Token::kWord) return Take().text;
  Fail("expected " + std::string(what));
  return {};
}

// Only the first error: what follows is often its consequence. Its token is shortened, as a text
// may bring one of any length.
bool Cursor::FailAt(uint32_t line, std::string_view message) {
  if (error_.empty()) {
    error_ = "ptx line " + std::to_string(line) + ": " + std::string(message);
    if (token_.kind == Token::kEnd) {
      error_ += ", but the text ends here";
    } else {
      error_ += " at '" + std::string(token_.text.substr(0, 60)) + "'";
    }
  }
  return false;
}

// As in C, with binary numbers and an optional U.
bool ReadInteger(std::string_view text, uint64_t* value) {
  int base = 10;
  if (!text.empty() && (text.back() == 'U' || text.back() == 'u')) text.remove_suffix(1);
  if (text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
    base = 16;
    text.remove_prefix(2);
  } else if (text.size() > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B')) {
    base = 2;
    text.remove_prefix(2);
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
    text.remove_prefix(1);
  }
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return status == std::errc() && end == text.data() + text.size() && !text.empty();
}

// Bits in hexadecimal, of exactly a float or a double; or a decimal, which is a double.
bool ReadFloat(std::string_view text, uint64_t* bits, bool* single) {
  *single = false;
  if (text.size() > 2 && text[0] == '0') {
    const char kind = text[1];
    const bool is_single = kind == 'f' || kind == 'F';
    if (is_single || kind == 'd' || kind == 'D') {
      *single = is_single;
      const std::string_view digits = text.substr(2);
      if (digits.size() != (is_single ? 8u : 16u)) return false;
      const auto [end, status] =
          std::from_chars(digits.data(), digits.data() + digits.size(), *bits, 16);
      return status == std::errc() && end == digits.data() + digits.size();
    }
  }
  // No number of a sane text is longer; strtod takes a copy.
  if (text.find_first_of(".eE") == std::string_view::npos || text.size() > 60) return false;
  // from_chars for floating point is missing in libstdc++ builds for old processors and in libc++.
  const std::string copy(text);
  char* end = nullptr;
  const double value = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size()) return false;
  *bits = std::bit_cast<uint64_t>(value);
  return true;
}

namespace {

// Integers first: what is one is never read as a float.
bool ParseNumber(Cursor& cursor, bool minus, Operand* operand) {
  const std::string_view text = cursor.token().text;
  if (ReadInteger(text, &operand->bits)) {
    operand->kind = Operand::kInt;
    if (minus) operand->bits = -operand->bits;
  } else if (ReadFloat(text, &operand->bits, &operand->single)) {
    operand->kind = Operand::kFloat;
    if (minus) operand->bits ^= operand->single ? 0x80000000u : uint64_t{1} << 63;
  } else {
    return cursor.Fail("not a number");
  }
  cursor.Take();
  return true;
}

// The "+4", "-4" and "+-4" behind a name.
bool ParseOffset(Cursor& cursor, int64_t* offset) {
  uint64_t sum = static_cast<uint64_t>(*offset);
  while (cursor.token().Is('+') || cursor.token().Is('-')) {
    bool minus = cursor.Take().Is('-');
    if (cursor.TakeIf('-')) minus = !minus;
    uint64_t value = 0;
    if (cursor.token().kind != Token::kNumber || !ReadInteger(cursor.token().text, &value)) {
      return cursor.Fail("expected a number");
    }
    cursor.Take();
    sum += minus ? -value : value;
  }
  *offset = static_cast<int64_t>(sum);
  return true;
}

// Elements of a vector or a list, up to `end`.
bool ParseSeparated(Cursor& cursor, char end, std::vector<Operand>* parts, uint32_t depth) {
  if (cursor.TakeIf(end)) return true;
  do {
    if (!ParseOperand(cursor, &parts->emplace_back(), depth + 1)) return false;
  } while (cursor.TakeIf(','));
  return cursor.Expect(end);
}

// Parses what follows the "|" of a pair; `operand` was its first part.
bool ParseSecond(Cursor& cursor, Operand* operand, uint32_t depth) {
  Operand first = std::move(*operand);
  *operand = Operand();
  operand->kind = Operand::kPair;
  operand->parts.push_back(std::move(first));
  cursor.Take();
  return ParseOperand(cursor, &operand->parts.emplace_back(), depth + 1);
}

// [name + offset], [number], and behind a comma what instructions of images and tensors add.
bool ParseAddress(Cursor& cursor, Operand* operand, uint32_t depth) {
  operand->kind = Operand::kAddress;
  const Token& token = cursor.token();
  if (token.kind == Token::kWord) {
    operand->name = cursor.Take().text;
    if (!ParseOffset(cursor, &operand->offset)) return false;
  } else {
    int64_t value = 0;
    if (!ParseConstant(cursor, &value, depth + 1)) return false;
    operand->offset = value;
  }
  while (cursor.TakeIf(',')) {
    if (!ParseOperand(cursor, &operand->parts.emplace_back(), depth + 1)) return false;
  }
  return cursor.Expect(']');
}

}  // namespace

bool ParseOperand(Cursor& cursor, Operand* operand, uint32_t depth) {
  if (depth > kMaxExpressionDepth) return cursor.Fail("operands nested too deeply");
  if (cursor.TakeIf('[')) return ParseAddress(cursor, operand, depth);
  if (cursor.TakeIf('{')) {
    operand->kind = Operand::kVector;
    if (!ParseSeparated(cursor, '}', &operand->parts, depth)) return false;
    // A vector may be the first part of a pair: tex's result with its predicate.
    return !cursor.token().Is('|') || ParseSecond(cursor, operand, depth);
  }
  if (cursor.TakeIf('(')) {
    operand->kind = Operand::kList;
    return ParseSeparated(cursor, ')', &operand->parts, depth);
  }
  bool minus = false;
  if (cursor.TakeIf('!')) {
    operand->negated = true;
  } else if (cursor.TakeIf('-')) {
    minus = true;
  }
  // A sign before a number belongs to it; registers have none.
  if (cursor.token().kind == Token::kNumber) return ParseNumber(cursor, minus, operand);
  // A label, a register, a variable with an offset, or the first part of a pair.
  if (cursor.token().kind != Token::kWord || minus) return cursor.Fail("expected an operand");
  operand->name = cursor.Take().text;
  if (!ParseOffset(cursor, &operand->offset)) return false;
  return !cursor.token().Is('|') || ParseSecond(cursor, operand, depth);
}

}  // namespace gpuloom::softgpu::ptx
