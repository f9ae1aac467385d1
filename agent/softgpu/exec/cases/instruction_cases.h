// SPDX-License-Identifier: Apache-2.0
// One small program for each form of each instruction, with its expected result. Constant tables
// and pure functions.
//
// A case is a few instructions inside a common frame: inputs are in registers before, results are
// stored after. The same programs run on the machine and on any CUDA driver, so that the
// expectations here can be compared with what a GPU does.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>

namespace gpuloom::softgpu {

// Registers that the frame declares. Before: in[k] is in %dk+1 (64 bits), its low bits in %rk+1 and
// %hk+1, and %pk+1 tells whether it is not 0; %r9 is the lane; %d9 the address of 64 bytes of the
// lane's own global memory, %d8 of 256 bytes for all lanes, both zeroed; "shared" is 256 bytes.
// After: the result is %d0, %r0, %h0 or %p0, which the frame sets to `kUntouched` (%p0 to false).
// %r10… %d10… %h10… %p10… are free.
struct Case {
  const char* text;
  char result;  // 'd', 'r', 'h' or 'p'
  uint64_t in[3];
  uint64_t want;
  // For results that differ from lane to lane; `want` is unused then.
  uint64_t (*want_of)(uint32_t lane) = nullptr;
};

inline constexpr uint32_t kUntouched = 0x5a5a;

constexpr uint64_t F(float value) { return std::bit_cast<uint32_t>(value); }
constexpr uint64_t D(double value) { return std::bit_cast<uint64_t>(value); }

[[nodiscard]] std::span<const Case> IntegerCases();
[[nodiscard]] std::span<const Case> BitCases();
[[nodiscard]] std::span<const Case> FloatCases();
[[nodiscard]] std::span<const Case> HalfCases();
[[nodiscard]] std::span<const Case> CompareCases();
[[nodiscard]] std::span<const Case> ConvertCases();
[[nodiscard]] std::span<const Case> MemoryCases();
[[nodiscard]] std::span<const Case> AtomicCases();
[[nodiscard]] std::span<const Case> ControlCases();
[[nodiscard]] std::span<const Case> WarpCases();
[[nodiscard]] std::span<const Case> MatrixCases();
// Also for launches of clusters; each block gives the same results.
[[nodiscard]] std::span<const Case> ClusterCases();

// The whole text of a case: kernel "test" with parameters (inputs, results, scratch). `guarded`
// executes the case's instructions in even lanes only, by a predicate on each.
[[nodiscard]] std::string ProgramOf(const Case& test, bool guarded);
// Instructions that cannot be guarded alone: they declare, or end scopes, or wait for all lanes.
[[nodiscard]] bool CanBeGuarded(const Case& test);

// Bytes per lane of the scratch parameter, after 256 bytes for all.
inline constexpr uint32_t kScratchBytes = 64;
inline constexpr uint32_t kCommonBytes = 256;

}  // namespace gpuloom::softgpu
