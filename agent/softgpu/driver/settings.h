// SPDX-License-Identifier: Apache-2.0
// What the operator chose through the environment, read once by cuInit.
//
// GPULOOM_SOFTGPU_MEMORY   memory of each device: a size ("8GiB"), or several by device ("8GiB,16GiB"), of which the
//                          last one also applies to all further devices; default 16GiB
// GPULOOM_SOFTGPU_DEVICES  number of devices, 0 to 16; default 1
// GPULOOM_SOFTGPU_DRIVER   the driver that is played: 535, 550, 570 or 580 (played.h); default 580
// GPULOOM_SOFTGPU_CAPABILITY  compute capability of each device, 7.5 to 12.1 (played.h); default 9.0
// GPULOOM_SOFTGPU_HANDSHAKE  off leaves the CUDA runtime's start-up handshake unanswered
//                          (proto/libcuda/runtime_handshake.h); programs built on cudart then do not start
// GPULOOM_SOFTGPU_HOLLOW   1 loads machine code, instead of PTX, as kernels that do nothing: to see what
//                          a library asks of a driver, never to compute
// GPULOOM_SOFTGPU_COMPILE  additional seconds that loading takes for each MiB of PTX, 0 to 3600: a real driver's
//                          compiler takes its time; default 0
// GPULOOM_SOFTGPU_MULTIPROCESSORS  of each device, 1 to 256; default 4
// GPULOOM_SOFTGPU_THREADS  threads that run one grid's blocks, 1 to 256; default: one for each processor
// GPULOOM_SOFTGPU_COUNT    1 prints on stderr how many instructions each grid took
// GPULOOM_SOFTGPU_LOST     a file: a process that loads the driver while it exists finds no device, as when a GPU
//                          has fallen off the bus; if it contains numbers, only those devices are lost
// CUDA_DEVICE_MAX_CONNECTIONS  as NVIDIA's driver reads it: hardware queues of each device (hardware_queues.h), 1 to 32;
//                          default, also for anything else, 8
// GPULOOM_SOFTGPU_QUIET    1 silences the one line per unsupported function and per fault on stderr
//
// Values only, safe from any thread. A value that cannot be read is reported on stderr and fails cuInit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpuloom::softgpu {

// As many as one host holds with the largest boards sold; more is surely a typing error.
inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxCompileSeconds = 3600;
// As many as any GPU has so far.
inline constexpr int kMaxMultiprocessors = 256;
// Far more than one grid benefits from.
inline constexpr int kMaxThreads = 256;

struct Settings {
  int device_count = 1;
  // by device; the last one for all further devices
  std::vector<uint64_t> memory_bytes = {uint64_t{16} << 30};
  bool handshake = true;
  bool hollow = false;
  bool quiet = false;
  int compile_seconds_per_mib = 0;
  // Enough that occupancy-sized grids have several blocks, few enough that they stay small for a CPU.
  int multiprocessors = 4;
  int threads = 0;  // 0: one for each processor
  bool counts = false;
  int hardware_queues = 8;
};

// A size (agent/node/size.h) that a device can have. False, with a sentence in `error`.
[[nodiscard]] bool ParseMemory(std::string_view text, uint64_t& size_bytes, std::string& error);

// The same for several devices, with commas between them.
[[nodiscard]] bool ParseMemories(std::string_view text, std::vector<uint64_t>& sizes_bytes,
                                 std::string& error);

// Whether the device of this number was lost, by GPULOOM_SOFTGPU_LOST, when this library was loaded. The file is read
// then because a process that confines itself before it calls cuInit could not read it later.
bool WasLostAtLoad(int number);

// Reads the environment. False, with a sentence in `error`, when a variable holds nonsense.
[[nodiscard]] bool ReadSettings(Settings& settings, std::string& error);

}  // namespace gpuloom::softgpu
