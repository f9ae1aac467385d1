// SPDX-License-Identifier: Apache-2.0
#include "agent/node/runtime_check.h"

#include <fstream>
#include <string_view>

namespace gpuloom {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view WithoutBlanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace

RuntimeConfig ReadRuntimeConfig(const std::string& path) {
  std::ifstream file(path);
  if (!file) return RuntimeConfig::kMissing;
  // A TOML file of `key = value` lines; the key stands at top level and is true when absent.
  for (std::string line; std::getline(file, line);) {
    // From the first table on, all keys are tables'.
    if (WithoutBlanks(line).starts_with('[')) break;
    const size_t equals = line.find('=');
    if (equals == line.npos) continue;
    const std::string_view key = WithoutBlanks(std::string_view(line).substr(0, equals));
    std::string_view value = WithoutBlanks(std::string_view(line).substr(equals + 1));
    // A comment may follow.
    value = value.substr(0, value.find_first_of(" \t#"));
    if (key == kRuntimeKey && value == "false") return RuntimeConfig::kForbids;
  }
  return RuntimeConfig::kAllows;
}

// kMissing is no reason to warn: without that runtime no GPU is given out by an environment
// variable.
std::string CheckNvidiaRuntime(const std::string& config_path) {
  if (ReadRuntimeConfig(config_path) != RuntimeConfig::kAllows) return {};
  return "security: " + config_path +
         " lets any pod ask for GPUs by NVIDIA_VISIBLE_DEVICES, around gpuloom: set " +
         kRuntimeKey + " = false there and restart the container runtime";
}

}  // namespace gpuloom
