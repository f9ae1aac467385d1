// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/kept_text.h"

#include <cstdint>
#include <cstdio>
#include <string_view>

#include "agent/cat.h"
#include "agent/identity/state_file.h"

namespace gpuloom {
namespace {

constexpr int kFormat = 1;
// What begins the last line.
constexpr std::string_view kSeal = "\n# kept by gpuloom-agent, format ";

// FNV-1a: against damage, not against malice; who can write here is root.
uint64_t Sum(std::string_view text) {
  uint64_t sum = 0xcbf29ce484222325;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return sum;
}

std::string Seal(std::string_view text) {
  char rest[80];
  snprintf(rest, sizeof(rest), "%d: %zu bytes, sum %016llx\n", kFormat, text.size(),
           static_cast<unsigned long long>(Sum(text)));  // NOLINT(google-runtime-int): printf's
  return std::string(kSeal) + rest;
}

}  // namespace

absl::Status KeepText(const std::string& path, const std::string& text) {
  return WriteStateFile(path, text + Seal(text));
}

absl::StatusOr<std::string> KeptText(const std::string& path) {
  absl::StatusOr<std::string> content = ReadStateFile(path);
  if (!content.ok()) return content;
  const size_t end = content->rfind(kSeal);
  if (end == std::string::npos) return absl::DataLossError(Cat("state: ", path, " is damaged"));
  const std::string_view seal = std::string_view(*content).substr(end);
  std::string text = content->substr(0, end);
  if (seal == Seal(text)) return text;
  int format = 0;
  if (sscanf(seal.data() + kSeal.size(), "%d:", &format) == 1 && format > kFormat) {
    return absl::FailedPreconditionError(
        Cat("state: ", path, " was written by a newer agent, in format ", format));
  }
  return absl::DataLossError(Cat("state: ", path, " is damaged"));
}

}  // namespace gpuloom
