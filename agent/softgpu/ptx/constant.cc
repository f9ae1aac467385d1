// SPDX-License-Identifier: Apache-2.0
// Constant expressions, initial values and declarations of variables.
#include <bit>

#include "agent/softgpu/ptx/cursor.h"
#include "agent/softgpu/ptx/parser.h"

namespace gpuloom::softgpu::ptx {
namespace {

// Depth counts every sign and parenthesis: the parser recurses for each.
bool ParseUnary(Cursor& cursor, int64_t* value, uint32_t depth) {
  if (depth > kMaxExpressionDepth) return cursor.Fail("expression nested too deeply");
  if (cursor.TakeIf('(')) {
    // A cast such as (.u64) changes nothing here: values are kept as 64 bits.
    if (cursor.token().Is(".u64") || cursor.token().Is(".s64")) {
      cursor.Take();
      return cursor.Expect(')') && ParseUnary(cursor, value, depth + 1);
    }
    return ParseConstant(cursor, value, depth + 1) && cursor.Expect(')');
  }
  for (const char op : {'-', '+', '~', '!'}) {
    if (!cursor.TakeIf(op)) continue;
    if (!ParseUnary(cursor, value, depth + 1)) return false;
    // Negated as unsigned numbers, which wrap around.
    const uint64_t bits = static_cast<uint64_t>(*value);
    if (op == '-') *value = static_cast<int64_t>(-bits);
    if (op == '~') *value = static_cast<int64_t>(~bits);
    if (op == '!') *value = bits == 0 ? 1 : 0;
    return true;
  }
  uint64_t bits = 0;
  if (cursor.token().kind != Token::kNumber || !ReadInteger(cursor.token().text, &bits)) {
    return cursor.Fail("expected an integer constant");
  }
  cursor.Take();
  *value = static_cast<int64_t>(bits);
  return true;
}

// 0: no operator of constants. The numbers are C's order; `||`, `&&`, comparisons and `?:` do not
// occur.
int Precedence(const Token& token, const Token& next) {
  if (token.kind != Token::kPunct) return 0;
  switch (token.text[0]) {
    case '*':
    case '/':
    case '%':
      return 6;
    case '+':
    case '-':
      return 5;
    case '<':
    case '>':
      return next.Is(token.text[0]) ? 4 : 0;  // << and >>, not %r<5>
    case '&':
      return 3;
    case '^':
      return 2;
    case '|':
      return 1;
    default:
      return 0;
  }
}

// Arithmetic of 64 bits that wraps around. >> brings in zeros, as C's does for unsigned numbers.
bool Apply(Cursor& cursor, char op, int64_t* left, int64_t right) {
  const uint64_t a = static_cast<uint64_t>(*left);
  const uint64_t b = static_cast<uint64_t>(right);
  uint64_t r = 0;
  switch (op) {
    case '*':
      r = a * b;
      break;
    case '+':
      r = a + b;
      break;
    case '-':
      r = a - b;
      break;
    case '&':
      r = a & b;
      break;
    case '^':
      r = a ^ b;
      break;
    case '|':
      r = a | b;
      break;
    case '<':
      r = b < 64 ? a << b : 0;
      break;
    case '>':
      r = b < 64 ? a >> b : 0;
      break;
    default:
      // Both would be undefined in C++; a text may contain either.
      if (b == 0 || (right == -1 && *left == INT64_MIN)) return cursor.Fail("division overflows");
      r = static_cast<uint64_t>(op == '/' ? *left / right : *left % right);
  }
  *left = static_cast<int64_t>(r);
  return true;
}

// Climbs by precedence: an operator takes a right side of higher precedence only, so equals
// associate to the left.
bool ParseBinary(Cursor& cursor, int64_t* value, int lowest, uint32_t depth) {
  if (!ParseUnary(cursor, value, depth)) return false;
  while (true) {
    const int precedence = Precedence(cursor.token(), cursor.next());
    if (precedence == 0 || precedence < lowest) return true;
    const char op = cursor.Take().text[0];
    if (op == '<' || op == '>') cursor.Take();
    int64_t right = 0;
    if (!ParseBinary(cursor, &right, precedence + 1, depth + 1)) return false;
    if (!Apply(cursor, op, value, right)) return false;
  }
}

// A symbol with an offset, also within generic(), which asks for a generic address: all addresses
// of variables are generic here.
bool ParseSymbolValue(Cursor& cursor, InitialValue* value) {
  const bool generic = cursor.token().Is("generic") && cursor.next().Is('(');
  if (generic) cursor.Take(), cursor.Take();
  value->symbol = cursor.ExpectWord("a symbol");
  if (value->symbol.empty()) return false;
  if (generic && !cursor.Expect(')')) return false;
  if (cursor.token().Is('+') || cursor.token().Is('-')) {
    const bool minus = cursor.Take().Is('-');
    int64_t offset = 0;
    if (!ParseUnary(cursor, &offset, 0)) return false;
    value->bits = minus ? -static_cast<uint64_t>(offset) : static_cast<uint64_t>(offset);
  }
  return true;
}

// A number, a symbol, or a part of a symbol's address: 0xFF00(symbol).
bool ParseValue(Cursor& cursor, InitialValue* value) {
  if (cursor.token().kind == Token::kWord) return ParseSymbolValue(cursor, value);
  if (cursor.token().kind == Token::kNumber && cursor.next().Is('(')) {
    if (!ReadInteger(cursor.token().text, &value->mask)) return cursor.Fail("not a mask");
    cursor.Take();
    return cursor.Expect('(') && ParseSymbolValue(cursor, value) && cursor.Expect(')');
  }
  // The sign belongs to the literal: constant expressions are integers.
  const bool minus = cursor.token().Is('-') && cursor.next().kind == Token::kNumber;
  const Token& number = minus ? cursor.next() : cursor.token();
  uint64_t ignored = 0;
  if (number.kind == Token::kNumber && !ReadInteger(number.text, &ignored) &&
      ReadFloat(number.text, &value->bits, &value->single)) {
    value->is_float = true;
    if (minus) {
      value->bits ^= value->single ? 0x80000000u : uint64_t{1} << 63;
      cursor.Take();
    }
    cursor.Take();
    return true;
  }
  int64_t constant = 0;
  if (!ParseConstant(cursor, &constant)) return false;
  value->bits = static_cast<uint64_t>(constant);
  return true;
}

// Braces may nest, one level per dimension. The rows of nvcc's texts are always full, so the values
// simply follow each other.
bool ParseValues(Cursor& cursor, std::vector<InitialValue>* values, uint32_t depth) {
  if (depth > kMaxExpressionDepth) return cursor.Fail("initial values nested too deeply");
  if (cursor.TakeIf('}')) return true;
  do {
    if (cursor.TakeIf('{')) {
      if (!ParseValues(cursor, values, depth + 1)) return false;
    } else if (!ParseValue(cursor, &values->emplace_back())) {
      return false;
    }
  } while (cursor.TakeIf(','));
  return cursor.Expect('}');
}

// Spaces as directives of declarations; modifiers of instructions are the decoder's.
bool FindSpace(std::string_view word, Space* space) {
  if (word == ".global")
    *space = Space::kGlobal;
  else if (word == ".const")
    *space = Space::kConst;
  else if (word == ".shared")
    *space = Space::kShared;
  else if (word == ".local")
    *space = Space::kLocal;
  else if (word == ".param")
    *space = Space::kParam;
  else if (word == ".reg")
    *space = Space::kReg;
  else
    return false;
  return true;
}

// Everything before the name: space, alignment, vector, type and attributes, in any order.
bool ParseQualifiers(Cursor& cursor, Variable* variable) {
  if (!FindSpace(cursor.token().text, &variable->space))
    return cursor.Fail("expected a state space");
  cursor.Take();
  uint32_t lanes = 1;
  bool pointee = false;  // behind .ptr, the qualifiers speak of what the parameter points to
  while (cursor.token().kind == Token::kWord && cursor.token().text[0] == '.') {
    const std::string_view word = cursor.Take().text;
    if (word == ".align") {
      int64_t align = 0;
      // A power of two, and no larger than what anybody could want: sizes are rounded up to it
      // later.
      if (!ParseConstant(cursor, &align)) return false;
      if (align <= 0 || align > 65536 || !std::has_single_bit(static_cast<uint64_t>(align))) {
        return cursor.Fail("alignment is not a power of two");
      }
      if (!pointee) variable->align_bytes = static_cast<uint32_t>(align);
    } else if (word == ".v2" || word == ".v4") {
      lanes = word == ".v2" ? 2 : 4;
    } else if (word == ".ptr" || word.starts_with(".ptr.")) {
      pointee = true;
    } else if (word == ".noalias" || word == ".managed" ||
               (pointee &&
                (word == ".global" || word == ".const" || word == ".shared" || word == ".local"))) {
      // Nothing to note: promises to an optimizer, and what .managed says stands in .attribute.
    } else if (word == ".attribute") {
      if (!cursor.Expect('(')) return false;
      while (!cursor.token().Is(')')) {
        if (cursor.token().kind == Token::kEnd) return cursor.Fail("expected ')'");
        variable->is_managed |= cursor.token().Is(".managed");
        cursor.Take();
      }
      cursor.Take();
    } else if (variable->space == Space::kGlobal && (word == ".texref" || word == ".surfref")) {
      variable->kind =
          word == ".texref" ? Variable::kTextureReference : Variable::kSurfaceReference;
      // Opaque to programs, and as large as a handle.
      variable->type = Type::kB64;
    } else {
      variable->type = FindType(word.substr(1));
      if (variable->type == Type::kNone) {
        return cursor.FailAt(variable->line, "unsupported type '" + std::string(word) + "'");
      }
    }
  }
  if (variable->type == Type::kNone) return cursor.Fail("expected a type");
  const uint32_t size_bytes = SizeBytes(variable->type) * lanes;
  variable->size_bytes = size_bytes;
  // By default a variable is aligned to its own size, vectors as a whole.
  if (variable->align_bytes == 0) variable->align_bytes = size_bytes == 0 ? 1 : size_bytes;
  return true;
}

// Dimensions multiply. Empty brackets take their extent from the initial values.
bool ParseDimensions(Cursor& cursor, Variable* variable) {
  uint64_t count = 1;
  bool is_array = false;
  while (cursor.TakeIf('[')) {
    is_array = true;
    if (cursor.TakeIf(']')) {
      variable->is_unsized = true;
      continue;
    }
    int64_t extent = 0;
    if (!ParseConstant(cursor, &extent) || !cursor.Expect(']')) return false;
    if (extent < 0 || static_cast<uint64_t>(extent) > kMaxVariableBytes) {
      return cursor.Fail("array too large");
    }
    // Divided, because the product may wrap.
    if (extent != 0 && count > kMaxVariableBytes / static_cast<uint64_t>(extent)) {
      return cursor.Fail("array too large");
    }
    count *= static_cast<uint64_t>(extent);
  }
  if (is_array) variable->size_bytes *= count;
  if (variable->size_bytes > kMaxVariableBytes) return cursor.Fail("variable too large");
  return true;
}

}  // namespace

bool ParseConstant(Cursor& cursor, int64_t* value, uint32_t depth) {
  return ParseBinary(cursor, value, 1, depth);
}

bool ParseInitializer(Cursor& cursor, Variable* variable) {
  if (cursor.TakeIf('{')) return ParseValues(cursor, &variable->values, 0);
  return ParseValue(cursor, &variable->values.emplace_back());
}

// All names of one declaration share what stands before them.
bool ParseVariables(Cursor& cursor, bool is_extern, std::vector<Variable>* variables) {
  Variable shape;
  shape.line = cursor.token().line;
  shape.is_extern = is_extern;
  if (!ParseQualifiers(cursor, &shape)) return false;
  do {
    Variable& variable = variables->emplace_back(shape);
    variable.name = cursor.ExpectWord("a name");
    if (variable.name.empty()) return false;
    if (variable.space == Space::kReg && cursor.TakeIf('<')) {
      // A range makes no registers yet, so a large one costs nothing.
      int64_t range = 0;
      if (!ParseConstant(cursor, &range) || !cursor.Expect('>')) return false;
      if (range <= 0 || range > (int64_t{1} << 24)) return cursor.Fail("register range too large");
      variable.range = static_cast<uint32_t>(range);
    }
    if (variable.kind != Variable::kPlain && (cursor.token().Is('[') || cursor.token().Is('='))) {
      return cursor.Fail("unsupported: an array or initial values of references");
    }
    if (variable.space == Space::kReg && cursor.token().Is('[')) {
      return cursor.Fail("registers have no arrays");
    }
    if (!ParseDimensions(cursor, &variable)) return false;
    if (cursor.TakeIf('=') && !ParseInitializer(cursor, &variable)) return false;
    // The values give an array its size when its brackets are empty.
    if (variable.is_unsized && !variable.values.empty()) {
      variable.size_bytes = SizeBytes(variable.type) * variable.values.size();
      variable.is_unsized = false;
    }
  } while (cursor.TakeIf(','));
  return true;
}

bool ParseParams(Cursor& cursor, std::vector<Variable>* params) {
  if (!cursor.Expect('(')) return false;
  if (cursor.TakeIf(')')) return true;
  do {
    Variable& param = params->emplace_back();
    param.line = cursor.token().line;
    if (!ParseQualifiers(cursor, &param)) return false;
    // The name is optional: a prototype's parameter is `_` or nothing.
    if (cursor.token().kind == Token::kWord) param.name = cursor.Take().text;
    if (!ParseDimensions(cursor, &param)) return false;
  } while (cursor.TakeIf(','));
  return cursor.Expect(')');
}

}  // namespace gpuloom::softgpu::ptx
