// SPDX-License-Identifier: Apache-2.0
// Which driver and which GPU this library plays: GPULOOM_SOFTGPU_DRIVER and GPULOOM_SOFTGPU_CAPABILITY. The driver
// decides the version that programs are told, which functions and attributes they find, and how new PTX may be. The
// compute capability decides limits and sizes, and for which targets PTX may be compiled.
//
// The tables are constants; the environment is read with the settings (settings.h), or when a program asks for the
// version before cuInit. Safe from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "agent/softgpu/ptx/target.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::softgpu {

struct PlayedDriver {
  int branch;           // 535, as nvidia-smi shows it before the first dot
  int version;          // CUDA's number: 12020
  uint32_t newest_ptx;  // 82 for 8.2
};

// What one multiprocessor of a compute capability has, according to the toolkit's cuda_occupancy.h and the programming
// guide.
struct PlayedCapability {
  uint32_t number;            // 75 for 7.5
  int since_version;          // the CUDA version whose driver knows it first
  int max_threads;            // resident
  int max_blocks;             // resident
  int shared_kib;             // all blocks together
  int block_shared_kib;       // the most that one block can have
  int reserved_shared_bytes;  // taken for each block
  int double_ratio;           // how many times the rate of double precision single precision has

  bool has_clusters() const { return number >= 90; }
  int shared_bytes() const { return shared_kib << 10; }
  int block_shared_bytes() const { return block_shared_kib << 10; }
};

// nullptr, with a sentence in `error`, for what is not in the tables. An empty text means the default, 580 and 9.0.
const PlayedDriver* FindPlayedDriver(std::string_view text, std::string* error);
const PlayedCapability* FindPlayedCapability(std::string_view text, std::string* error);
// False, with a sentence, when the driver is older than the capability.
[[nodiscard]] bool KnowsCapability(const PlayedDriver& driver, const PlayedCapability& capability,
                                   std::string* error);

// Those that the environment names; the defaults where it holds nonsense, which cuInit reports.
const PlayedDriver& ThePlayedDriver();
const PlayedCapability& ThePlayedCapability();

inline int PlayedVersion() { return ThePlayedDriver().version; }
// What PTX may require.
ptx::Target PlayedTarget();

// Whether the played driver has this attribute of devices at all.
bool KnowsAttribute(CUdevice_attribute attribute);

}  // namespace gpuloom::softgpu
