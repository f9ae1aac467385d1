// SPDX-License-Identifier: Apache-2.0
// The list of libcuda's exported functions as a constant table. Header-only, no allocation, no
// start-up code; safe in a tenant's process and from any thread. Needs no cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#ifdef cuMemAlloc
#error \
    "include proto/cuda/cuda_all.h instead of <cuda.h>: its macros rename the functions listed here"
#endif

namespace gpuloom {

// Where the shim handles a function; driver_api.def explains each.
enum class Room : uint8_t { kRemote, kLocal, kUnsupported };

// One value per exported function, named as the function is: SymbolId::cuInit. Also its index in
// kSymbols.
enum class SymbolId : uint16_t {
#define CUDA_FN(name, room) name,
#include "proto/cuda/driver_api.def"
#undef CUDA_FN
};

struct Symbol {
  const char* name;
  Room room;
};

inline constexpr Symbol kSymbols[] = {
#define CUDA_FN(name, room) {#name, Room::room},
#include "proto/cuda/driver_api.def"
#undef CUDA_FN
};
inline constexpr size_t kSymbolCount = sizeof(kSymbols) / sizeof(kSymbols[0]);

inline constexpr const Symbol& SymbolOf(SymbolId id) { return kSymbols[static_cast<size_t>(id)]; }

// Returns true, with the symbol's id, if libcuda exports exactly this name.
[[nodiscard]] inline constexpr bool FindSymbol(std::string_view name, SymbolId* id) {
  size_t low = 0;
  size_t high = kSymbolCount;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const int order = std::string_view(kSymbols[middle].name).compare(name);
    if (order == 0) {
      *id = static_cast<SymbolId>(middle);
      return true;
    }
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return false;
}

inline constexpr bool SymbolsAreSorted() {
  for (size_t i = 1; i < kSymbolCount; ++i) {
    if (std::string_view(kSymbols[i - 1].name).compare(kSymbols[i].name) >= 0) return false;
  }
  return true;
}
static_assert(SymbolsAreSorted(), "driver_api.def: keep the list sorted by name, each name once");

}  // namespace gpuloom
