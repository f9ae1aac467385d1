// SPDX-License-Identifier: Apache-2.0
// The functions that a driver of a given CUDA version has: the first version in which each function of driver_api.def
// exists. Versions are CUDA's numbers: 12020 is CUDA 12.2, which comes with driver 535.
//
// Header-only, constant tables: no allocation, no start-up code, safe from any thread and in a tenant's process.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/cuda/driver_api.h"

namespace gpuloom {

// The oldest driver that gpuloom works with, 535: the executor's libraries and kernels need CUDA 12.0, and NVIDIA
// maintains no older branch that has it.
inline constexpr int kOldestDriverVersion = 12020;

namespace driver_version_internal {
struct Table {
  uint16_t first[kSymbolCount];
};
constexpr Table MakeTable() {
  Table table{};
#define PROC_ADDRESS(name, version, per_thread, symbol, type) \
  table.first[static_cast<size_t>(SymbolId::symbol)] = version;
#include "proto/cuda/proc_address.def"
#undef PROC_ADDRESS
  return table;
}
inline constexpr Table kTable = MakeTable();
}  // namespace driver_version_internal

// The CUDA version whose driver is the first with this function.
constexpr int FirstVersion(SymbolId id) {
  return driver_version_internal::kTable.first[static_cast<size_t>(id)];
}

}  // namespace gpuloom
