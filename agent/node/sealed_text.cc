// SPDX-License-Identifier: Apache-2.0
#include "agent/node/sealed_text.h"

#include <cstdint>
#include <cstdio>
#include <string_view>

namespace gpuloom {
namespace {

constexpr int kFormat = 1;
// The beginning of the last line.
constexpr std::string_view kSeal = "\n# kept by gpuloom-agent, format ";

// FNV-1a: against damage, not against malice; who can write here is root.
uint64_t Sum(std::string_view text) {
  uint64_t sum = 0xcbf29ce484222325;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return sum;
}

std::string LastLine(std::string_view text) {
  char rest[kMaxSealBytes - kSeal.size()];
  snprintf(rest, sizeof(rest), "%d: %zu bytes, sum %016llx\n", kFormat, text.size(),
           static_cast<unsigned long long>(Sum(text)));  // printf's
  return std::string(kSeal) + rest;
}

}  // namespace

std::string SealText(const std::string& text) { return text + LastLine(text); }

Seal UnsealText(const std::string& content, std::string* text, int* format) {
  const size_t end = content.rfind(kSeal);
  if (end == std::string::npos) return Seal::kDamaged;
  const std::string_view seal = std::string_view(content).substr(end);
  *text = content.substr(0, end);
  if (seal == LastLine(*text)) return Seal::kWhole;
  const bool is_newer =
      sscanf(content.c_str() + end + kSeal.size(), "%d:", format) == 1 && *format > kFormat;
  return is_newer ? Seal::kNewer : Seal::kDamaged;
}

}  // namespace gpuloom
