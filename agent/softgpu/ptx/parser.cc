// SPDX-License-Identifier: Apache-2.0
// By recursive descent, with one token of look ahead. Loops end at the end of the text, and nesting
// is bounded, as a text may be made to hurt.
#include "agent/softgpu/ptx/parser.h"

#include <algorithm>

#include "agent/softgpu/ptx/cursor.h"

namespace gpuloom::softgpu::ptx {
namespace {

bool IsSpaceWord(const Token& token) {
  for (const std::string_view space :
       {".reg", ".global", ".const", ".shared", ".local", ".param"}) {
    if (token.Is(space)) return true;
  }
  return false;
}

// .loc and .file have no semicolon: they end with their line, apart from strings.
void SkipLine(Cursor& cursor) {
  const uint32_t line = cursor.token().line;
  while (cursor.token().kind != Token::kEnd && cursor.token().line == line) cursor.Take();
}

// A .section contains debug information.
bool SkipBraces(Cursor& cursor) {
  uint32_t depth = 0;
  do {
    if (cursor.token().kind == Token::kEnd) return cursor.Fail("expected '}'");
    const Token token = cursor.Take();
    if (token.Is('{')) ++depth;
    if (token.Is('}')) --depth;
  } while (depth > 0);
  return true;
}

bool SkipToSemicolon(Cursor& cursor) {
  while (!cursor.token().Is(';')) {
    if (cursor.token().kind == Token::kEnd) return cursor.Fail("expected ';'");
    cursor.Take();
  }
  cursor.Take();
  return true;
}

// The guard belongs to the statement; everything else about an instruction is the decoder's.
bool ParseInstruction(Cursor& cursor, Statement* statement) {
  statement->kind = Statement::kInstruction;
  if (cursor.TakeIf('@')) {
    statement->guard_negated = cursor.TakeIf('!');
    statement->guard = cursor.ExpectWord("a predicate");
    if (statement->guard.empty()) return false;
  }
  statement->line = cursor.token().line;
  statement->text = cursor.ExpectWord("an instruction");
  if (statement->text.empty()) return false;
  if (cursor.TakeIf(';')) return true;
  do {
    if (!ParseOperand(cursor, &statement->operands.emplace_back())) return false;
  } while (cursor.TakeIf(','));
  return cursor.Expect(';');
}

// name: .branchtargets a, b;   name: .callprototype (.param .b32 _) _ (.param .b32 _);
// .calltargets are read like .branchtargets and not looked at: an indirect call checks what it
// reaches.
bool ParseLabelled(Cursor& cursor, Statement* statement) {
  const std::string_view directive = cursor.Take().text;
  if (directive == ".branchtargets" || directive == ".calltargets") {
    statement->kind = Statement::kBranchTargets;
    do {
      if (!ParseOperand(cursor, &statement->operands.emplace_back())) return false;
    } while (cursor.TakeIf(','));
    return cursor.Expect(';');
  }
  statement->kind = Statement::kPrototype;
  if (cursor.token().Is('(') && !ParseParams(cursor, &statement->returns)) return false;
  if (cursor.ExpectWord("'_'").empty()) return false;
  if (cursor.token().Is('(') && !ParseParams(cursor, &statement->variables)) return false;
  cursor.TakeIf(".noreturn");
  return cursor.Expect(';');
}

bool ParseStatement(Cursor& cursor, std::vector<Statement>* body) {
  const Token& token = cursor.token();
  // An empty statement is allowed.
  if (cursor.TakeIf(';')) return true;
  if (token.Is(".loc") || token.Is(".file")) {
    SkipLine(cursor);
    return true;
  }
  // Hints to ptxas, such as unrolling.
  if (token.Is(".pragma")) return SkipToSemicolon(cursor);
  Statement& statement = body->emplace_back();
  statement.line = token.line;
  if (IsSpaceWord(token)) {
    statement.kind = Statement::kVariable;
    return ParseVariables(cursor, false, &statement.variables) && cursor.Expect(';');
  }
  // Two tokens distinguish a label from an instruction: an opcode is not followed by a colon.
  if (token.kind == Token::kWord && cursor.next().Is(':')) {
    statement.kind = Statement::kLabel;
    statement.text = cursor.Take().text;
    cursor.Take();
    const Token& after = cursor.token();
    if (after.Is(".branchtargets") || after.Is(".calltargets") || after.Is(".callprototype")) {
      return ParseLabelled(cursor, &statement);
    }
    return true;
  }
  if (token.kind == Token::kWord && token.text[0] == '.') return cursor.Fail("unknown directive");
  return ParseInstruction(cursor, &statement);
}

// From the function's opening brace to the one that closes it. Braces are statements, so the
// decoder sees scopes as they come.
bool ParseBody(Cursor& cursor, FunctionTree* function) {
  uint32_t depth = 0;
  do {
    const Token& token = cursor.token();
    if (token.Is('{') || token.Is('}')) {
      const bool open = token.Is('{');
      Statement& statement = function->body.emplace_back();
      statement.kind = open ? Statement::kOpen : Statement::kClose;
      statement.line = token.line;
      cursor.Take();
      depth = open ? depth + 1 : depth - 1;
      if (depth > kMaxScopeDepth) return cursor.Fail("scopes nested too deeply");
      continue;
    }
    if (token.kind == Token::kEnd) return cursor.Fail("expected '}'");
    if (!ParseStatement(cursor, &function->body)) return false;
  } while (depth > 0);
  function->has_body = true;
  return true;
}

// One to three dimensions; those that are left out are 1.
bool ParseTriple(Cursor& cursor, uint32_t (&out)[3]) {
  for (uint32_t& value : out) value = 1;
  for (uint32_t i = 0; i < 3; ++i) {
    int64_t value = 0;
    if (!ParseConstant(cursor, &value)) return false;
    if (value < 1 || value > 0x7fffffff) return cursor.Fail("not a dimension");
    out[i] = static_cast<uint32_t>(value);
    if (!cursor.TakeIf(',')) break;
  }
  return true;
}

// Parses the directives between a function's parameters and its body. Bounds on registers and on
// blocks of a multiprocessor are for ptxas; the dimensions of blocks and clusters apply to
// launches.
bool ParseTuning(Cursor& cursor, FunctionTree* function) {
  while (cursor.token().kind == Token::kWord) {
    const std::string_view word = cursor.Take().text;
    int64_t ignored = 0;
    if (word == ".maxntid") {
      if (!ParseTriple(cursor, function->max_ntid)) return false;
    } else if (word == ".reqntid") {
      if (!ParseTriple(cursor, function->required_ntid)) return false;
    } else if (word == ".reqnctapercluster") {
      if (!ParseTriple(cursor, function->required_cluster)) return false;
    } else if (word == ".maxnreg" || word == ".minnctapersm" || word == ".maxnctapersm" ||
               word == ".maxclusterrank") {
      if (!ParseConstant(cursor, &ignored)) return false;
    } else if (word == ".pragma") {
      if (!SkipToSemicolon(cursor)) return false;
    } else if (word != ".noreturn" && word != ".explicitcluster" && word != ".blocksareclusters") {
      return cursor.Fail("unsupported directive '" + std::string(word) + "'");
    }
  }
  return true;
}

// A function without a body is a declaration; its definition, if any, is another entry of the tree.
bool ParseFunction(Cursor& cursor, bool is_extern, bool is_weak, ModuleTree* tree) {
  FunctionTree& function = tree->functions.emplace_back();
  function.is_entry = cursor.Take().text == ".entry";
  function.is_extern = is_extern;
  function.is_weak = is_weak;
  function.line = cursor.token().line;
  // Attributes of functions say nothing that matters here.
  if (cursor.TakeIf(".attribute")) {
    while (!cursor.TakeIf(')')) {
      if (cursor.token().kind == Token::kEnd) return cursor.Fail("expected ')'");
      cursor.Take();
    }
  }
  if (cursor.token().Is('(') && !ParseParams(cursor, &function.returns)) return false;
  function.name = cursor.ExpectWord("a function's name");
  if (function.name.empty()) return false;
  if (cursor.token().Is('(') && !ParseParams(cursor, &function.params)) return false;
  if (!ParseTuning(cursor, &function)) return false;
  if (cursor.TakeIf(';')) return true;
  if (!cursor.token().Is('{')) return cursor.Fail("expected '{'");
  return ParseBody(cursor, &function);
}

bool ParseTarget(Cursor& cursor, ModuleTree* tree) {
  do {
    const std::string_view word = cursor.ExpectWord("a target");
    if (word.empty()) return false;
    // Options such as texmode_independent and debug follow the target.
    if (!word.starts_with("sm_")) continue;
    uint32_t number = 0;
    for (const char c : word.substr(3, 4)) {
      if (c >= '0' && c <= '9') number = number * 10 + static_cast<uint32_t>(c - '0');
    }
    tree->targets.push_back({number, word.ends_with('a')   ? TargetKind::kSpecific
                                     : word.ends_with('f') ? TargetKind::kFamily
                                                           : TargetKind::kAll});
  } while (cursor.TakeIf(','));
  return true;
}

// 87 for "8.7": a minor version has one digit.
uint32_t VersionOf(std::string_view text) {
  uint32_t number = 0;
  for (const char c : text.substr(0, 6)) {
    if (c >= '0' && c <= '9') number = number * 10 + static_cast<uint32_t>(c - '0');
  }
  return number;
}

// .visible has no effect here: any name may be requested, and linking has evaluated it before
// (link.cc).
bool ParseDirective(Cursor& cursor, ModuleTree* tree) {
  bool is_extern = false;
  bool is_weak = false;
  while (cursor.token().Is(".visible") || cursor.token().Is(".weak") ||
         cursor.token().Is(".extern") || cursor.token().Is(".common")) {
    const Token linkage = cursor.Take();
    is_extern |= linkage.Is(".extern");
    is_weak |= linkage.Is(".weak") || linkage.Is(".common");
  }
  const Token& token = cursor.token();
  if (token.Is(".entry") || token.Is(".func")) {
    return ParseFunction(cursor, is_extern, is_weak, tree);
  }
  // .reg and .param stand in functions only.
  if (IsSpaceWord(token) && !token.Is(".reg") && !token.Is(".param")) {
    const size_t before = tree->variables.size();
    if (!ParseVariables(cursor, is_extern, &tree->variables)) return false;
    for (size_t at = before; at < tree->variables.size(); ++at) {
      tree->variables[at].is_weak = is_weak;
    }
    return cursor.Expect(';');
  }
  if (token.Is(".version")) {
    cursor.Take();
    if (cursor.token().kind != Token::kNumber) return cursor.Fail("expected a version");
    tree->version = std::max(tree->version, VersionOf(cursor.Take().text));
    return true;
  }
  if (token.Is(".target")) {
    cursor.Take();
    return ParseTarget(cursor, tree);
  }
  if (token.Is(".address_size")) {
    cursor.Take();
    int64_t size = 0;
    if (!ParseConstant(cursor, &size)) return false;
    return size == 64 || cursor.Fail("unsupported address size, only 64 is");
  }
  if (token.Is(".file") || token.Is(".loc")) {
    SkipLine(cursor);
    return true;
  }
  if (token.Is(".pragma")) return SkipToSemicolon(cursor);
  // DWARF and the like.
  if (token.Is(".section")) {
    while (!cursor.token().Is('{')) {
      if (cursor.token().kind == Token::kEnd) return cursor.Fail("expected '{'");
      cursor.Take();
    }
    return SkipBraces(cursor);
  }
  if (cursor.TakeIf(';')) return true;
  return cursor.Fail("unknown directive");
}

}  // namespace

bool Parse(std::string_view text, ModuleTree* tree, std::string* error) {
  Cursor cursor(text);
  // PTX demands it, and so texts that are no PTX get a clear error.
  if (!cursor.token().Is(".version")) {
    cursor.Fail("the text does not begin with .version");
  }
  while (!cursor.failed() && cursor.token().kind != Token::kEnd) {
    if (!ParseDirective(cursor, tree)) break;
  }
  if (cursor.failed()) *error = cursor.error();
  return !cursor.failed();
}

}  // namespace gpuloom::softgpu::ptx
