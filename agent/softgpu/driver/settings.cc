// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/settings.h"

#include <charconv>
#include <cstdlib>
#include <optional>

#include "agent/node/size.h"

namespace gpuloom::softgpu {
namespace {

// The largest memory offered: device addresses are ordinary user addresses, of which Linux gives
// 128 TiB.
constexpr uint64_t kMaxMemoryBytes = uint64_t{64} << 40;

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, inside cuInit
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Leaves *number as it is when the variable is not set. False, with a sentence, when it holds nonsense.
bool ReadNumber(const char* name, int most, int& number, std::string& error) {
  const std::string_view text = Variable(name);
  if (text.empty()) return true;
  int value = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 0 || value > most) {
    error = std::string(name) + " is \"" + std::string(text) + "\"; write a number from 0 to " +
            std::to_string(most);
    return false;
  }
  number = value;
  return true;
}

}  // namespace

bool ParseMemory(std::string_view text, uint64_t& size_bytes, std::string& error) {
  const std::optional<uint64_t> parsed = ParseSize(text, &error);
  if (!parsed) return false;
  if (*parsed == 0 || *parsed > kMaxMemoryBytes) {
    error = "size '" + std::string(text) + "' is not between 1B and " + FormatSize(kMaxMemoryBytes);
    return false;
  }
  size_bytes = *parsed;
  return true;
}

bool ReadSettings(Settings& settings, std::string& error) {
  settings.quiet = Variable("GPULOOM_SOFTGPU_QUIET") == "1";
  settings.hollow = Variable("GPULOOM_SOFTGPU_HOLLOW") == "1";
  settings.handshake = Variable("GPULOOM_SOFTGPU_HANDSHAKE") != "off";
  const std::string_view memory = Variable("GPULOOM_SOFTGPU_MEMORY");
  if (!memory.empty() && !ParseMemory(memory, settings.memory_bytes, error)) {
    error = "GPULOOM_SOFTGPU_MEMORY: " + error;
    return false;
  }
  return ReadNumber("GPULOOM_SOFTGPU_DEVICES", kMaxDevices, settings.device_count, error) &&
         ReadNumber("GPULOOM_SOFTGPU_COMPILE", kMaxCompileSeconds, settings.compile_seconds_per_mib,
                    error);
}

}  // namespace gpuloom::softgpu
