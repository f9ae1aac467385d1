// SPDX-License-Identifier: Apache-2.0
// Works on tokens and not on trees, so that a text which does not parse is still linked, and its
// error names what is wrong when it is loaded.
#include "agent/softgpu/ptx/link.h"

#include <set>
#include <string_view>
#include <vector>

#include "agent/softgpu/ptx/lexer.h"

namespace gpuloom::softgpu::ptx {
namespace {

// Views into the texts.
struct Names {
  std::set<std::string_view> all;    // of the module's own scope
  std::set<std::string_view> local;  // of them, those that no other text can mean
};

bool IsLinkage(const Token& token) {
  return token.Is(".visible") || token.Is(".extern") || token.Is(".weak") || token.Is(".common");
}

bool IsVariable(const Token& token) {
  return token.Is(".global") || token.Is(".const") || token.Is(".shared");
}

// The names that one text declares outside of functions.
Names FindNames(std::string_view text) {
  Names names;
  Lexer lexer(text);
  bool linkage = false;
  int depth = 0;
  for (Token token = lexer.Next(); token.kind != Token::kEnd; token = lexer.Next()) {
    if (token.Is('{')) ++depth;
    if (token.Is('}')) --depth;
    // Declarations stand outside of all braces.
    if (depth != 0) continue;
    if (token.Is(';') || token.Is('}')) linkage = false;
    linkage |= IsLinkage(token);
    const bool function = token.Is(".func") || token.Is(".entry");
    if (!function && !IsVariable(token)) continue;
    // The name is the first word that is no directive, behind what a function returns.
    Token name = lexer.Next();
    for (int parentheses = 0; name.kind != Token::kEnd; name = lexer.Next()) {
      if (name.Is('(')) ++parentheses;
      if (name.Is(')')) --parentheses;
      if (parentheses == 0 && name.kind == Token::kWord && name.text[0] != '.') break;
    }
    names.all.insert(name.text);
    if (!linkage) names.local.insert(name.text);
    // What follows the name (parameters, a size, an initial value) is not a declaration.
    if (function) linkage = false;
    while (name.kind != Token::kEnd && !name.Is(';') && !(function && name.Is('{'))) {
      name = lexer.Next();
    }
    if (name.Is('{')) ++depth;
    linkage = false;
  }
  return names;
}

// The text with the names in `which` changed. Wherever the name stands, also inside of functions: a
// local variable that hides it changes with it.
std::string Rename(std::string_view text, const std::set<std::string_view>& which, size_t number) {
  std::string renamed;
  Lexer lexer(text);
  const char* copied = text.data();
  for (Token token = lexer.Next(); token.kind != Token::kEnd; token = lexer.Next()) {
    if (token.kind != Token::kWord || !which.contains(token.text)) continue;
    const char* end = token.text.data() + token.text.size();
    renamed.append(copied, end).append("$part").append(std::to_string(number));
    copied = end;
  }
  return renamed.append(copied, text.data() + text.size());
}

}  // namespace

// Clashes only: names that no other text has stay as they are, so that they can be found by name
// and read in errors. Each text ends with a line break, as the last line may be a comment.
std::string Link(std::span<const std::string> texts) {
  std::vector<Names> names;
  for (const std::string& text : texts) names.push_back(FindNames(text));
  std::string linked;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::set<std::string_view> clashing;
    for (const std::string_view name : names[i].local) {
      for (size_t other = 0; other < texts.size(); ++other) {
        if (other != i && names[other].all.contains(name)) clashing.insert(name);
      }
    }
    linked.append(Rename(texts[i], clashing, i)).append("\n");
  }
  return linked;
}

}  // namespace gpuloom::softgpu::ptx
