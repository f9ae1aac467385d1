// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/settings.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "agent/node/size.h"
#include "agent/softgpu/driver/played.h"

namespace gpuloom::softgpu {
namespace {

// The largest memory offered: device addresses are ordinary user addresses, of which Linux gives
// 128 TiB.
constexpr uint64_t kMaxMemoryBytes = uint64_t{64} << 40;

std::string_view Variable(const char* name) {
  const char* value = std::getenv(name);  // read once, inside cuInit
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// Leaves *number as it is when the variable is not set. False, with a sentence, when it holds nonsense.
bool ReadNumber(const char* name, int least, int most, int& number, std::string& error) {
  const std::string_view text = Variable(name);
  if (text.empty()) return true;
  int value = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    error = std::string(name) + " is \"" + std::string(text) + "\"; write a number from " +
            std::to_string(least) + " to " + std::to_string(most);
    return false;
  }
  number = value;
  return true;
}

// A bit for each. An empty file, or one without numbers in it, means all of them.
uint32_t LostDevices() {
  const std::string_view path = Variable("GPULOOM_SOFTGPU_LOST");
  std::FILE* const file = path.empty() ? nullptr : std::fopen(path.data(), "re");
  if (file == nullptr) return 0;
  uint32_t lost = 0;
  for (unsigned number = 0; std::fscanf(file, "%u", &number) == 1;) {
    if (number < kMaxDevices) lost |= uint32_t{1} << number;
  }
  std::fclose(file);
  return lost == 0 ? UINT32_MAX : lost;
}

const uint32_t lost_at_load = LostDevices();

}  // namespace

bool WasLostAtLoad(int number) { return (lost_at_load >> number & 1) != 0; }

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

bool ParseMemories(std::string_view text, std::vector<uint64_t>& sizes_bytes, std::string& error) {
  std::vector<uint64_t> parsed;
  // `begin` may equal the size: after a last comma an empty size follows, which is an error.
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (!ParseMemory(text.substr(begin, end - begin), parsed.emplace_back(), error)) return false;
    begin = end + 1;
  }
  sizes_bytes = std::move(parsed);
  return true;
}

bool ReadSettings(Settings& settings, std::string& error) {
  settings.quiet = Variable("GPULOOM_SOFTGPU_QUIET") == "1";
  settings.counts = Variable("GPULOOM_SOFTGPU_COUNT") == "1";
  settings.hollow = Variable("GPULOOM_SOFTGPU_HOLLOW") == "1";
  settings.handshake = Variable("GPULOOM_SOFTGPU_HANDSHAKE") != "off";
  // Checked here although played.h reads them by itself: cuInit reports nonsense, and the defaults only serve programs
  // that ask before it.
  const PlayedDriver* driver = FindPlayedDriver(Variable("GPULOOM_SOFTGPU_DRIVER"), &error);
  if (driver == nullptr) return false;
  const PlayedCapability* capability =
      FindPlayedCapability(Variable("GPULOOM_SOFTGPU_CAPABILITY"), &error);
  if (capability == nullptr || !KnowsCapability(*driver, *capability, &error)) return false;
  const std::string_view memory = Variable("GPULOOM_SOFTGPU_MEMORY");
  if (!memory.empty() && !ParseMemories(memory, settings.memory_bytes, error)) {
    error = "GPULOOM_SOFTGPU_MEMORY: " + error;
    return false;
  }
  std::string ignored;
  static_cast<void>(
      ReadNumber("CUDA_DEVICE_MAX_CONNECTIONS", 1, 32, settings.hardware_queues, ignored));
  return ReadNumber("GPULOOM_SOFTGPU_DEVICES", 0, kMaxDevices, settings.device_count, error) &&
         ReadNumber("GPULOOM_SOFTGPU_COMPILE", 0, kMaxCompileSeconds,
                    settings.compile_seconds_per_mib, error) &&
         ReadNumber("GPULOOM_SOFTGPU_MULTIPROCESSORS", 1, kMaxMultiprocessors,
                    settings.multiprocessors, error) &&
         ReadNumber("GPULOOM_SOFTGPU_THREADS", 0, kMaxThreads, settings.threads, error);
}

}  // namespace gpuloom::softgpu
