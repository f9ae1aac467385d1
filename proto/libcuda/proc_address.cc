// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/proc_address.h"

#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>
#include <string.h>

#include <cstddef>
#include <type_traits>

#include "proto/cuda/driver_version.h"
#include "proto/libcuda/exports.h"

namespace gpuloom {
namespace {

// Every row is held against CUDA's own typedefs: a program calls the symbol with the ABI of its
// cuda.h.
#define PROC_ADDRESS(name, version, per_thread, symbol, type) \
  static_assert(std::is_same_v<decltype(&::symbol), type>, #symbol " is not a " #type);
// CUDA deprecates these functions, but programs still call them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#include "proto/cuda/proc_address.def"
#pragma GCC diagnostic pop
#undef PROC_ADDRESS

// Names as ids: the rows need no relocation, and ids sort as names do.
struct Row {
  SymbolId name;
  SymbolId symbol;
  int version;
  bool per_thread;
};

constexpr Row kRows[] = {
#define PROC_ADDRESS(name, version, per_thread, symbol, type) \
  {SymbolId::name, SymbolId::symbol, version, per_thread},
#include "proto/cuda/proc_address.def"
#undef PROC_ADDRESS
};
constexpr size_t kRowCount = sizeof(kRows) / sizeof(kRows[0]);

// The searches below rely on it.
constexpr bool RowsAreSorted() {
  for (size_t i = 1; i < kRowCount; ++i) {
    const Row& a = kRows[i - 1];
    const Row& b = kRows[i];
    if (a.name != b.name ? a.name > b.name
                         : (a.per_thread != b.per_thread ? a.per_thread : a.version >= b.version)) {
      return false;
    }
  }
  return true;
}
static_assert(RowsAreSorted(), "proc_address.def: sort by name, per_thread, version");

// The first row whose name is not before `name`.
size_t LowerBound(SymbolId name) {
  size_t low = 0;
  size_t high = kRowCount;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (kRows[middle].name < name) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

ProcAddress FindProcAddress(const char* name, int cuda_version, bool per_thread,
                            int driver_version) {
  ProcAddress answer{ProcAddressStatus::kNotFound, {}};
  SymbolId id{};
  if (name == nullptr || !FindSymbol(name, &id)) return answer;
  for (size_t i = LowerBound(id); i < kRowCount && kRows[i].name == id; ++i) {
    const Row& row = kRows[i];
    if ((row.per_thread && !per_thread) || row.version > driver_version) continue;
    if (row.version > cuda_version) {
      // There is such a function, only not for a program of this version. A row that fits overrides
      // it.
      if (answer.status == ProcAddressStatus::kNotFound) {
        answer.status = ProcAddressStatus::kVersionNotSufficient;
      }
      continue;
    }
    // Rows come oldest first, plain ones before per-thread ones: the last that fits is the answer.
    answer = {ProcAddressStatus::kFound, row.symbol};
  }
  return answer;
}

bool DependsOnDriver(const char* name) {
  SymbolId id{};
  if (name == nullptr || !FindSymbol(name, &id)) return false;
  for (size_t i = LowerBound(id); i < kRowCount && kRows[i].name == id; ++i) {
    // Newer than the oldest supported driver: some drivers do not have it.
    if (kRows[i].version > kOldestDriverVersion) return true;
  }
  return false;
}

bool IsGraphicsInterop(const char* name) {
  for (const char* part : {"GL", "Egl", "VDPAU"}) {
    if (strstr(name, part) != nullptr) return true;
  }
  return false;
}

CUresult AnswerGetProcAddress(const char* name, void** function, int cuda_version, cuuint64_t flags,
                              CUdriverProcAddressQueryResult* status, int driver_version) {
  constexpr cuuint64_t kKnownFlags =
      CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (name == nullptr || function == nullptr || (flags & ~kKnownFlags) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  const ProcAddress answer = FindProcAddress(name, cuda_version, per_thread, driver_version);
  *function = nullptr;
  CUdriverProcAddressQueryResult result = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  switch (answer.status) {
    case ProcAddressStatus::kFound:
      *function = ExportedAddress(answer.symbol);
      result = CU_GET_PROC_ADDRESS_SUCCESS;
      break;
    case ProcAddressStatus::kNotFound:
      break;
    case ProcAddressStatus::kVersionNotSufficient:
      result = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      break;
  }
  if (status == nullptr) return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
  *status = result;
  return CUDA_SUCCESS;
}

}  // namespace gpuloom
