// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/device_bytes.h"

#include <algorithm>
#include <charconv>

#include "proto/cuda/cubin.h"
#include "proto/cuda/ptx_tokens.h"

namespace gpuloom {
namespace {

constexpr uint64_t kTooMuch = UINT64_MAX;

// False, with kTooMuch in *sum, if it overflows: then nothing more need be added.
bool AddTo(uint64_t* sum, uint64_t bytes) {
  if (!__builtin_add_overflow(*sum, bytes, sum)) return true;
  *sum = kTooMuch;
  return false;
}

// 0 for what is no type, and for references to textures and surfaces, which are symbols without memory.
uint64_t TypeBytes(std::string_view type) {
  if (type.size() < 2 || type.front() != '.') return 0;
  if (type == ".pred") return 1;
  const std::string_view bits =
      type.substr(std::min(type.find_first_of("0123456789"), type.size()));
  constexpr std::string_view kKinds[] = {".b", ".u", ".s", ".f"};
  const size_t letters = type.size() - bits.size();
  bool known = false;
  for (const std::string_view kind : kKinds) known |= type.substr(0, letters) == kind;
  if (!known) return 0;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), number);
  const bool whole = error == std::errc() && end == bits.data() + bits.size();
  return whole && number % 8 == 0 && number <= 128 ? number / 8 : 0;
}

// A dimension: decimal, octal, hexadecimal or binary, with an optional U. 0 for anything else.
uint64_t Dimension(std::string_view word) {
  while (!word.empty() && (word.back() == 'U' || word.back() == 'u')) word.remove_suffix(1);
  int base = 10;
  if (word.size() > 1 && word[0] == '0') {
    const char kind = word[1];
    base = kind == 'x' || kind == 'X' ? 16 : kind == 'b' || kind == 'B' ? 2 : 8;
    word.remove_prefix(base == 8 ? 1 : 2);
  }
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
  if (error == std::errc::result_out_of_range) return kTooMuch;
  return error == std::errc() && end == word.data() + word.size() ? number : 0;
}

// One declaration, told token by token: [.align N] .TYPE or .v4 .TYPE NAME [N][N] , NAME = …
class Declaration {
 public:
  // A variable that another module defines takes no memory here.
  explicit Declaration(bool is_elsewhere) : is_elsewhere_(is_elsewhere) {}

  void Take(std::string_view token) {
    if (depth_ != 0 || token == "{") return TakeValue(token);
    if (in_value_ && token != ",") return;
    if (token == "[") {
      in_brackets_ = true;
      has_dimension_ = false;
    } else if (token == "]") {
      // Without a number, the initial value determines the dimension.
      if (!has_dimension_) open_ = true;
      in_brackets_ = false;
    } else if (in_brackets_) {
      has_dimension_ = true;
      Multiply(Dimension(token));
    } else if (token == "=") {
      in_value_ = true;
      elements_ = 1;
    } else if (token == ",") {
      EndVariable();
    } else if (token == ".v2" || token == ".v4") {
      vector_ = token == ".v2" ? 2 : 4;
    } else if (const uint64_t bytes = TypeBytes(token); bytes != 0) {
      type_bytes_ = bytes;
    }
  }
  uint64_t End() {
    EndVariable();
    return sum_;
  }

 private:
  // Every value in the braces takes one place; commas separate them.
  void TakeValue(std::string_view token) {
    if (token == "{") ++depth_;
    if (token == "}") --depth_;
    if (token == ",") ++elements_;
  }
  void Multiply(uint64_t by) {
    if (__builtin_mul_overflow(count_, by, &count_)) count_ = kTooMuch;
  }
  // Adds up one variable. What follows a comma has the same type but its own dimensions and value.
  void EndVariable() {
    if (open_) Multiply(elements_);
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(count_, type_bytes_ * vector_, &bytes)) bytes = kTooMuch;
    if (!is_elsewhere_) (void)AddTo(&sum_, bytes);
    count_ = elements_ = 1;
    open_ = in_value_ = in_brackets_ = false;
    depth_ = 0;
  }

  const bool is_elsewhere_;
  uint64_t type_bytes_ = 0;
  uint64_t vector_ = 1;
  uint64_t count_ = 1;
  uint64_t elements_ = 1;
  uint64_t sum_ = 0;
  // The depth of braces in the initial value.
  int depth_ = 0;
  // A dimension was left out; the number of initial values stands for it.
  bool open_ = false;
  bool in_brackets_ = false;
  bool has_dimension_ = false;
  bool in_value_ = false;
};

}  // namespace

uint64_t DeviceBytes(const DeviceCode& code) {
  if (code.kind == ImageKind::kElf) return CubinDeviceBytes(code.bytes);
  return PtxVariableBytes({reinterpret_cast<const char*>(code.bytes.data()), code.bytes.size()});
}

uint64_t CubinDeviceBytes(std::span<const uint8_t> cubin) {
  Cubin file;
  if (!file.Open(cubin)) return 0;
  uint64_t sum = 0;
  for (uint32_t i = 0; i < file.section_count(); ++i) {
    const Cubin::Section section = file.SectionAt(i);
    const std::string_view name = file.NameOf(section).value_or("");
    // Recognised by name as well, because a tenant chooses the flags.
    const bool is_variables = name.starts_with(".nv.global") || name.starts_with(".nv.constant");
    if ((section.flags & fatbin_internal::kElfAllocated) == 0 && !is_variables) continue;
    if (name.starts_with(".nv.shared") || name.starts_with(".nv.local")) continue;
    if (!AddTo(&sum, section.size)) break;
  }
  return sum;
}

uint64_t PtxVariableBytes(std::string_view ptx) {
  PtxTokens tokens(ptx);
  PtxStateSpaces spaces;
  uint64_t sum = 0;
  for (std::string_view token = tokens.Next(); !token.empty(); token = tokens.Next()) {
    // From the state space to the semicolon is one declaration.
    if (!spaces.Declares(token)) continue;
    Declaration declaration(spaces.before() == ".extern");
    while (!(token = tokens.Next()).empty() && token != ";") declaration.Take(token);
    if (!AddTo(&sum, declaration.End())) break;
    // It is to see every token: the semicolon takes the place of the last word.
    if (!token.empty()) (void)spaces.Declares(token);
  }
  return sum;
}

}  // namespace gpuloom
