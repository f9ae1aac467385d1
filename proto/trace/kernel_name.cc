// SPDX-License-Identifier: Apache-2.0
#include "proto/trace/kernel_name.h"

#include <charconv>

namespace gpuloom::trace {
namespace {

// "6vector": moves `text` behind it. Empty: something else is there.
std::string_view TakeIdentifier(std::string_view* text) {
  size_t length = 0;
  const auto read = std::from_chars(text->data(), text->data() + text->size(), length);
  const size_t digits = static_cast<size_t>(read.ptr - text->data());
  if (read.ec != std::errc() || length == 0 || length > text->size() - digits) return {};
  const std::string_view identifier = text->substr(digits, length);
  text->remove_prefix(digits + length);
  return identifier;
}

}  // namespace

std::string ShortKernelName(std::string_view name_untrusted) {
  std::string_view rest = name_untrusted;
  if (!rest.starts_with("_Z")) return std::string(name_untrusted);
  rest.remove_prefix(2);
  if (rest.starts_with("L")) rest.remove_prefix(1);  // of one file
  if (rest.starts_with("N")) rest.remove_prefix(1);
  if (rest.starts_with("St")) rest.remove_prefix(2);
  std::string name;
  for (;;) {
    if (rest.starts_with("L")) rest.remove_prefix(1);
    const std::string_view identifier = TakeIdentifier(&rest);
    if (identifier.empty()) break;
    // What the compiler calls a namespace without a name.
    if (identifier.starts_with("_GLOBAL__N") || identifier.starts_with("_INTERNAL")) continue;
    if (!name.empty()) name += "::";
    name += identifier;
  }
  return name.empty() ? std::string(name_untrusted) : name;
}

}  // namespace gpuloom::trace
