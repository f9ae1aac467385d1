// SPDX-License-Identifier: Apache-2.0
#include "proto/cuda/device_bytes.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

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

constexpr uint64_t kLargestTypeBytes = 16;

bool IsOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// 0 for what is no type, and for references to textures and surfaces, which are symbols without memory. A type that
// is not known counts as the largest: the driver may know it.
uint64_t TypeBytes(std::string_view word) {
  if (word.size() < 2 || word.front() != '.' ||
      IsOneOf(word, {".align", ".attribute", ".managed", ".unified", ".texref", ".samplerref",
                     ".surfref"})) {
    return 0;
  }
  if (IsOneOf(word, {".b8", ".u8", ".s8"})) return 1;
  if (IsOneOf(word, {".b16", ".u16", ".s16", ".f16"})) return 2;
  if (IsOneOf(word, {".b32", ".u32", ".s32", ".f32", ".f16x2"})) return 4;
  if (IsOneOf(word, {".b64", ".u64", ".s64", ".f64"})) return 8;
  return kLargestTypeBytes;
}

// A dimension: decimal, octal, hexadecimal or binary, with an optional U, or WARP_SZ. kTooMuch for anything else:
// nothing is loaded of which the driver may understand more than we do.
uint64_t Dimension(std::string_view word) {
  if (word == "WARP_SZ") return 32;
  while (!word.empty() && (word.back() == 'U' || word.back() == 'u')) word.remove_suffix(1);
  int base = 10;
  if (word.size() > 1 && word[0] == '0') {
    const char kind = word[1];
    base = kind == 'x' || kind == 'X' ? 16 : kind == 'b' || kind == 'B' ? 2 : 8;
    word.remove_prefix(base == 8 ? 1 : 2);
  }
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
  return error == std::errc() && end == word.data() + word.size() ? number : kTooMuch;
}

// One declaration, told token by token: [.align N] .TYPE or .v4 .TYPE NAME [N][N] , NAME<N> , NAME = …
class Declaration {
 public:
  // A variable that another module defines takes no memory here.
  explicit Declaration(bool is_elsewhere) : is_elsewhere_(is_elsewhere) {}

  void Take(std::string_view token) {
    if (depth_ != 0 || token == "{") return TakeValue(token);
    if (in_value_ && token != ",") return;
    if (is_alignment_next_) {
      is_alignment_next_ = false;
      align_bytes_ = std::max(align_bytes_, Dimension(token));
    } else if (!closes_.empty()) {
      if (token == closes_) return EndBrackets();
      has_dimension_ = true;
      Multiply(Dimension(token));
    } else if (token == "[" || token == "<") {
      // NAME<N> stands for the N variables NAME0, NAME1 and so on.
      closes_ = token == "[" ? "]" : ">";
      has_dimension_ = false;
    } else if (token == "=") {
      in_value_ = true;
      elements_ = 1;
    } else if (token == ",") {
      EndVariable();
    } else if (token == ".v2" || token == ".v4") {
      vector_ = token == ".v2" ? 2 : 4;
    } else if (token == ".align") {
      is_alignment_next_ = true;
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
  // Without a number, the initial value determines the dimension.
  void EndBrackets() {
    if (!has_dimension_) open_ = true;
    closes_ = {};
  }
  void Multiply(uint64_t by) {
    if (__builtin_mul_overflow(count_, by, &count_)) count_ = kTooMuch;
  }
  // Up to the next variable with this alignment: one byte may be followed by gigabytes of nothing.
  uint64_t Padded(uint64_t bytes) const {
    if (bytes == 0 || align_bytes_ <= 1) return bytes;
    const uint64_t over = bytes % align_bytes_;
    uint64_t padded = bytes;
    if (over != 0 && __builtin_add_overflow(bytes, align_bytes_ - over, &padded)) return kTooMuch;
    return padded;
  }
  // Adds up one variable. What follows a comma has the same type but its own dimensions and value.
  void EndVariable() {
    if (open_) Multiply(elements_);
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(count_, type_bytes_ * vector_, &bytes)) bytes = kTooMuch;
    if (!is_elsewhere_) (void)AddTo(&sum_, Padded(bytes));
    count_ = elements_ = 1;
    open_ = in_value_ = false;
    closes_ = {};
    depth_ = 0;
  }

  const bool is_elsewhere_;
  uint64_t type_bytes_ = 0;
  uint64_t vector_ = 1;
  uint64_t align_bytes_ = 1;
  uint64_t count_ = 1;
  uint64_t elements_ = 1;
  uint64_t sum_ = 0;
  // The depth of braces in the initial value.
  int depth_ = 0;
  // A dimension was left out; the number of initial values stands for it.
  bool open_ = false;
  std::string_view closes_;  // the brackets that are open; empty: none
  bool has_dimension_ = false;
  bool in_value_ = false;
  bool is_alignment_next_ = false;
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
