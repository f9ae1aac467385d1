// SPDX-License-Identifier: Apache-2.0
// The options of one compile of the driver's: what the tenant asked for, and where the driver writes
// what it says. The driver keeps the addresses as long as its state or library loads, so this object
// must live as long and never move. Made on the ring thread, then used by one thread at a time.
//
// Every compile holds two texts of wire::kMaxJitTextBytes, whatever the tenant's capacities are: that
// is the bound on what a tenant can make this process hold, times the compiles on their way.
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

// What the driver's compiler takes beside a text, in texts: its own copy, what it makes of it, and the
// cubin. Its peak is higher, but one compile runs at a time.
inline constexpr uint64_t kCompilingTakes = 4;

class Jit {
 public:
  Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  // Adds wire::LinkOptions. False for an option that no shim sends.
  [[nodiscard]] bool Add(std::span<const uint8_t> payload_untrusted);

  // What the driver is given. It replaces values, so they are made anew for every use.
  unsigned count() const { return static_cast<unsigned>(options_.size()); }
  CUjit_option* options() { return options_.data(); }
  void** values();
  // The first kErrorOptions of them once more, for what follows a compile: they leave the rest alone.
  static constexpr unsigned kErrorOptions = 2;
  void** error_values();

  std::string_view error() const;
  // What this process itself has to say of the image.
  void SetError(std::string_view text);

  // Writes the texts into the arena, as far as they fit: the report is what there is of each. A part
  // that the tenant has not populated stays empty.
  wire::JitReport Report(const HostMemory& host, uint64_t texts, uint32_t info_capacity_bytes,
                         uint32_t error_capacity_bytes) const;

 private:
  std::vector<char> info_;
  std::vector<char> error_;
  std::vector<CUjit_option> options_;
  std::vector<void*> wanted_;
  std::vector<void*> values_;  // as the driver left them
  void* error_values_[kErrorOptions] = {};
};

// Where a compiler's texts are to go (wire::LinkReport). Fatal::kNone when they lie in the arena.
[[nodiscard]] wire::Fatal JudgeTexts(const channel::Range& arena, wire::HostPtr texts_untrusted,
                                     uint32_t info_capacity_bytes_untrusted,
                                     uint32_t error_capacity_bytes_untrusted);

// The pairs of a payload as the driver wants them. False for an option that no shim sends.
[[nodiscard]] bool ReadJitOptions(std::span<const uint8_t> payload_untrusted,
                                  std::vector<CUjit_option>* options, std::vector<void*>* values);

}  // namespace gpuloom::executor
