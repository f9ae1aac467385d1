// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/runtime_check.h"

#include <fstream>

#include "absl/strings/ascii.h"
#include "agent/cat.h"

namespace gpuloom {

std::string CheckNvidiaRuntime(const std::string& config_path) {
  constexpr char kKey[] = "accept-nvidia-visible-devices-envvar-when-unprivileged";
  std::ifstream file(config_path);
  if (!file) return {};
  // A TOML file of `key = value` lines; the key stands at top level and is true when absent.
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (equals == line.npos) continue;
    const std::string key(absl::StripAsciiWhitespace(line.substr(0, equals)));
    std::string value(absl::StripAsciiWhitespace(line.substr(equals + 1)));
    value = value.substr(0, value.find_first_of(" \t#"));
    if (key == kKey && value == "false") return {};
  }
  return Cat("security: ", config_path,
             " lets any pod ask for GPUs by NVIDIA_VISIBLE_DEVICES, around gpuloom: set ", kKey,
             " = false there and restart the container runtime");
}

}  // namespace gpuloom
