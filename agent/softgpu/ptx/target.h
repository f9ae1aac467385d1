// SPDX-License-Identifier: Apache-2.0
// What PTX may require so that a device can run it: how new its language may be, and for which compute capability it
// may be compiled. Plain values.
#pragma once

#include <cstdint>
#include <string>

namespace gpuloom::softgpu::ptx {

// Which devices run PTX that was compiled for a target.
enum class TargetKind : uint8_t {
  kAll,       // sm_90: this capability and every later one
  kFamily,    // sm_100f: this one and later ones of the same major number
  kSpecific,  // sm_90a: this one
};

struct Target {
  uint32_t capability = 90;  // of the device
  uint32_t newest_ptx = 90;  // 90 for 9.0, of CUDA 13.0
  // What to compile for, and who sets the limit, for messages: "driver 535 (CUDA 12.2)".
  std::string driver = "softgpu";

  bool Runs(uint32_t target, TargetKind kind) const {
    switch (kind) {
      case TargetKind::kAll:
        return target <= capability;
      case TargetKind::kFamily:
        return target <= capability && target / 10 == capability / 10;
      case TargetKind::kSpecific:
        break;
    }
    return target == capability;
  }
};

// "a" of sm_90a.
inline const char* Suffix(TargetKind kind) {
  return kind == TargetKind::kSpecific ? "a" : kind == TargetKind::kFamily ? "f" : "";
}

// "9.0" of 90.
inline std::string Dotted(uint32_t number) {
  return std::to_string(number / 10) + "." + std::to_string(number % 10);
}

}  // namespace gpuloom::softgpu::ptx
