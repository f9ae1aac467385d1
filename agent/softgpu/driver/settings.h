// SPDX-License-Identifier: Apache-2.0
// What the operator chose through the environment, read once by cuInit.
//
// GPULOOM_SOFTGPU_MEMORY   memory of each device: a size ("8GiB"); default 16GiB
// GPULOOM_SOFTGPU_DEVICES  number of devices, 0 to 16; default 1
// GPULOOM_SOFTGPU_HANDSHAKE off leaves the CUDA runtime's start-up handshake unanswered
// (proto/libcuda/runtime_handshake.h);
//                          programs built on cudart then do not start
// GPULOOM_SOFTGPU_HOLLOW   1 loads machine code, instead of PTX, as kernels that do nothing: to see what
//                          a library asks of a driver, never to compute
// GPULOOM_SOFTGPU_COMPILE  seconds that loading takes for each MiB of PTX, 0 to 3600, beside what it takes
//                          anyhow: a driver's compiler takes its time; default 0
// GPULOOM_SOFTGPU_QUIET    1 silences the one line per unsupported function and per fault on stderr
//
// Thread-safe: values only. A value that cannot be read is told on stderr and fails cuInit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpuloom::softgpu {

// Sixteen is what one host holds with the largest boards sold; more is surely a typing error.
inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxCompileSeconds = 3600;

struct Settings {
  int device_count = 1;
  uint64_t memory_bytes = uint64_t{16} << 30;
  bool handshake = true;
  bool hollow = false;
  bool quiet = false;
  int compile_seconds_per_mib = 0;
};

// A size (agent/node/size.h) that a device can have. False, with a sentence in `error`.
[[nodiscard]] bool ParseMemory(std::string_view text, uint64_t& size_bytes, std::string& error);

// Reads the environment. False, with a sentence in `error`, when a variable holds nonsense.
[[nodiscard]] bool ReadSettings(Settings& settings, std::string& error);

}  // namespace gpuloom::softgpu
