// SPDX-License-Identifier: Apache-2.0
#include "agent/run/shown_time.h"

#include <yaml-cpp/yaml.h>

#include <chrono>

#include "agent/node/boot.h"

namespace gpuloom::run {

ShownTime::ShownTime(const std::string& state_dir)
    : ShownTime(state_dir, BootId(), SinceBoot().count(),
                std::chrono::duration_cast<std::chrono::milliseconds>(
                    std::chrono::system_clock::now().time_since_epoch())
                    .count()) {}

ShownTime::ShownTime(const std::string& state_dir, const std::string& boot_id,
                     int64_t since_boot_ms, int64_t wall_ms) {
  try {
    const YAML::Node root = YAML::LoadFile(state_dir + "/clock.yaml");
    const auto began_ms = root["sinceBootMs"].as<int64_t>();
    if (root["boot"].as<std::string>() != boot_id || began_ms > since_boot_ms) return;
    const int64_t agents_ms = root["timeMs"].as<int64_t>() + since_boot_ms - began_ms;
    // Whole seconds, as Clock::WallAhead.
    ahead_s_ =
        std::chrono::round<std::chrono::seconds>(std::chrono::milliseconds(wall_ms - agents_ms))
            .count();
  } catch (const YAML::Exception&) {
    // No agent has begun here.
  }
}

}  // namespace gpuloom::run
