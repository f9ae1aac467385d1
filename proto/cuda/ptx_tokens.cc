// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/ptx_tokens.h"

#include <algorithm>
#include <iterator>

namespace gpuloom {
namespace {

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%';
}

bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f'; }

// Blanks and everything outside of ASCII are none.
bool IsPrintable(char c) { return c > ' ' && c <= '~'; }

// Instructions that name a state space. If one is missing here, its library is only loaded
// separately without need.
bool TakesStateSpace(std::string_view opcode) {
  constexpr std::string_view kOpcodes[] = {
      "ld",       "ldu",       "st",       "atom",         "red",          "cvta",
      "prefetch", "prefetchu", "isspacep", "cp",           "multimem",     "discard",
      "wmma",     "tensormap", "fence",    "createpolicy", "applypriority"};
  return std::find(std::begin(kOpcodes), std::end(kOpcodes), opcode) != std::end(kOpcodes);
}

bool IsReference(std::string_view token) {
  return token == ".texref" || token == ".samplerref" || token == ".surfref" || token == ".tex";
}

}  // namespace

// Returns false if a comment or the text ends improperly.
bool PtxTokens::SkipBlanks() {
  while (at_ < text_.size()) {
    if (IsBlank(text_[at_])) {
      ++at_;
    } else if (text_.substr(at_, 2) == "//") {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (text_.substr(at_, 2) == "/*") {
      // Comments do not nest.
      const size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) return false;
      at_ = end + 2;
    } else {
      return true;
    }
  }
  return true;
}

void PtxTokens::SkipWord() {
  while (at_ < text_.size() && IsWordCharacter(text_[at_])) ++at_;
}

std::string_view PtxTokens::Next() {
  if (!SkipBlanks()) {
    certain_ = false;
    at_ = text_.size();
  }
  begin_ = at_;
  if (at_ == text_.size()) return {};
  const char c = text_[at_++];
  if (c == '.') {
    SkipWord();
    // A modifier may have parts: ".shared::cta".
    while (text_.substr(at_, 2) == "::" && at_ + 2 < text_.size() &&
           IsWordCharacter(text_[at_ + 2])) {
      at_ += 2;
      SkipWord();
    }
  } else if (c == '"') {
    const size_t end = text_.find('"', at_);
    const std::string_view string = text_.substr(at_, end - at_);
    if (end == std::string_view::npos || !std::all_of(string.begin(), string.end(), [](char in) {
          return in != '\\' && (in == ' ' || IsPrintable(in));
        })) {
      certain_ = false;
    }
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
  } else if (IsWordCharacter(c)) {
    SkipWord();
  } else if (!IsPrintable(c) || c == '#' || c == '\\') {
    // Compilers write none of these outside of strings.
    certain_ = false;
  }
  return text_.substr(begin_, at_ - begin_);
}

bool PtxStateSpaces::Declares(std::string_view token) {
  const bool declares =
      (token == ".global" || token == ".const") && previous_ != ".ptr" && !TakesStateSpace(word_);
  // An instruction's opcode is the last word before its modifiers.
  if (token.front() != '.') word_ = token;
  before_ = previous_;
  previous_ = token;
  return declares;
}

bool PtxDeclaresState(std::string_view ptx) {
  PtxTokens tokens(ptx);
  PtxStateSpaces spaces;
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    const bool declares = spaces.Declares(token);
    if (declares || !tokens.certain() || IsReference(token)) return true;
  }
  return !tokens.certain();
}

bool PtxDeclaresFunctions(std::string_view ptx) {
  PtxTokens tokens(ptx);
  std::string_view previous;
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    if (!tokens.certain() || (previous == ".extern" && token == ".func")) return true;
    previous = token;
  }
  return !tokens.certain();
}

}  // namespace gpuloom
