// SPDX-License-Identifier: Apache-2.0
// The options of one driver compilation: the tenant's options, and the buffers for the driver's logs. The
// driver keeps the buffers' addresses as long as its link state or library is loading, so this object
// must live as long and never move. Created on the ring thread, then used by one thread at a time.
//
// Every compilation holds two logs of wire::kMaxJitTextBytes, whatever the tenant's buffer sizes:
// times the number of compilations in progress, this bounds what a tenant can make this process hold.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "agent/executor/memory/host_memory.h"
#include "proto/cuda/cuda_all.h"
#include "proto/wire/fatal.h"
#include "proto/wire/link_commands.h"

namespace gpuloom::executor {

// Memory that the driver's compiler takes besides a text, in sizes of the text: its own copy, its
// intermediate forms, and the cubin. Its peak is higher, but only one compilation runs at a time.
inline constexpr uint64_t kCompilingTakes = 4;

class JitOptions {
 public:
  JitOptions();
  JitOptions(const JitOptions&) = delete;
  JitOptions& operator=(const JitOptions&) = delete;

  // Adds wire::LinkOptions. Returns false for an option that no shim sends.
  [[nodiscard]] bool Add(std::span<const uint8_t> payload_untrusted);

  // Options for the driver. It overwrites values, so they are rebuilt for every use.
  unsigned count() const { return static_cast<unsigned>(options_.size()); }
  CUjit_option* options() { return options_.data(); }
  void** values();
  // The first kErrorOptions of them again, for calls after a compilation: these leave the other values alone.
  static constexpr unsigned kErrorOptions = 2;
  void** error_values();

  std::string_view error() const;
  // Sets an error found by this process itself.
  void SetError(std::string_view text);

  // Writes the logs into the arena, as far as they fit; the report has the length of each. Where
  // the tenant has not populated the buffer, nothing is written.
  wire::JitReport Report(const HostMemory& host, uint64_t texts, uint32_t info_capacity_bytes,
                         uint32_t error_capacity_bytes) const;

 private:
  std::vector<char> info_;
  std::vector<char> error_;
  std::vector<CUjit_option> options_;
  std::vector<void*> wanted_;
  std::vector<void*> values_;  // overwritten by the driver
  void* error_values_[kErrorOptions] = {};
};

// Checks where a compiler's logs are to go (wire::LinkReport). Returns Fatal::kNone if that is in the arena.
[[nodiscard]] wire::Fatal JudgeTexts(const channel::Range& arena, wire::HostPtr texts_untrusted,
                                     uint32_t info_capacity_bytes_untrusted,
                                     uint32_t error_capacity_bytes_untrusted);

// Converts a payload's pairs for the driver. Returns false for an option that no shim sends.
[[nodiscard]] bool ReadJitOptions(std::span<const uint8_t> payload_untrusted,
                                  std::vector<CUjit_option>* options, std::vector<void*>* values);

}  // namespace gpuloom::executor
