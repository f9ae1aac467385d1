// SPDX-License-Identifier: Apache-2.0
// The 64-bit object that mbarrier instructions work on, as it lies in shared memory; PTX leaves its
// layout to the implementation. A phase ends when neither arrivals nor bytes are pending. Plain
// value; the thread that runs the block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gpuloom::softgpu {

// Instr::flags of mbarrier.arrive: d takes the token. Above the bits of AddressFlags.
inline constexpr uint8_t kWritesState = 0x40;

struct Mbarrier {
  static constexpr uint32_t kMaxCount = (1u << 20) - 1;

  uint32_t expected = 0;  // arrivals of each phase
  uint32_t pending = 0;   // arrivals that this phase lacks
  // bytes that this phase waits for; below zero when some arrived before they were expected
  int32_t bytes = 0;
  uint32_t phase = 0;  // 0 or 1

  static Mbarrier Of(uint32_t count) { return {count, count, 0, 0}; }

  static Mbarrier FromWord(uint64_t word) {
    // The bytes have 21 bits with their sign.
    const auto bytes = static_cast<int32_t>(static_cast<uint32_t>(word >> 40) << 11) >> 11;
    return {static_cast<uint32_t>(word) & kMaxCount, static_cast<uint32_t>(word >> 20) & kMaxCount,
            bytes, static_cast<uint32_t>(word >> 63)};
  }
  static Mbarrier Load(const std::byte* at) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    return FromWord(word);
  }
  [[nodiscard]] uint64_t Token() const {
    return expected | uint64_t{pending} << 20 |
           uint64_t{static_cast<uint32_t>(bytes) & 0x1fffffu} << 40 | uint64_t{phase} << 63;
  }
  void Store(std::byte* at) const {
    const uint64_t word = Token();
    std::memcpy(at, &word, sizeof(word));
  }
  static uint32_t PhaseOf(uint64_t token) { return FromWord(token).phase; }
  static uint32_t PendingOf(uint64_t token) { return FromWord(token).pending; }

  // False when more arrive than are expected.
  bool Arrive(uint32_t count) {
    if (count > pending) return false;
    pending -= count;
    EndPhase();
    return true;
  }
  bool ArriveAndDrop(uint32_t count) {
    if (count > pending || count > expected) return false;
    expected -= count;
    return Arrive(count);
  }
  // The sum wraps, whatever a program requests.
  void Expect(uint32_t more) { bytes = static_cast<int32_t>(static_cast<uint32_t>(bytes) + more); }
  void Complete(uint32_t done) {
    bytes = static_cast<int32_t>(static_cast<uint32_t>(bytes) - done);
    EndPhase();
  }

 private:
  void EndPhase() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = expected;
  }
};

}  // namespace gpuloom::softgpu
